"""A daemon of one table that does what it is told, line by line; the test stops it with SIGSTOP.

python leased_daemon.py TABLE TTL_S

- `take`: waits for the lease, takes it and keeps it
- `compact`: rewrites, waits in the middle for another line, and commits with the fence that it had at the beginning
- `release`
"""

from __future__ import annotations

import sys
from threading import current_thread, main_thread

from tidelog.compaction_daemon import stage
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.leases import Held, Lease, new_owner
from tidelog.log import Table
from tidelog.log.errors import LeaseLostError
from tidelog.log.system import System


class Interruptible(System):
    """Stops at the second id that a rewrite asks for: then its first file is written."""

    left = 0

    def uuid(self) -> str:
        if self.left and current_thread() is main_thread():
            self.left -= 1
            if not self.left:
                print("rewriting", flush=True)
                sys.stdin.readline()
        return super().uuid()


def main(path: str, ttl_s: str) -> None:
    applying.THREADS = 1  # the files of a rewrite come one after the other, in this thread
    system = Interruptible()
    table, owner = Table.open(path, system=system), new_owner(system)
    lease: Lease | None = None
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "take":
                lease = take(table, owner, float(ttl_s))
                print(f"epoch {lease.epoch} {lease.took_over}", flush=True)
            case "compact":
                assert lease
                fence = lease.fence
                system.left = 2
                transaction = stage(table).fenced(fence)
                try:
                    outcome = transaction.commit()
                except LeaseLostError as error:
                    print(f"{error} held={lease.is_held}", flush=True)
                else:
                    print(type(outcome).__name__, flush=True)
            case "release":
                assert lease
                print(lease.release(), flush=True)
            case _:
                raise AssertionError(line)


def take(table: Table, owner: str, ttl_s: float) -> Lease:
    seen: Held | None = None
    while True:
        found = Lease.take(table, owner=owner, ttl_s=ttl_s, seen=seen)
        if isinstance(found, Lease):
            found.keep_alive()
            return found
        seen = found
        table.timeline.system.sleep_s(found.free_in_s)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program whose children are killed: for each line on stdin it forks a daemon over the table and prints its pid.

python compactor.py TABLE

Forked, because importing everything anew would take longer than a daemon lives here; what tidelog imports when it
first needs it is imported before.
"""

from __future__ import annotations

import os
import signal
import sys

import pyarrow.dataset  # noqa: F401 - brings pandas with it

from tidelog.compaction_daemon import Daemon, DaemonConfig


def main(table: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            Daemon([table], config=DaemonConfig(interval_s=0.001, growth=1.0)).run()
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

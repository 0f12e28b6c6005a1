"""For each line on stdin, fork a compaction daemon on the table and print its process id; the test kills it.

python compactor.py TABLE

It forks because importing everything takes longer than a daemon lives here. Lazy imports of tidelog are done before.
"""

from __future__ import annotations

import os
import signal
import sys

import pyarrow.dataset  # noqa: F401 - imports pandas as well

from tidelog.compaction_daemon import Daemon, DaemonConfig


def main(table: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no parent waits for the children
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            Daemon([table], config=DaemonConfig(interval_s=0.01, growth=1.0, core_share=1, lease_ttl_s=0.1)).run()
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

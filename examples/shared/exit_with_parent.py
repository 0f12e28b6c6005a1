"""Run a command that ends when its parent does: python exit_with_parent.py COMMAND ...

The parent holds the other end of standard input. When that closes, however the parent ended, the command gets SIGTERM,
and then everything left in this process group is killed. So start this program in its own session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Thread

_END_S = 8


def main(command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        Thread(target=_end_with_parent, args=(process,), daemon=True).start()
        return process.wait()


def _end_with_parent(process: subprocess.Popen[bytes]) -> None:
    os.read(0, 1)  # returns when the pipe closes, since the parent never writes
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    os.killpg(0, signal.SIGKILL)  # including this program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

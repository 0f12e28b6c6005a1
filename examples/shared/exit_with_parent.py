"""Runs a command on a leash, so that it does not outlive who started it: python leash.py COMMAND ...

Standard input is the leash. When its other end is closed, however that process ended, the command is asked to end, and
then whatever is left of this process group is killed. So this program is started in a session of its own.
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
        Thread(target=_end_with_starter, args=(process,), daemon=True).start()
        return process.wait()


def _end_with_starter(process: subprocess.Popen[bytes]) -> None:
    os.read(0, 1)  # nobody writes there
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    os.killpg(0, signal.SIGKILL)  # this program, too


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

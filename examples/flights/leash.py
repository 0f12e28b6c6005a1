"""The command `tidelog`, ended when its standard input is: a process on a leash, which does not outlive the demo."""

from __future__ import annotations

import os
import signal
from threading import Thread

from tidelog import cli


def _end_with_parent() -> None:
    os.read(0, 1)  # nobody writes there: it returns when the other end is closed, however that process ended
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    cli.main()

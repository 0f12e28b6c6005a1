"""The demo: events go through Kafka into a tidelog table, invalid ones into a dead-letter table, and the table's
changes back into Kafka. Meanwhile the writer, the broker and the consumer are killed and restarted.

    .venv/bin/python examples/kafka/demo.py            run from the beginning, and check that each record arrived once
    .venv/bin/python examples/kafka/demo.py --clean    remove what it wrote

Exit codes: 0 done and all checks hold, 1 failed, 2 wrong use or a missing prerequisite, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

if __name__ == "__main__":  # run as a file, so the repository's root is not on the path
    sys.path[0] = str(Path(__file__).resolve().parents[2])


class Interrupted(BaseException):
    """A signal asked the demo to end; `exit_code` is the shell's exit code for it."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted; all its processes have ended")
        self.exit_code = 128 + number


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    # Only once, so that the clean-up that follows is not interrupted.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        # The slow imports (Spark, Arrow) come after the handlers, so that Ctrl-C is quiet during them as well.
        from examples.kafka.run import run  # noqa: PLC0415

        return run(sys.argv[1:])
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())

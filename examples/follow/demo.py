"""The demo: a second table follows a board of departures. A stream adds a day of real flights each second, statements
update, delete and upsert them, and compactions rewrite the files. The follower is killed at random moments and started
again. At the end both tables must hold the same rows.

    .venv/bin/python examples/follow/demo.py            run from the beginning
    .venv/bin/python examples/follow/demo.py --clean    remove what it wrote

Exit codes: 0 done and all checks hold, 1 failed, 2 wrong use or a missing prerequisite, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file, so the repository's root is not on the path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from examples.shared.interrupts import Interrupted, raise_interrupts


def main() -> int:
    raise_interrupts()
    try:
        # The slow imports (Arrow, delta-rs) come after the handlers, so that Ctrl-C is quiet during them as well.
        from examples.follow.run import run  # noqa: PLC0415

        return run(sys.argv[1:])
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())

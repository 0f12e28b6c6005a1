"""The demo: a Spark Declarative Pipeline whose tables are tidelog's. It has a streaming table, a table that AutoCDC
keeps up to date, and a materialized view. It runs twice, then with new rows, is killed in the middle, and refreshes
everything; after each run all rows are checked.

    .venv/bin/python examples/pipeline/demo.py            run from the beginning
    .venv/bin/python examples/pipeline/demo.py --clean    remove what it wrote

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
        # The slow imports (Arrow) come after the handlers, so that Ctrl-C is quiet during them as well.
        from examples.pipeline.run import run  # noqa: PLC0415

        return run(sys.argv[1:])
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())

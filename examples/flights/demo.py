"""The demo: 336,776 flights go into a tidelog table, one day per micro-batch, while a consumer follows the table's
change feed and the compaction daemon merges small files.

    .venv/bin/python examples/flights/demo.py            run, or continue where the last run stopped
    .venv/bin/python examples/flights/demo.py --clean    remove what it wrote

A run always ends with a check of the rows. Exit codes: 0 done and verified, 1 failed or the rows differ, 2 wrong use or
a missing prerequisite, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file, so the repository's root is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.flights.interrupts import Interrupts


def main() -> int:
    interrupts = Interrupts()
    interrupts.install()
    # The slow imports (Spark, Arrow) come after the handlers, so that Ctrl-C is quiet during them as well.
    from examples.flights.run import run  # noqa: PLC0415

    return run(sys.argv[1:], interrupts)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of PySpark can remain, which would wait for the JVM that has ended

"""The demo: 336,776 flights, a day a micro-batch, into a tidelog table, with a consumer of its change feed and the
compaction daemon at work beside them.

    .venv/bin/python examples/flights/demo.py            run, go on where the last run stopped, or verify again
    .venv/bin/python examples/flights/demo.py --clean    remove what it wrote

Exit codes: 0 done and verified, 1 failed or the rows differ, 2 wrong use or a missing prerequisite, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":  # run by path: the repository's root is not on the path then
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.flights.interrupts import Interrupts


def main() -> int:
    interrupts = Interrupts()
    interrupts.install()
    # Only now the slow imports (Spark, Arrow), so that Ctrl-C is quiet while they run, too.
    from examples.flights.run import run  # noqa: PLC0415

    return run(sys.argv[1:], interrupts)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # at once: threads of Spark's Python side may be left, without a JVM to talk to

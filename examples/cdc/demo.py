"""The demo: tables follow a PostgreSQL database through Debezium and Kafka, while all of them are killed and restarted.

    .venv/bin/python examples/cdc/demo.py                run from the beginning, and compare each table
    .venv/bin/python examples/cdc/demo.py --seconds 30   a shorter workload
    .venv/bin/python examples/cdc/demo.py --clean        remove what it wrote

Exit codes: 0 done and all tables are equal, 1 failed, 2 wrong use or a missing prerequisite, 130 Ctrl-C, 143 SIGTERM.
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
        # The slow imports (Spark, Arrow) come after the handlers, so that Ctrl-C is quiet during them as well.
        from examples.cdc.run import run  # noqa: PLC0415

        return run(sys.argv[1:])
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())

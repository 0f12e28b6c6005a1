"""The demo: events go through Kafka into a tidelog table, invalid ones into a dead-letter table, and the table's
changes back into Kafka. Meanwhile the writer, the broker and the consumer are killed and restarted.

    .venv/bin/python examples/kafka/demo.py            run from the beginning, and check that each record arrived once
    .venv/bin/python examples/kafka/demo.py --clean    remove what it wrote

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
        # The slow imports (Spark, Arrow) come after the handlers, so that Ctrl-C is quiet during them as well.
        from examples.kafka.run import run  # noqa: PLC0415

        return run(sys.argv[1:])
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())

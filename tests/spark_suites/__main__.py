"""`python -m tests.spark_suites`: run Spark's own suites on tables of tidelog, and write the page about them."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.spark_suites.page import is_fault, page
from tests.spark_suites.run import SUITES, outcomes

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "spark-suites.md"
_SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_suites", description="Spark's own suites.")
    parser.add_argument("suites", nargs="*", default=[*SUITES], help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--only", action="append", default=[], help="run the tests with these words in their names")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}")
    folder = Path(tempfile.mkdtemp(prefix="spark-suites-"))
    try:
        found = outcomes(folder, options.suites, options.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for each in filter(is_fault, found):
        lines = "\n".join(f"{each.why}\n{each.trace}".splitlines()[:_SHOWN])
        print(f"{each.suite}: {each.test}\n{lines}\n")
    print(f"{len(found)} tests, {sum(map(is_fault, found))} failed")
    if options.suites == [*SUITES] and not options.only:
        PAGE.write_text(page(found))
        print(f"written: {PAGE}")
    return 1 if any(map(is_fault, found)) else 0


if __name__ == "__main__":
    sys.exit(main())

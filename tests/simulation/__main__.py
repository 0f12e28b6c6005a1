"""Run seeds, or one of them with its trace.

    python -m tests.simulation [--all] [--with DEFECT] [--seeds N] [--start SEED | --go-on] [--trace] [SEED]

With `--go-on` it begins where the last run with `--go-on` ended, or the last `make nightly`.
With `--all` nothing is left out, not even what is known to fail; with `--with "late puts"` one of those.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation.known_defects import KNOWN_DEFECTS, SWITCHES
from tests.simulation.run import next_seeds, run
from tests.simulation.scenario import drawn


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("seed", nargs="?", type=int, default=os.environ.get("SIM_SEED"))
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SIM_SEEDS", "1000")))
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--go-on", action="store_true", help="begin where the last run with --go-on or nightly ended")
    parser.add_argument("--all", action="store_true", help="leave nothing out, not even known defects")
    parser.add_argument("--with", action="append", dest="included", choices=SWITCHES, default=[])
    parser.add_argument("--trace", action="store_true", help="print the trace even if nothing is wrong")
    given = parser.parse_args()
    known = () if given.all else tuple(name for name in KNOWN_DEFECTS if name not in given.included)
    if given.included:
        known = tuple(name for name in SWITCHES if name not in given.included)
    if given.seed is not None:
        found = run(drawn(int(given.seed), known))
        print(found if found.objections or given.trace else f"{found.scenario}\n\nnothing wrong")
        return 1 if found.objections else 0
    began = time.monotonic()
    checks: Counter[str] = Counter()
    seeds = next_seeds(given.seeds) if given.go_on else range(given.start, given.start + given.seeds)
    for seed in seeds:
        found = run(drawn(seed, known))
        for objection in found.objections[:1]:
            checks[objection.check] += 1
            print(f"SIM_SEED={seed} {objection}"[:300], flush=True)
    took = time.monotonic() - began
    print(f"{given.seeds} seeds in {took:.0f} s; wrong: {dict(checks) or 'nothing'}")
    return 1 if checks else 0


if __name__ == "__main__":
    sys.exit(main())

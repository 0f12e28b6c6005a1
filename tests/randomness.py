"""Randomness of the tests: the same in each run, unless `TESTS_RANDOM=1` asks for new values, as `make nightly` does.

`SIM_SEED=...` repeats a run with the seed that it printed; `--hypothesis-seed=...` does so for Hypothesis.
"""

from __future__ import annotations

import os
import random

from hypothesis import settings

RANDOM = os.environ.get("TESTS_RANDOM") == "1"
# Of a test that does not say how many it needs. `make test-full` and `make nightly` ask for more.
EXAMPLES = int(os.environ.get("TESTS_EXAMPLES", "40"))


def load_hypothesis_profile() -> None:
    # How long an example takes says more about the machine than about the code.
    settings.register_profile("tidelog", max_examples=EXAMPLES, deadline=None, print_blob=True, derandomize=not RANDOM)
    settings.load_profile("tidelog")


def seed() -> int:
    """The seed of a test, printed so that a failure can be repeated."""
    chosen = int(os.environ.get("SIM_SEED") or (random.SystemRandom().randrange(10**9) if RANDOM else 1))
    print(f"SIM_SEED={chosen} repeats this run")
    return chosen

"""Damage anywhere in a log leads to the right rows or a typed error; never to wrong rows, a hang or a crash.

Damage that must be detected, and how:

| damaged | required outcome | detected with |
|---|---|---|
| checkpoints and `.crc` that tidelog wrote | the undamaged rows; a typed error if commits are gone | their seal |
| `_last_checkpoint` | the undamaged rows | it is not read |
| a `.crc` of another writer | the undamaged rows | the checksum before it, and the commit |
| pages of another writer's checkpoint | as for tidelog's | page checksums, which Spark writes |
| files of deletion vectors | a typed error, or the undamaged rows | the CRC-32 of the format |
| commits with broken JSON, without a required field, empty, or missing in the middle | a typed error | |
| commits with lines doubled, dropped or in another order | the rows that a plain reader finds | `naive_reader` |

The format has nothing to detect the following damage with: a changed value, or a renamed optional key, in a commit, a
JSON checkpoint or the parquet footer of a checkpoint without a seal; missing newest commits that no checksum or
checkpoint refers to; a deletion vector file replaced with another of the same size and cardinality. Such a case must
only lead to some rows or a typed error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.log.fuzz import case
from tests.randomness import seed

# Processes, so that a crash in the parquet decoder fails the test instead of ending the run.
WORKERS = 2
# At most this share of the cases may be undecidable, or the fuzzer would prove little.
MAX_UNDECIDABLE = 0.05


@pytest.mark.timeout(400)
@pytest.mark.parametrize("cases", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_damage_gives_the_right_rows_or_a_typed_error(cases: int, tmp_path: Path) -> None:
    share = cases // WORKERS
    chosen = seed()
    outcomes: Counter[str] = Counter()
    with ExitStack() as ended:
        starts = [worker * share for worker in range(WORKERS)]
        workers = [ended.enter_context(_start(chosen, start, start + share, tmp_path)) for start in starts]
        for start, worker in zip(starts, workers, strict=True):
            output, _ = worker.communicate()
            errors = (tmp_path / f"{start}").read_text()
            assert worker.returncode == 0, f"SIM_SEED={chosen}: exit code {worker.returncode}: {errors}"
            outcomes.update(json.loads(output))
    assert outcomes.total() == cases
    assert {"original", "typed error", "another log"} <= outcomes.keys()
    undecidable = outcomes["another value"] + outcomes["another writer's checkpoint"]
    assert undecidable < cases * MAX_UNDECIDABLE, outcomes


def _start(chosen: int, first: int, end: int, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", case.__name__, str(chosen), str(first), str(end)]
    paths = os.pathsep.join(path for path in sys.path if path)
    with (folder / str(first)).open("w") as errors:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": paths},
        )

"""The simulation finds nothing, apart from what is known; it is the same in each run; and it can fail."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.log.support import Clock
from tests.simulation import run as run_module
from tests.simulation.known_defects import KNOWN_DEFECTS, SWITCHES
from tests.simulation.mutations import MUTATIONS, Mutation, objection
from tests.simulation.named import Named
from tests.simulation.named_seeds import NAMED
from tests.simulation.run import Run, next_seeds, run
from tests.simulation.scenario import drawn

SEEDS = 1_000
NIGHTLY_SEEDS = 100_000
# So many tests share the seeds, each of which takes a few seconds. The lanes run so many of them.
_CHUNKS = 40
_FAST_CHUNKS = 4
_MAIN_CHUNKS = 5
_FULL_CHUNKS = 8
_WITHIN_SEEDS = 300


def require_nothing_wrong(found: Run) -> None:
    assert not found.objections, f"\n{found}\n\nSIM_SEED={found.scenario.seed} make sim repeats this run"


@pytest.mark.parametrize(
    "chunk",
    [
        *range(_FAST_CHUNKS),
        *(pytest.param(chunk, marks=pytest.mark.simulation) for chunk in range(_FAST_CHUNKS, _MAIN_CHUNKS)),
        *(
            pytest.param(chunk, marks=[pytest.mark.simulation, pytest.mark.full])
            for chunk in range(_MAIN_CHUNKS, _FULL_CHUNKS)
        ),
        *(
            pytest.param(chunk, marks=[pytest.mark.simulation, pytest.mark.nightly])
            for chunk in range(_FULL_CHUNKS, _CHUNKS)
        ),
    ],
)
def test_seeds(chunk: int) -> None:
    size = SEEDS // _CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        require_nothing_wrong(run(drawn(seed)))


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_many_seeds() -> None:
    """Seeds that no night had before. One that finds something is printed, and the others are run all the same."""
    runs = ((seed, run(drawn(seed)).objections) for seed in next_seeds(NIGHTLY_SEEDS))
    found = [f"SIM_SEED={seed} make sim: {objections[0]}" for seed, objections in runs if objections]
    assert not found, "\n".join(found)


def test_the_seeds_of_a_night_follow_those_of_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "build" / "next-seed"
    monkeypatch.setattr(run_module, "REAL_SYSTEM", Clock(20_000 * 86_400_000 + 12_345))
    first = 20_000_000_000
    assert list(next_seeds(3, path)) == [first, first + 1, first + 2]
    assert list(next_seeds(2, path)) == [first + 3, first + 4]
    seeds = next_seeds(10, path)
    assert [next(seeds), next(seeds)] == [first + 5, first + 6]
    seeds.close()  # it was stopped amid a seed, which is run again
    assert next(next_seeds(1, path)) == first + 6


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.name)
def test_what_was_found_once(request: pytest.FixtureRequest, named: Named) -> None:
    if named.defect in KNOWN_DEFECTS:
        reason = f"{SWITCHES[named.defect].rule}: {named.story}"
        request.applymarker(pytest.mark.xfail(raises=AssertionError, reason=reason, strict=True))
    require_nothing_wrong(run(named.scenario))


# --- the same seed gives the same trace ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_a_seed_gives_the_same_trace_again(seed: int) -> None:
    assert run(drawn(seed, ())).trace == run(drawn(seed, ())).trace


def test_a_seed_gives_the_same_trace_in_another_process() -> None:
    """Text has another hash in each process, so the order of a set must not matter."""
    program = (
        "import zlib\n"
        "from tests.simulation.run import run\n"
        "from tests.simulation.scenario import drawn\n"
        "print([zlib.crc32(str(run(drawn(seed, ()))).encode()) for seed in range(6)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    other = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert other.strip() == str([zlib.crc32(str(run(drawn(seed, ()))).encode()) for seed in range(6)])


def test_another_seed_gives_another_trace() -> None:
    assert run(drawn(1)).trace != run(drawn(2)).trace


# --- the simulation can fail -----------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    assert objection(mutation, _WITHIN_SEEDS), f"no seed below {_WITHIN_SEEDS} objects"

"""A case of the fuzzer: a table, seeded damage, and the check of what a reader finds.

As a program (`python -m tests.log.fuzz.case SEED FIRST END`), it runs cases and prints the number of each one before it
starts, so that a crash of the process can be attributed. It stops at the first failing case.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pyarrow as pa

from tests.log import naive_reader
from tests.log.fuzz import mutations, small_tables
from tests.log.fuzz.small_tables import Damageable, store_of
from tidelog.log import Table
from tidelog.log.errors import TidelogError, UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load

# CPU time, so that a busy machine does not look like a hang.
CASE_SECONDS = 20
# How much a case may increase the peak memory use; the tables have a few kilobytes.
CASE_MIB = 300
_SWAPS, _DELETES, _REFRESHES = 0.06, 0.04, 0.25


@dataclass(frozen=True)
class Reading:
    """What a reader found: the rows as text, and the versions with their times, newest first."""

    rows: Counter[str]
    history: list[tuple[int, str]]


@dataclass
class Case:
    """A table and its damaged files."""

    number: int
    table: Damageable
    files: dict[str, bytes]
    # The version at which a reader is already open when the damage happens; None: it opens the damaged table.
    base: int | None = None
    steps: list[str] = field(default_factory=list)

    @property
    def changed(self) -> set[str]:
        """The paths whose files have changed or are gone."""
        return {path for path in self.table.files if self.files.get(path) != self.table.files[path]}

    @property
    def seen(self) -> dict[str, bytes]:
        """The files as the reader sees them: an open reader does not read old commits again if its own stands."""
        if self.base is None or not self._has_commit(self.base):
            return self.files
        known = {filenames.commit_path(version) for version in range(self.base + 1)}
        return self.files | {path: content for path, content in self.table.files.items() if path in known}

    def _has_commit(self, version: int) -> bool:
        """Whether the commit of a version is still the same one, by its id in the checksum or in the commit."""
        path, checksum = filenames.commit_path(version), filenames.checksum_path(version)
        own = _commit_id(self.table.files[path])
        if own is not None and _commit_id(self.files.get(checksum, b"")) == own:
            return path in self.files
        return path in self.files and _commit_id(self.files[path]) == own


class WrongError(AssertionError):
    """The reader returned neither the right rows nor a typed error."""


def make_case(seed: int, number: int, tables: list[Damageable]) -> Case:
    rng = random.Random(f"{seed} {number}")
    # Reading a checkpoint with many columns takes by far the longest.
    table = rng.choices(tables, [1 if table.name.startswith(("in parts", "v2 parquet")) else 3 for table in tables])[0]
    case = Case(number, table, dict(table.files))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _damage(rng, case)
    if rng.random() < _REFRESHES:
        newest = max(version for version in range(10) if filenames.commit_path(version) in table.files)
        case.base = newest - rng.randint(0, 1)
    return case


def _damage(rng: random.Random, case: Case) -> None:
    targets = sorted(path for path in case.files if path.startswith("_delta_log/") or path.endswith(".bin"))
    if not targets:
        return
    # Damage each kind of file equally often, although most files are commits.
    kind = rng.choice(sorted({_kind(path) for path in targets}))
    path = rng.choice([path for path in targets if _kind(path) == kind])
    chance = rng.random()
    if chance < _SWAPS:
        other = rng.choice([other for other in targets if _kind(other) == kind])
        case.files[path], case.files[other] = case.files[other], case.files[path]
        case.steps.append(f"swap {path} and {other}")
    elif chance < _SWAPS + _DELETES:
        del case.files[path]
        case.steps.append(f"delete {path}")
    else:
        is_json = kind in ("commit", "checksum", "pointer", "manifest")
        mutation = rng.choice(mutations.JSON if is_json else mutations.BINARY)
        case.files[path] = mutation(rng, case.files[path])
        case.steps.append(f"{mutation.__name__} {path}")


def _kind(path: str) -> str:
    """Kind of file: commit, checksum, pointer, manifest (JSON checkpoint), checkpoint (parquet) or vector."""
    name = path.rpartition("/")[2]
    if name.endswith(".bin"):
        return "vector"
    if name == "_last_checkpoint":
        return "pointer"
    if name.endswith(".crc"):
        return "checksum"
    if name.endswith(".parquet"):
        return "checkpoint"
    return "manifest" if ".checkpoint." in name else "commit"


# --- reading ---------------------------------------------------------------------------------------------------------


def read(files: dict[str, bytes]) -> Reading:
    store_of(files)
    return _reading(Table.open("memory://fuzz"))


def read_by_refresh(files: dict[str, bytes], original: dict[str, bytes], version: int) -> Reading:
    """Open the undamaged table at `version`, then damage it and refresh."""
    store = store_of(original)
    state = load(store, version)
    state.files()
    table = Table(store, state)
    times = {path: entry[1] for path, entry in store._files.items()}
    store._files.clear()
    store._files.update({path: (content, times[path]) for path, content in files.items()})
    return _reading(table.refresh())


def _reading(table: Table) -> Reading:
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    history = [(record.version, record.timestamp.isoformat()) for record in table.history()]
    _ = table.at().num_files, table.time_version, table.transactions
    return Reading(Counter(repr(list(row.values())) for row in rows), history)


def _commit_id(content: bytes) -> object:
    """The id of a commit, which its own file and the version's checksum have; None if there is none."""
    try:
        lines = naive_reader.lines(content)
    except naive_reader.InvalidLogError:
        return None
    infos = [line.get("commitInfo", line) for line in lines]
    return next((info["txnId"] for info in infos if isinstance(info, dict) and "txnId" in info), None)


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(case: Case, found: Reading | TidelogError, original: Reading) -> str:
    """Name the outcome. Raises WrongError; test_fuzz says which outcomes are right."""
    kinds = {_kind(path) for path in case.changed}
    if isinstance(found, TidelogError):
        # A manifest has no checksum, so damage to its list of features cannot be detected.
        unknown = isinstance(found, UnsupportedFeatureError) and "manifest" in kinds
        if _must_be_read(case) and not unknown:
            raise WrongError(f"the log is intact, but reading it raised {found!r}")
        return "typed error"
    versions, all_versions = [[version for version, _ in reading.history] for reading in (found, original)]
    # The history ends at a missing commit, even if a checkpoint contains its actions.
    if found.rows == original.rows and versions == all_versions[: len(versions)] and versions:
        return "original"
    if not case.table.sealed and kinds & {"manifest", "checkpoint"}:
        return "another writer's checkpoint"
    if "commit" in kinds:
        return _judge_commits(case, found)
    raise WrongError(f"read {sum(found.rows.values())} of {sum(original.rows.values())} rows, {found.history}")


def _must_be_read(case: Case) -> bool:
    """Whether only dispensable files are damaged, or the damage does not change the meaning of the commits."""
    if not case.table.complete or any(_kind(path) == "vector" for path in case.changed):
        return False
    try:
        return naive_reader.actions(case.files) == naive_reader.actions(case.table.files)
    except naive_reader.InvalidLogError:
        return False


def _judge_commits(case: Case, found: Reading) -> str:
    """Damaged commits can form another valid log. Then the reader must find the same rows as the naive reader."""
    if any("checkpoint." in path for path in case.table.files):
        return _judge_tail(case)
    files = case.seen
    try:
        now = naive_reader.actions(files)
    except naive_reader.InvalidLogError as error:
        raise WrongError(f"the log is broken ({error}), but was read") from error
    if _heads(now) != _heads(naive_reader.actions(case.table.files)) or any(len(line) != 1 for c in now for line in c):
        return "another value"
    try:
        rows = naive_reader.rows(files)
    except Exception:  # noqa: BLE001 - an invalid value, which the naive reader does not check for
        return "another value"
    if rows != found.rows:
        raise WrongError(f"read {sum(found.rows.values())} rows, but the log has {sum(rows.values())}")
    return "another log"


def _judge_tail(case: Case) -> str:
    """The naive reader cannot read checkpoints, so only check that a broken line was detected."""
    seen = case.seen
    newest = max(path for path in seen if _kind(path) == "commit")
    for path in case.changed:
        if _kind(path) == "commit" and filenames.commit_path(small_tables.AT) < path <= newest:
            try:
                naive_reader.lines(seen.get(path, b""))
            except naive_reader.InvalidLogError as error:
                raise WrongError(f"{path} is broken ({error}), but was read") from error
    return "another value"


def _heads(commits: list[list[dict[str, Any]]]) -> list[Any]:
    return [line[key] for lines in commits for line in lines for key in line if key in ("metaData", "protocol")]


# --- running ---------------------------------------------------------------------------------------------------------


def run(seed: int, first: int, end: int) -> Counter[str]:
    """Run the cases and count their outcomes. Raises AssertionError, which names the first failing case."""
    tables = small_tables.build()
    originals = {table.name: read(table.files) for table in tables}
    outcomes: Counter[str] = Counter()
    for number in range(first, end):
        os.pwrite(2, f"case {number:9}\n".encode(), 0)
        case = make_case(seed, number, tables)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)
        try:
            outcomes[judge(case, _attempt(case), originals[case.table.name])] += 1
        except Exception as error:
            raise AssertionError(
                f"repeat with SIM_SEED={seed} case {number}: {case.table.name}: {case.steps}: {error!r}"
            ) from error
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        assert grown < CASE_MIB, f"SIM_SEED={seed} case {number}: {case.steps}: used {grown} MiB"
    return outcomes


def _attempt(case: Case) -> Reading | TidelogError:
    try:
        if case.base is not None:
            return read_by_refresh(case.files, case.table.files, case.base)
        return read(case.files)
    except TidelogError as error:
        return error


def _too_long(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise TimeoutError(f"more than {CASE_SECONDS} s")


def main(seed: str, first: str, end: str) -> None:
    pa.set_cpu_count(1)
    signal.signal(signal.SIGVTALRM, _too_long)
    print(json.dumps(run(int(seed), int(first), int(end))))


if __name__ == "__main__":
    main(*sys.argv[1:])

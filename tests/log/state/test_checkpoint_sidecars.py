"""Checkpoints with sidecars hold the same state as the commits, and use again what has not changed."""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.state.histories import HISTORIES, Step, build, logical, removes_of
from tests.log.support import START_MS, add, memory_store, metadata, put_commit, put_vector, remove
from tidelog.log import Table, predicate
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, Protocol, Sidecar
from tidelog.log.pruning import file_pruning
from tidelog.log.state import checkpoint_reader, checkpoint_sidecars, checkpoint_writer, checkpointing, files
from tidelog.log.state.files import FileState
from tidelog.log.state.loader import load, load_files
from tidelog.log.state.segment import CheckpointFiles, Segment, list_checkpoints, list_segment
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import System

V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "v2Checkpoint"),
    writer_features=("appendOnly", "deletionVectors", "inCommitTimestamp", "invariants", "v2Checkpoint"),
)
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.int64())])
FILES, PARTITIONS = 200, 20


class Clock(System):
    """A clock that stands still."""

    def now_ms(self) -> int:
        return START_MS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        use_few_files(patch)
        yield


def use_few_files(patch: pytest.MonkeyPatch) -> None:
    for module in (checkpoint_writer, checkpoint_sidecars):
        patch.setattr(module, "GROUPED_FILES", 10)


def file_of(number: int, **more: Any) -> AddFile:
    return add(f"part-{number}", partition_values={"p": str(number % PARTITIONS)}, size=number + 1, **more)


def checkpoint(store: Store) -> None:
    checkpointing.checkpoint(store, load(store), Clock())


@pytest.fixture
def store() -> MemoryStore:
    """A table of so many files in so many partitions, with a checkpoint."""
    made = memory_store()
    put_commit(made, 0, metadata(SCHEMA, partition_columns=("p",)), V2)
    put_commit(made, 1, *map(file_of, range(FILES)))
    checkpoint(made)
    return made


def sidecars(store: Store, version: int) -> list[Sidecar]:
    (found,) = [each for each in checkpoint_files(store) if each.version == version]
    return checkpoint_reader.read_sidecars(store, found)


def checkpoint_files(store: Store) -> list[CheckpointFiles]:
    return list_checkpoints(store)


def from_commits(store: Store, version: int) -> FileState:
    state, _ = load_files(store, Segment(version, None, (), 0))
    return state


def from_checkpoint(store: Store, version: int) -> FileState:
    segment = list_segment(store, version)
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == version
    return checkpoint_reader.read_files(store, segment.checkpoint)


def plain(state: FileState) -> tuple[dict[Any, Any], dict[Any, Any]]:
    adds = files.to_adds(state.adds)
    removes = removes_of(state.removes)
    found = {logical(each): each for each in adds}, {logical(each): each for each in removes}
    assert (len(found[0]), len(found[1])) == (len(adds), len(removes)), "a file is there twice"
    return found


def in_each_partition(state: FileState) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in files.to_adds(state.adds):
        found.setdefault(str(each.partition_values), []).append(each.path)
    return found


def require_same(store: Store, version: int) -> None:
    """The checkpoint holds what the commits lead to; its tombstones lack what only older checkpoints need."""
    expected, found = from_commits(store, version), from_checkpoint(store, version)
    assert plain(found) == plain(expected)
    assert in_each_partition(found) == in_each_partition(expected)
    head = load(store).head
    assert head.totals == checkpoint_writer.totals_of(expected)


# --- the same state ---------------------------------------------------------------------------------------------------


@given(HISTORIES, st.sets(st.integers(1, 12)))
def test_any_history(steps: Sequence[Sequence[Step]], versions: set[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (checkpoint_writer, checkpoint_sidecars):
            patch.setattr(module, "GROUPED_FILES", 1)
        store = memory_store()
        history = build(steps)
        for version, actions in enumerate(history.commits):
            # Any other protocol has no sidecars, or is one that tidelog does not write.
            changed = [V2 if isinstance(action, Protocol) else action for action in actions]
            put_commit(store, version, *changed)
            if version in versions:
                checkpoint(store)
                found = from_checkpoint(store, version)
                expected = from_commits(store, version)
                assert plain(found) == plain(expected)
                assert found.adds["path"].to_pylist() == expected.adds["path"].to_pylist()
                replayed = load(store).replayed()
                assert replayed.totals == history.states[version].totals


def test_files_come_go_and_change_their_vectors(store: MemoryStore) -> None:
    first, second = (put_vector(store, [row], f"{row}.bin") for row in (1, 2))
    put_commit(store, 2, *map(file_of, range(FILES, FILES + 7)), remove(file_of(5)))
    checkpoint(store)
    require_same(store, 2)
    put_commit(store, 3, remove(file_of(6)), file_of(6, deletion_vector=first), remove(file_of(FILES + 1)))
    put_commit(store, 4, remove(file_of(6, deletion_vector=first)), file_of(6, deletion_vector=second))
    put_commit(store, 5, file_of(26, stats="{}", data_change=False))
    checkpoint(store)
    require_same(store, 5)
    # The logical file that the second commit removed comes back, while its path is live.
    put_commit(store, 6, remove(file_of(6, deletion_vector=second)), file_of(6))
    checkpoint(store)
    require_same(store, 6)
    assert file_of(6).key in plain(from_checkpoint(store, 6))[0]


def test_a_file_that_comes_back_goes_to_the_end(store: MemoryStore) -> None:
    put_commit(store, 2, remove(file_of(5)), *map(file_of, range(FILES, FILES + 6)))
    put_commit(store, 3, file_of(5))
    checkpoint(store)
    require_same(store, 3)
    put_commit(store, 4, remove(file_of(25)))
    checkpoint(store)
    put_commit(store, 5, file_of(25))
    checkpoint(store)
    require_same(store, 5)


def test_expired_tombstones_are_left_out(store: MemoryStore) -> None:
    put_commit(store, 2, remove(file_of(5)), remove(file_of(6), deletion_timestamp=1))
    checkpoint(store)
    assert list(plain(from_checkpoint(store, 2))[1]) == [file_of(5).key]


def test_all_files_of_a_sidecar_go(store: MemoryStore) -> None:
    put_commit(store, 2, *(remove(file_of(number)) for number in range(0, FILES, PARTITIONS)))
    before = len(sidecars(store, 1))
    checkpoint(store)
    require_same(store, 2)
    assert len(sidecars(store, 2)) == before  # one less, and one of tombstones


# --- what is used again -----------------------------------------------------------------------------------------------


def test_only_what_has_changed_is_written(store: MemoryStore) -> None:
    old = [each.path for each in sidecars(store, 1)]
    put_commit(store, 2, file_of(FILES), remove(file_of(5)))
    checkpoint(store)
    new = [each.path for each in sidecars(store, 2)]
    assert len(set(old) - set(new)) == 1, "the one with the removed file"
    assert len(set(new) - set(old)) == 3, "that one, the new file, and the tombstone"
    assert [path for path in new if path in old] == [path for path in old if path in new]


@pytest.mark.full
def test_small_sidecars_are_merged_and_all_are_grouped_again_in_time(store: MemoryStore) -> None:
    most = 0
    seen = []
    for version in range(2, 100):
        put_commit(store, version, file_of(FILES + version))
        checkpoint(store)
        require_same(store, version)
        names = {each.path for each in sidecars(store, version)}
        most = max(most, len(names))
        seen.append(names)
    assert most <= 2 + (FILES + 100) // 10 + 12
    assert any(not (before & after) for before, after in itertools.pairwise(seen)), "never written anew"


def test_a_predicate_reads_a_few_sidecars(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put_commit(store, 2, file_of(FILES), remove(file_of(25)))
    checkpoint(store)
    read: list[str] = []
    inner = checkpoint_reader.read_sidecar

    def counted(store: Store, sidecar: Sidecar, version: int) -> FileState:
        read.append(sidecar.path)
        return inner(store, sidecar, version)

    monkeypatch.setattr(checkpoint_reader, "read_sidecar", counted)
    state = load(store)
    tree = predicate.parse("p = 5 AND n IS NULL", SCHEMA)
    found = file_pruning.prune_state(state, tree, SCHEMA, state.head.metadata).files["path"].to_pylist()
    assert found == [f"part-{number}" for number in range(5, FILES, PARTITIONS) if number != 25]
    assert 0 < len(read) <= 3


def test_a_small_table_has_one_file() -> None:
    store = memory_store()
    put_commit(store, 0, metadata(SCHEMA, partition_columns=("p",)), V2)
    put_commit(store, 1, *map(file_of, range(8)))
    checkpoint(store)
    assert not store.list(filenames.SIDECAR_FOLDER)
    assert plain(from_checkpoint(store, 1)) == plain(from_commits(store, 1))


def test_a_table_without_the_feature_has_one_file() -> None:
    store = memory_store()
    table = Table.create(store.url, SCHEMA, partition_by=["p"])
    put_commit(store, 1, *map(file_of, range(FILES)))
    table.refresh().checkpoint()
    assert not store.list(filenames.SIDECAR_FOLDER)


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["lost", "changed", "cut", "unsealed"])
def test_without_a_sidecar_all_are_written_anew(store: MemoryStore, damage: str) -> None:
    path = f"{filenames.SIDECAR_FOLDER}/{sidecars(store, 1)[3].path}"
    content = bytearray(store.read(path))
    content[200] ^= 1
    contents = {
        "changed": bytes(content),
        "cut": bytes(content[:100]),
        "unsealed": store.read(path).replace(b"tidelog-crc32-parts:", b"tidelog-crc32-trap:_"),
    }
    if damage == "lost":
        store.delete(path)
    else:
        store.replace(path, contents[damage])
    put_commit(store, 2, file_of(FILES))
    checkpoint(store)
    require_same(store, 2)
    assert {each.path for each in sidecars(store, 1)}.isdisjoint(each.path for each in sidecars(store, 2))


def test_a_sidecar_that_goes_meanwhile_takes_the_checkpoint_with_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up deletes the sidecar while the process is paused; then the checkpoint writes all files again."""
    gone = f"{filenames.SIDECAR_FOLDER}/{sidecars(store, 1)[3].path}"
    put = MemoryStore.put_if_absent

    def put_late(self: MemoryStore, path: str, *given: Any, **more: Any) -> None:
        if path == filenames.checkpoint_path(2) and gone.rpartition("/")[2] in {
            status.name for status in store.list(filenames.SIDECAR_FOLDER)
        }:
            store.delete(gone)
        put(self, path, *given, **more)

    monkeypatch.setattr(MemoryStore, "put_if_absent", put_late)
    put_commit(store, 2, file_of(FILES))
    checkpoint(store)
    require_same(store, 2)


def test_a_second_checkpoint_of_a_version_writes_nothing(store: MemoryStore) -> None:
    put_commit(store, 2, file_of(FILES))
    checkpoint(store)
    before = store.list(filenames.SIDECAR_FOLDER)
    checkpoint(store)
    assert store.list(filenames.SIDECAR_FOLDER) == before


def test_on_a_disk(tmp_path: Path) -> None:
    """Through the public API, with real files."""
    path = str(tmp_path / "table")
    properties = {"delta.feature.v2Checkpoint": "supported", "tidelog.maxTransactionTime": "0 seconds"}
    table = Table.create(path, SCHEMA, partition_by=["p"], properties=properties)
    for number in range(30):
        table.insert(pa.table({"n": [number], "p": [number % 3]}))
    table.checkpoint()
    table.insert(pa.table({"n": [30], "p": [0]}))
    table.delete("n = 3")
    table.checkpoint()
    log, day = Path(path, "_delta_log"), 24 * 3600
    unnamed = log / "_sidecars" / "00000000-0000-4000-8000-000000000000.parquet"
    unnamed.write_bytes(b"")
    for file in (*log.iterdir(), *(log / "_sidecars").iterdir()):
        os.utime(file, (file.stat().st_mtime - 3 * day,) * 2)
    before = {file.name for file in (log / "_sidecars").iterdir()}
    Table.open(path).expire(older_than=dt.timedelta(0))
    assert not unnamed.exists()
    assert not (log / f"{30:020}.json").exists(), "only the checkpoint has the first files"
    named = {sidecar.path for sidecar in sidecars(table.store, 32)}
    assert named <= {file.name for file in (log / "_sidecars").iterdir()} < before
    again = Table.open(path)
    assert sorted(again.scan().to_arrow()["n"].to_pylist()) == [n for n in range(31) if n != 3]
    assert again.scan("p = 0").to_arrow()["n"].to_pylist() == [n for n in range(0, 31, 3) if n != 3]

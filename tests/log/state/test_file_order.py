"""Live files are in commit order, however a version is loaded. All files here have the same modification time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.state.foreign_checkpoints import KINDS, classic_rows, parquet
from tests.log.support import PROTOCOL, START_MS, add, memory_store, metadata, put_commit, put_vector, remove
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.state import checkpoint_writer, checkpointing, files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.files import FileState
from tidelog.log.state.loader import load, load_files
from tidelog.log.state.segment import list_segment
from tidelog.log.state.version_checksum import checksum_bytes
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM

LAST = 7
# The live files of every version from 1 on.
EXPECTED = {
    1: ["d", "a", "c"],
    2: ["d", "a", "c", "b"],
    3: ["d", "a", "c", "b"],
    4: ["d", "a", "b"],
    5: ["d", "a", "b", "c"],
    6: ["d", "a", "b", "c"],
    7: ["d", "a", "b", "c", "e"],
}


@pytest.fixture
def store() -> Store:
    store = memory_store()
    first, second = (put_vector(store, [row], f"{row}.bin") for row in (1, 2))
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("d"), add("a"), add("c"))
    put_commit(store, 2, add("b"))
    put_commit(store, 3, add("a", deletion_vector=first), remove(add("a")))
    put_commit(store, 4, remove(add("c")))
    put_commit(store, 5, add("c"))
    changed = add("a", deletion_vector=first)
    put_commit(store, 6, add("d", stats="{}", data_change=False), remove(changed), add("a", deletion_vector=second))
    put_commit(store, 7, add("e"))
    return store


def paths(state: FileState) -> list[str]:
    names: list[str] = state.adds["path"].to_pylist()
    return names


def test_replay(store: Store) -> None:
    for version, expected in EXPECTED.items():
        assert paths(load(store, version).files()) == expected
        assert paths(load_files(store, list_segment(store, version))[0]) == expected
    (vector,) = (file.deletion_vector for file in files.to_adds(load(store).files().adds) if file.path == "a")
    assert vector is not None
    assert vector.path_or_inline_dv.endswith("2.bin"), "the newest add counts"


@pytest.mark.parametrize("load_first", [False, True])
@pytest.mark.parametrize("step", [1, 2, LAST])
@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_advancing(store: Store, start: int, step: int, load_first: bool) -> None:
    state = load(store, start)
    while state.head.version < LAST:
        if load_first:
            state.files()
        following = range(state.head.version + 1, min(state.head.version + step, LAST) + 1)
        state = state.advance([read_commit(store, version) for version in following])
    assert paths(state.files()) == EXPECTED[LAST]


@pytest.mark.parametrize("at", [0, *EXPECTED])
def test_a_checkpoint_and_the_commits_after_it(store: Store, at: int) -> None:
    Table(store, load(store, at)).checkpoint()
    for version in range(max(at, 1), LAST + 1):
        assert paths(load(store, version).files()) == EXPECTED[version]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", EXPECTED)
def test_checkpoints_of_every_kind(store: Store, kind: str, at: int) -> None:
    KINDS[kind](store, at)
    for version in range(at, LAST + 1):
        assert paths(load(store, version).files()) == EXPECTED[version]


def test_a_checkpoint_with_many_row_groups(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "_ROW_GROUP_ROWS", 1)
    names = [f"{number * 7919 % 500}" for number in range(500)]
    put_commit(store, LAST + 1, *map(add, names))
    Table(store, load(store)).checkpoint()
    assert paths(load(store).files()) == [*EXPECTED[LAST], *names]


def test_a_checkpoint_without_its_expired_tombstones(store: Store) -> None:
    state = load(store, 4)
    # The tombstones are from the year 2023.
    assert state.files().removes.num_rows > 0
    checkpointing.checkpoint(store, state, REAL_SYSTEM)
    assert load(store, 4).files().removes.num_rows == 0
    assert paths(load(store).files()) == EXPECTED[LAST]


def test_a_checkpoint_in_another_order_keeps_its_own(store: Store) -> None:
    rows = classic_rows(store, 2)
    store.put_if_absent(filenames.checkpoint_path(2), parquet(rows.take(list(reversed(range(rows.num_rows))))))
    assert paths(load(store, 2).files()) == ["b", "c", "a", "d"]
    assert paths(load(store).files()) == ["b", "a", "d", "c", "e"]


def test_a_version_checksum_changes_nothing(store: Store) -> None:
    for version in range(LAST + 1):
        head = load(store, version).head
        content = checksum_bytes(head, txn_id="t", in_commit_timestamp_ms=START_MS + version)
        if content is not None:
            store.put_if_absent(filenames.checksum_path(version), content)
    assert paths(load(store).files()) == EXPECTED[LAST]


def _one_row_per_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "_TABLE_ROWS", 1)


def _one_chunk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "_MAX_CHUNKS", 0)


def _no_slices(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "_MAX_SLICED_ROWS", -1)


@pytest.mark.parametrize("how", [_one_row_per_table, _one_chunk, _no_slices])
@pytest.mark.parametrize("at", [None, 1, 4])
def test_sizes_that_choose_another_way_to_copy(
    store: Store, how: Callable[[pytest.MonkeyPatch], None], at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    how(monkeypatch)
    if at is not None:
        Table(store, load(store, at)).checkpoint()
    assert paths(load(store).files()) == EXPECTED[LAST]


def test_spellings_of_one_path_are_the_same_file() -> None:
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("file:///data/a"), add("b"))
    put_commit(store, 2, add("/data/a", stats="{}", data_change=False))
    assert paths(load(store).files()) == ["/data/a", "b"]


def test_two_live_files_with_one_path_are_both_kept(store: Store) -> None:
    """A log that breaks the protocol: the second vector is added without removing the first."""
    third = put_vector(store, [3], "3.bin")
    put_commit(store, LAST + 1, add("a", deletion_vector=third))
    put_commit(store, LAST + 2, add("a"))
    found = files.to_adds(load(store).files().adds)
    assert [file.path for file in found] == [*EXPECTED[LAST], "a", "a"]
    assert len({file.key for file in found}) == len(found)

"""Replay random histories and compare with the naive model, with and without checkpoints and checksums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.state.histories import HISTORIES, Expected, History, Kind, build, removes_of
from tests.log.support import PROTOCOL, add, memory_store, metadata, put_commit
from tidelog.log.format import filenames
from tidelog.log.format.actions import SetTransaction
from tidelog.log.state import checkpoint_writer, files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import with_totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.version_checksum import checksum_bytes
from tidelog.log.storage import Store


def check(state: LogState, expected: Expected) -> None:
    head = state.head
    assert head.version == expected.version
    assert head.timestamp_ms == expected.timestamp_ms
    assert head.protocol == expected.protocol
    assert head.metadata == expected.metadata
    assert head.transactions == expected.transactions
    assert head.domains == expected.domains
    # Both may be unknown, but must not be wrong.
    assert head.totals in (None, expected.totals)
    assert head.time_version_ms in (None, expected.time_version_ms)
    found = state.files()
    assert files.to_adds(found.adds) == list(expected.live.values())
    assert removes_of(found.removes) == list(expected.tombstones.values())


def put_checkpoint(store: Store, version: int) -> None:
    state = load(store, version)
    found = state.files()
    checkpoint_writer.write_checkpoint(store, with_totals(state.head, checkpoint_writer.totals_of(found)), found)


def put_checksum(store: Store, version: int) -> None:
    head = load(store, version).head
    content = checksum_bytes(head, txn_id="t", in_commit_timestamp_ms=head.timestamp_ms)
    if content is not None:
        store.put_if_absent(filenames.checksum_path(version), content)


def put_shortcuts(store: Store, history: History, choices: list[tuple[str, int]]) -> None:
    """Write checkpoints and checksums of these versions, each based on the existing ones."""
    for kind, number in choices:
        version = number % len(history.commits)
        path = filenames.checkpoint_path(version) if kind == "checkpoint" else filenames.checksum_path(version)
        if path not in {f"{filenames.LOG_FOLDER}/{status.name}" for status in store.list(filenames.LOG_FOLDER)}:
            (put_checkpoint if kind == "checkpoint" else put_checksum)(store, version)


_SHORTCUTS = st.lists(st.tuples(st.sampled_from(["checkpoint", "checksum"]), st.integers(0, 50)), max_size=4)


@settings(max_examples=80, deadline=None)
@given(steps=HISTORIES, shortcuts=_SHORTCUTS, checked=st.sets(st.integers(0, 50), max_size=3))
def test_every_version_loads_as_in_the_model(steps: Any, shortcuts: list[tuple[str, int]], checked: set[int]) -> None:
    history, store = build(steps), memory_store()
    history.put(store)
    put_shortcuts(store, history, shortcuts)
    for number in checked:
        expected = history.states[number % len(history.states)]
        check(load(store, expected.version), expected)
    check(load(store), history.states[-1])


@settings(max_examples=50, deadline=None)
@given(
    steps=HISTORIES,
    shortcuts=_SHORTCUTS,
    start=st.integers(0, 50),
    sizes=st.lists(st.integers(1, 4)),
    load_files=st.booleans(),
)
def test_advancing_a_state_gives_the_same_as_loading_it(
    steps: Any, shortcuts: list[tuple[str, int]], start: int, sizes: list[int], load_files: bool
) -> None:
    history, store = build(steps), memory_store()
    history.put(store)
    put_shortcuts(store, history, shortcuts)
    state = load(store, start % len(history.commits))
    older: list[LogState] = []
    while state.head.version + 1 < len(history.commits):
        size = sizes.pop() if sizes else 2
        following = range(state.head.version + 1, min(state.head.version + 1 + size, len(history.commits)))
        older.append(state)
        if load_files:
            state.files()
        state = state.advance([read_commit(store, version) for version in following])
    check(state, history.states[-1])
    for before in older:  # advancing a state does not change it
        check(before, history.states[before.head.version])


def test_the_model_reaches_every_kind_of_step() -> None:
    """The generator is useful only if histories contain deletion vectors, tombstones and so on."""
    steps = [[(Kind.ADD, n)] for n in range(4)] + [[(kind, 1), (kind, 2)] for kind in Kind]
    states = build(steps).states
    assert any(key[1] for state in states for key in state.live)
    assert any(state.tombstones for state in states)
    assert any(state.transactions for state in states)
    assert any(state.domains for state in states)
    assert states[-1].metadata != states[0].metadata
    assert states[-1].protocol != states[0].protocol


@pytest.mark.parametrize("checkpoint_first", [False, True])
def test_files_are_available_after_very_many_commits(checkpoint_first: bool) -> None:
    """A state drops pending commits beyond a maximum, and reads the log again when it needs the files."""
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    state = load(store)
    if checkpoint_first:
        put_checkpoint(store, 0)
        state.files()
    for version in range(1, 301):
        put_commit(store, version, add(f"f{version}"), SetTransaction(app_id="a", version=version))
        state = state.advance([read_commit(store, version)])
    assert state.head.transactions["a"].version == 300
    assert [file.path for file in files.to_adds(state.files().adds)] == [f"f{version}" for version in range(1, 301)]


@pytest.mark.parametrize("most", [0, 2, 64])
@given(data=st.data())
def test_rows_are_dropped_alike_by_slicing_and_by_filtering(most: int, data: st.DataObject) -> None:
    table = data.draw(chunked_tables())
    dropped = data.draw(st.sets(st.integers(0, table.num_rows - 1))) if table.num_rows else set()
    kept = [path for row, path in enumerate(table["path"].to_pylist()) if row not in dropped]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_MAX_SLICED_ROWS", most)
        found = files.without_rows(table, np.array(sorted(dropped), dtype=np.int64))
    assert found["path"].to_pylist() == kept
    assert found.schema == table.schema


@pytest.mark.parametrize("way", ["slices", "take", "take overflows"])
@given(data=st.data())
def test_rows_are_rearranged_alike_by_slicing_and_by_take(way: str, data: st.DataObject) -> None:
    table = data.draw(chunked_tables())
    rows = data.draw(st.permutations(range(table.num_rows)))[: data.draw(st.integers(0, table.num_rows))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_MAX_SLICED_ROWS", 64 if way == "slices" else -1)
        if way == "take overflows":
            patch.setattr(pc, "take", overflow)
            patch.setattr(files, "_PART_ROWS", 2)
        found = files.rearranged(table, np.array(rows, dtype=np.int64), files.POOL)
    assert found["path"].to_pylist() == [table["path"][row].as_py() for row in rows]
    assert found.schema == table.schema


@st.composite
def chunked_tables(draw: st.DrawFn) -> pa.Table:
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    pieces = [files.add_table([add(f"{piece}-{row}") for row in range(size)]) for piece, size in enumerate(sizes)]
    return pa.concat_tables(pieces)


TAKE = pc.take


def overflow(table: pa.Table, *given: Any, **more: Any) -> pa.Table:
    """As pyarrow refuses to take rows from a string column that is larger than 2 GiB."""
    if pa.string() in table.schema.types:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")
    return TAKE(table, *given, **more)

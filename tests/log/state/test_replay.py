"""Replay of random histories by the production code against the naive model, whatever shortens the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.state.histories import HISTORIES, Expected, History, Kind, build
from tests.log.support import PROTOCOL, add, memory_store, metadata, put_commit
from tidelog.log.format import filenames
from tidelog.log.format.actions import SetTransaction
from tidelog.log.state import checkpoint, checksum, files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import with_totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store


def check(state: LogState, expected: Expected) -> None:
    head = state.head
    assert head.version == expected.version
    assert head.timestamp_ms == expected.timestamp_ms
    assert head.protocol == expected.protocol
    assert head.metadata == expected.metadata
    assert head.transactions == expected.transactions
    assert head.domains == expected.domains
    # Both may be unknown where the way there was too short to tell; a wrong one is worse than none.
    assert head.totals in (None, expected.totals)
    assert head.time_version_ms in (None, expected.time_version_ms)
    found = state.files()
    assert files.to_adds(found.adds) == list(expected.live.values())
    assert files.to_removes(found.removes) == list(expected.tombstones.values())


def put_checkpoint(store: Store, version: int) -> None:
    state = load(store, version)
    found = state.files()
    checkpoint.write_checkpoint(store, with_totals(state.head, checkpoint.totals_of(found)), found)


def put_checksum(store: Store, version: int) -> None:
    head = load(store, version).head
    content = checksum.to_bytes(head, txn_id="t", in_commit_timestamp_ms=head.timestamp_ms)
    if content is not None:
        store.put_if_absent(filenames.checksum_path(version), content)


def put_shortcuts(store: Store, history: History, choices: list[tuple[str, int]]) -> None:
    """Checkpoints and checksums of these versions, each made on top of those that are there already."""
    for kind, number in choices:
        version = number % len(history.commits)
        path = filenames.checkpoint_path(version) if kind == "checkpoint" else filenames.checksum_path(version)
        if path not in {f"{filenames.LOG_FOLDER}/{status.name}" for status in store.list(filenames.LOG_FOLDER)}:
            (put_checkpoint if kind == "checkpoint" else put_checksum)(store, version)


_SHORTCUTS = st.lists(st.tuples(st.sampled_from(["checkpoint", "checksum"]), st.integers(0, 50)), max_size=4)


@settings(max_examples=80, deadline=None)
@given(steps=HISTORIES, shortcuts=_SHORTCUTS, looked_at=st.sets(st.integers(0, 50), max_size=3))
def test_any_version_loads_as_the_model_has_it(
    steps: Any, shortcuts: list[tuple[str, int]], looked_at: set[int]
) -> None:
    history, store = build(steps), memory_store()
    history.put(store)
    put_shortcuts(store, history, shortcuts)
    for number in looked_at:
        expected = history.states[number % len(history.states)]
        check(load(store, expected.version), expected)
    check(load(store), history.states[-1])


@settings(max_examples=50, deadline=None)
@given(
    steps=HISTORIES,
    shortcuts=_SHORTCUTS,
    start=st.integers(0, 50),
    sizes=st.lists(st.integers(1, 4)),
    look=st.booleans(),
)
def test_a_state_advances_to_what_a_load_finds(
    steps: Any, shortcuts: list[tuple[str, int]], start: int, sizes: list[int], look: bool
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
        if look:
            state.files()
        state = state.advance([read_commit(store, version) for version in following])
    check(state, history.states[-1])
    for before in older:  # a state that others advanced from still says the same
        check(before, history.states[before.head.version])


def test_the_model_reaches_every_kind_of_step() -> None:
    """The generator is only worth something if histories hold live vectors, tombstones and all."""
    steps = [[(Kind.ADD, n)] for n in range(4)] + [[(kind, 1), (kind, 2)] for kind in Kind]
    states = build(steps).states
    assert any(key[1] for state in states for key in state.live)
    assert any(state.tombstones for state in states)
    assert any(state.transactions for state in states)
    assert any(state.domains for state in states)
    assert states[-1].metadata != states[0].metadata
    assert states[-1].protocol != states[0].protocol


@pytest.mark.parametrize("checkpoint_first", [False, True])
def test_a_writer_that_never_looks_at_the_files_still_has_them(checkpoint_first: bool) -> None:
    """More commits than a state holds on to: it forgets them, and reads the log again when it is asked."""
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
def test_rows_are_left_out_alike_by_slices_and_by_a_filter(most: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    pieces = [files.add_table([add(f"{piece}-{row}") for row in range(size)]) for piece, size in enumerate(sizes)]
    table = pa.concat_tables(pieces)
    dropped = data.draw(st.sets(st.integers(0, table.num_rows - 1))) if table.num_rows else set()
    kept = [path for row, path in enumerate(table["path"].to_pylist()) if row not in dropped]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_MAX_SLICES", most)
        found = files._without(table, np.array(sorted(dropped), dtype=np.int64))
    assert found["path"].to_pylist() == kept
    assert found.schema == table.schema

"""Changes of an interval in the mode append: its ends, its columns, and commits that are not inserts."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import (
    NUMBERS,
    START_MS,
    Clock,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    remove,
    reopen,
    stage_compaction,
)
from tidelog.log import Table
from tidelog.log.data.reader import BATCH_ROWS
from tidelog.log.errors import ConfigurationError, HistoryExpiredError, NotAppendOnlyError
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile
from tidelog.log.system import to_datetime

# Versions 3 and 5 are compactions; every other version inserts its own number and ten times that.
COMPACTIONS = (3, 5)
LAST = 7


def at(version: float) -> dt.datetime:
    """The commit time of `version`; a half is a time between two commits."""
    return to_datetime(START_MS + int(version * 1000))


def make_table() -> Table:
    clock = Clock()
    table = new_table(memory_store(), system=clock)
    for version in range(1, LAST + 1):
        clock.ms += 1000
        if version in COMPACTIONS:
            stage_compaction(table).commit()
        else:
            table.insert(numbers([version, 10 * version]))
    return table


TABLE = make_table()


def inserted(after: float, until: float) -> list[dict[str, Any]]:
    return [
        {"n": value, "_commit_version": version, "_commit_timestamp": at(version)}
        for version in range(1, LAST + 1)
        if after < version <= until and version not in COMPACTIONS
        for value in (version, 10 * version)
    ]


@pytest.mark.parametrize("last", [None, LAST])
def test_all_changes(last: int | None) -> None:
    changes = TABLE.changes(mode="append", until=last)
    expected = pa.schema([*NUMBERS, ("_commit_version", pa.int64()), ("_commit_timestamp", pa.timestamp("us", "UTC"))])
    assert changes.schema.equals(expected)
    assert changes.to_arrow().to_pylist() == inserted(-1, LAST)
    assert changes.count() == len(inserted(-1, LAST))
    assert changes.complete_until == at(LAST)


_ENDS = st.integers(0, 2 * LAST).map(lambda half: half / 2)


@given(after=_ENDS, until=_ENDS, after_as=st.sampled_from("vt"), until_as=st.sampled_from("vtx"))
def test_an_interval_excludes_its_start_and_includes_its_end(
    after: float, until: float, after_as: str, until_as: str
) -> None:
    """Each end is an ID version, a time or a string; half a version is a time between two commits."""
    lower: Any = int(after) if after_as == "v" else at(after)
    upper: Any = int(until) if until_as == "v" else at(until)
    if until_as == "x":
        upper = upper.isoformat()
    ends_first = int(until) < int(after) or (after_as == "t" and until_as != "v" and until < after)
    if ends_first:
        with pytest.raises(ConfigurationError, match=re.escape(f"after={lower}, until={upper}")):
            TABLE.changes(mode="append", after=lower, until=upper)
        return
    changes = TABLE.changes(mode="append", after=lower, until=upper)
    assert changes.to_arrow().to_pylist() == inserted(int(after), int(until))
    # A time between two commits is complete until that time, unless it lies after the newest commit.
    assert changes.complete_until == at(int(until) if until_as == "v" else min(until, LAST))


def test_adjacent_intervals_have_all_changes_once() -> None:
    points = [None, 2, at(3.5), 4, at(6), None]
    rows = []
    for after, until in itertools.pairwise(points):
        rows += TABLE.changes(mode="append", after=after, until=until).to_arrow().to_pylist()
    assert rows == inserted(-1, LAST)


def test_changes_do_not_read_compacted_files() -> None:
    table = make_table()
    compacted = [file for file in live_files(table) if not file.data_change]
    assert compacted
    for file in compacted:
        table.store.delete(file.path)
    assert table.changes(mode="append").to_arrow().to_pylist() == inserted(-1, LAST)


def test_a_time_before_the_table_means_its_beginning() -> None:
    assert TABLE.changes(mode="append", after=at(-100), until=1).to_arrow()["n"].to_pylist() == [1, 10]
    assert TABLE.changes(mode="append", until=at(-100)).count() == 0


@pytest.mark.parametrize(("after", "until"), [(4, 2), (at(4), at(2)), (4, at(2)), (at(4), 2), (at(4.7), at(4.3))])
def test_an_interval_that_ends_before_its_start_is_an_error(after: Any, until: Any) -> None:
    with pytest.raises(ConfigurationError, match="ends before it starts") as raised:
        TABLE.changes(after=after, until=until)
    assert f"after={after}, until={until}" in str(raised.value)


@pytest.mark.parametrize("mode", ["append", "cdc"])
def test_an_interval_can_be_empty(mode: str) -> None:
    """Also at the newest version, and between two commits, where version 4 means the time up to version 5."""
    for after, until in ((4, 4), (at(4), 4), (4, at(4.5)), (at(4.5), 4), (LAST, None), (at(LAST), None), (-1, -1)):
        assert TABLE.changes(mode=mode, after=after, until=until).to_arrow().num_rows == 0


def test_columns_and_predicates_can_use_commit_columns() -> None:
    columns = ["_commit_version", "n", "-_commit_timestamp"]
    changes = TABLE.changes(mode="append", where="_commit_version >= 4 AND n < 60", columns=columns)
    assert changes.to_arrow().to_pylist() == [
        {"_commit_version": 4, "n": 4},
        {"_commit_version": 4, "n": 40},
        {"_commit_version": 6, "n": 6},
        {"_commit_version": 7, "n": 7},
    ]
    by_time = TABLE.changes(mode="append", where=f"_commit_timestamp <= '{at(2).isoformat()}'", columns=["n"])
    assert by_time.to_arrow()["n"].to_pylist() == [1, 10, 2, 20]
    with pytest.raises(ConfigurationError, match="_change_type"):
        TABLE.changes(mode="append", columns=["_change_type"])


def test_changes_refresh_the_table() -> None:
    table = new_table(memory_store())
    reopen(table).insert(numbers([1]))
    assert table.changes(mode="append").to_arrow()["n"].to_pylist() == [1]
    assert table.version == 1


def test_a_following_reader_sees_every_row_once() -> None:
    table = new_table(memory_store())
    writer, seen, after = reopen(table), [], None
    for number in range(6):
        writer.insert(numbers([number]))
        if number % 3 == 0:
            stage_compaction(writer).commit()
        if number % 2:
            changes = table.changes(mode="append", after=after)
            seen += changes.to_arrow()["n"].to_pylist()
            after = changes.complete_until
    assert seen == list(range(6))


@pytest.mark.parametrize(("after", "until"), [(None, LAST + 1), (3, 99), (-2, None), (-5, 2)])
def test_unavailable_versions_are_an_error_with_the_available_range(after: int | None, until: int | None) -> None:
    with pytest.raises(HistoryExpiredError, match=f"0 to {LAST}"):
        TABLE.changes(mode="append", after=after, until=until)


def test_expired_commits_are_an_error_not_a_gap() -> None:
    table = make_table()
    table.checkpoint()
    for version in range(4):
        table.store.delete(filenames.commit_path(version))
    for lower in (None, 0, 2, at(1), at(-1)):
        with pytest.raises(HistoryExpiredError, match=f"4 to {LAST}"):
            table.changes(mode="append", after=lower)
    for lower in (3, 4, at(4)):
        assert table.changes(mode="append", after=lower).to_arrow()["n"].to_pylist()[0] in (4, 6)


def test_an_invalid_start_or_mode_is_an_error() -> None:
    with pytest.raises(ConfigurationError):
        TABLE.changes(mode="append", after=True)
    with pytest.raises(ConfigurationError, match="never"):
        TABLE.changes(mode="never")


@pytest.mark.parametrize("name", ["_commit_version", "_commit_timestamp"])
def test_a_column_named_like_a_commit_column_is_an_error(name: str) -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), (name, pa.int64())]))
    table.insert([{"n": 1, name: 2}])
    with pytest.raises(ConfigurationError, match=name):
        table.changes(mode="append")


# --- commits that are not inserts ------------------------------------------------------------------------------------


def with_a_delete() -> tuple[Table, AddFile]:
    """A table whose version 3 removes the rows that version 1 inserted."""
    table = new_table(memory_store())
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    file = live_files(table)[0]
    put_foreign(table, remove(file))
    table.insert(numbers([3]))
    return table, file


def test_append_mode_fails_at_a_commit_that_removed_rows() -> None:
    table, _ = with_a_delete()
    for after, until in ((None, None), (2, None), (2, 3)):
        with pytest.raises(NotAppendOnlyError) as raised:
            table.changes(mode="append", after=after, until=until)
        assert raised.value.version == 3
        assert raised.value.advice == "pass after=3 (exclusive here, inclusive in Delta), or mode='cdc'"


def test_append_mode_reads_intervals_without_that_commit() -> None:
    table, _ = with_a_delete()
    assert table.changes(mode="append", until=2).to_arrow()["n"].to_pylist() == [1, 2]
    assert table.changes(mode="append", after=3).to_arrow()["n"].to_pylist() == [3]


def test_a_larger_deletion_vector_is_not_an_insert() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1, 2]))
    (file,) = live_files(table)
    vector = put_vector(table.store, [0], "dv.bin")
    put_foreign(table, remove(file), AddFile(**{**fields(file), "deletion_vector": vector}))
    with pytest.raises(NotAppendOnlyError):
        table.changes(mode="append")


def fields(file: AddFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__struct_fields__}


def test_files_without_data_change_are_not_inserts() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    (file,) = live_files(table)
    put_foreign(table, AddFile(**{**fields(file), "data_change": False, "stats": None}))
    assert table.changes(mode="append").to_arrow()["n"].to_pylist() == [1]


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_a_table_with_a_feed_cannot_have_its_column_names(name: str) -> None:
    schema = pa.schema([(name, pa.string()), ("n", pa.int64())])
    with pytest.raises(ConfigurationError, match="a name that the change feed uses"):
        new_table(memory_store(), schema, properties={"delta.enableChangeDataFeed": True})
    assert new_table(memory_store(), schema).version == 0


def test_batches_of_a_file_share_the_memory_of_their_constant_columns() -> None:
    table = new_table(memory_store(), schema=pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    rows = 3 * BATCH_ROWS
    table.insert(pa.table({"n": range(rows), "p": ["a long value"] * rows}))
    batches = list(table.changes(after=0).to_batches())
    assert len(batches) == 3
    assert sum(batch.num_rows for batch in batches) == rows
    for name in ("p", "_change_type", "_commit_version", "_commit_timestamp"):
        assert len({batch.column(name).buffers()[-1].address for batch in batches}) == 1, name

"""Row ids and commit versions in tables with row tracking: unique, and kept by everything but a delete."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from tests.log.row_tracking import SCHEMA, TRACKING, ids, mark, rows_with_ids, tracked_table
from tests.log.support import live_files, put_foreign, read_numbers, reopen
from tidelog.compaction_daemon import stage
from tidelog.log import Table
from tidelog.log.data.reader import BATCH_ROWS
from tidelog.log.errors import ConfigurationError, ConflictError, CorruptLogError, UnsupportedFeatureError
from tidelog.log.format.actions import DomainMetadata
from tidelog.log.format.row_tracking import ENABLED, ID_COLUMN, SUSPENDED, VERSION_COLUMN, mark_action
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load

NO_VECTORS = {**TRACKING, "delta.enableDeletionVectors": "false"}


def rows(*numbers: int, v: int = 0) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "v": pa.array([v] * len(numbers), pa.int64())})


@pytest.fixture(params=["vectors", "copies", "feed"])
def table(request: pytest.FixtureRequest) -> Table:
    feed = {**TRACKING, "delta.enableChangeDataFeed": "true"}
    return tracked_table(properties={"vectors": TRACKING, "copies": NO_VECTORS, "feed": feed}[request.param])


def test_inserted_rows_get_new_ids_and_the_version_of_their_commit(table: Table) -> None:
    table.insert(rows(1, 2, 3))
    table.insert(rows(4))
    assert ids(table) == {1: (0, 1), 2: (1, 1), 3: (2, 1), 4: (3, 2)}
    assert mark(table) == 3
    assert mark(reopen(table)) == 3


def test_commits_say_that_ids_are_preserved(table: Table) -> None:
    table.insert(rows(1))
    assert read_commit(table.store, 1).info["tags"] == {"delta.rowTracking.preserved": "true"}


def test_deletes_keep_the_ids_of_the_other_rows(table: Table) -> None:
    table.insert(rows(1, 2, 3))
    table.delete("n = 2")
    assert ids(table) == {1: (0, 1), 3: (2, 1)}
    [add] = live_files(table)
    if add.deletion_vector:
        assert (add.base_row_id, add.default_row_commit_version) == (0, 1)
        assert mark(table) == 2
    [removed] = read_commit(table.store, 2).removes
    assert (removed.base_row_id, removed.default_row_commit_version) == (0, 1)


def test_updated_rows_keep_their_ids_and_get_the_version_of_the_update(table: Table) -> None:
    table.insert(rows(1, 2, 3))
    table.update("n >= 2", {"v": "n * 10"})
    assert ids(table) == {1: (0, 1), 2: (1, 2), 3: (2, 2)}
    table.update("n = 3", {"v": "0"})
    assert ids(table) == {1: (0, 1), 2: (1, 2), 3: (2, 3)}
    assert table.refresh().scan().to_arrow().column_names == ["n", "v"]


def test_upserted_rows_keep_their_ids(table: Table) -> None:
    table.insert(rows(1, 2, 3))
    table.upsert(rows(2, 3, 4, v=1), keys=["n"])
    found = ids(table)
    assert {number: version for number, (_, version) in found.items()} == {1: 1, 2: 2, 3: 2, 4: 2}
    assert {number: found[number][0] for number in (1, 2, 3)} == {1: 0, 2: 1, 3: 2}
    assert found[4][0] > 2
    table.upsert(pa.table({"n": [2], "v": [None]}, table.schema), keys=["n"], delete_where="v IS NULL")
    assert ids(table) == {number: kept for number, kept in found.items() if number != 2}


def test_change_files_have_the_tables_columns_only() -> None:
    table = tracked_table(properties={**TRACKING, "delta.enableChangeDataFeed": "true"})
    table.insert(rows(1, 2))
    table.update("n = 1", {"v": "5"})
    table.upsert(rows(2, v=6), keys=["n"])
    changes = table.changes(after=1).to_arrow()
    assert changes.column_names[:2] == ["n", "v"]
    assert not {name for name in changes.column_names if "row" in name}


def test_an_overwrite_gives_new_ids(table: Table) -> None:
    table.insert(rows(1, 2))
    table.overwrite(rows(1, 2))
    assert ids(table) == {1: (2, 2), 2: (3, 2)}


def test_a_restore_brings_ids_back_and_never_lowers_the_mark(table: Table) -> None:
    table.insert(rows(1, 2, 3))
    before = ids(table)
    table.update("n = 2", {"v": "9"})
    table.delete("n = 1")
    table.insert(rows(7))
    highest = mark(table)
    table.restore(version=1)
    assert ids(table) == before
    assert mark(table) == highest
    table.insert(rows(8))
    assert ids(table)[8][0] > highest


@pytest.mark.parametrize("level", ["minor", "major", "clustered", "purge"])
def test_compactions_keep_ids_and_commit_versions(table: Table, level: str) -> None:
    for first in range(0, 40, 10):
        table.insert(rows(*reversed(range(first, first + 10))))
    table.delete("n % 7 = 3")
    table.update("n % 5 = 1", {"v": "n"})
    before = ids(table)
    options = {
        "minor": {"level": "minor"},
        "major": {"level": "major"},
        "clustered": {"level": "major", "cluster_by": ["v", "n"]},
        "purge": {"level": "major", "purge": True},
    }
    report = table.compact(**options[level])  # type: ignore[arg-type]
    assert report.files_added
    assert ids(table) == before
    table.compact("major", cluster_by=["n"])
    table.update("n = 2", {"v": "7"})
    assert ids(table)[2] == (before[2][0], table.refresh().version)
    assert {n: kept for n, kept in ids(table).items() if n != 2} == {n: kept for n, kept in before.items() if n != 2}


def test_a_rebase_assigns_ids_after_those_of_the_winners(table: Table) -> None:
    mine = table.begin().insert(rows(1, 2))
    reopen(table).insert(rows(3, 4, 5))
    mine.commit()
    assert ids(table) == {3: (0, 1), 4: (1, 1), 5: (2, 1), 1: (3, 2), 2: (4, 2)}


def test_a_compaction_that_is_rebased_keeps_ids() -> None:
    table = tracked_table()
    table.insert(rows(1, 2))
    table.insert(rows(3, 4))
    before = ids(table)
    update = reopen(table).begin().update("n = 2", {"v": "1"})
    compaction = stage(table, level="minor")
    update.commit()
    compaction.commit()
    assert ids(table) == {**before, 2: (before[2][0], 3)}


def test_a_change_that_is_rebased_over_a_compaction_keeps_ids() -> None:
    table = tracked_table()
    table.insert(rows(1, 2))
    table.insert(rows(3, 4))
    before = ids(table)
    update = reopen(table).begin().update("n = 2", {"v": "1"})
    table.compact("minor")
    update.commit()
    assert ids(table) == {**before, 2: (before[2][0], 4)}


def test_an_upsert_does_not_reuse_the_id_of_a_row_that_got_another_key() -> None:
    table = tracked_table()
    table.insert(rows(1, 2))
    mine = table.begin().upsert(rows(1, v=1), keys=["n"])
    reopen(table).update("n = 1", {"n": "10"})
    with pytest.raises(ConflictError):
        mine.commit()
    table.refresh().upsert(rows(1, v=1), keys=["n"])
    found = ids(table)
    assert found[10][0] == 0
    assert found[1][0] > 1


def test_an_upsert_does_not_take_a_matching_row_of_a_winner_for_a_new_one() -> None:
    table = tracked_table()
    table.insert(rows(1))
    mine = table.begin().upsert(rows(2, v=1), keys=["n"])
    reopen(table).insert(rows(2))
    with pytest.raises(ConflictError):
        mine.commit()
    assert read_numbers(reopen(table)) == [1, 2]


def test_ids_are_assigned_but_not_kept_while_the_feature_is_only_supported() -> None:
    table = tracked_table(properties={})
    table.insert(rows(1, 2))
    table.update("n = 1", {"v": "1"})
    assert [(add.base_row_id, add.default_row_commit_version) for add in live_files(table)] == [(0, 1), (2, 2)]
    assert mark(table) == 2
    assert "tags" not in read_commit(table.store, 2).info


def test_no_ids_are_assigned_while_row_tracking_is_suspended() -> None:
    table = tracked_table(properties={SUSPENDED: "true"})
    table.insert(rows(1, 2))
    assert [add.base_row_id for add in live_files(table)] == [None]
    assert not load(table.store).head.domains


def test_a_file_from_before_gets_ids_when_it_is_added_again() -> None:
    table = tracked_table(properties={SUSPENDED: "true"})
    table.insert(rows(1, 2, 3))
    metadata = load(table.store).head.metadata
    put_foreign(table, msgspec.structs.replace(metadata, configuration={"delta.enableDeletionVectors": "true"}))
    table.refresh().delete("n = 1")
    [add] = live_files(table)
    assert (add.base_row_id, add.default_row_commit_version, mark(table)) == (0, 3, 2)


def test_a_restored_file_without_ids_and_statistics_gets_as_many_ids_as_it_has_rows() -> None:
    table = tracked_table(properties={})
    table.insert(rows(1, 2, 3))
    [add] = live_files(table)
    put_foreign(table, add.removed(1, data_change=True))
    bare = msgspec.structs.replace(add, stats=None, base_row_id=None, default_row_commit_version=None)
    put_foreign(table, bare)
    table.refresh().truncate()
    table.restore(version=3)
    [back] = live_files(table)
    assert (back.stats, back.base_row_id, back.default_row_commit_version, mark(table)) == (None, 3, 5, 5)


@pytest.mark.parametrize("text", ["", "{}", '{"rowIdHighWaterMark":"x"}', '{"rowIdHighWaterMark":-7}'])
def test_an_unusable_mark_is_refused(text: str) -> None:
    table = tracked_table()
    put_foreign(table, DomainMetadata(domain="delta.rowTracking", configuration=text, removed=False))
    with pytest.raises(CorruptLogError, match="high-water mark"):
        table.refresh().insert(rows(1))
    assert table.refresh().version == 1


NO_MARK = DomainMetadata(domain="delta.rowTracking", configuration="", removed=True)


@pytest.mark.parametrize("totals", ["known", "unknown"])
@pytest.mark.parametrize("properties", [TRACKING, {}], ids=["enabled", "supported"])
def test_a_mark_that_another_writer_removed_is_refused(properties: dict[str, str], totals: str) -> None:
    """Else new rows would get the ids of old ones."""
    table = tracked_table(properties=properties)
    table.insert(rows(1, 2, 3))
    [add] = live_files(table)
    # A live file that is added again leaves the totals open.
    again = msgspec.structs.replace(add, data_change=False, tags={"again": "1"})
    put_foreign(table, NO_MARK, *([again] if totals == "unknown" else []))
    assert (table.refresh().head.totals is None) == (totals == "unknown")
    refused = r"high-water mark of row ids: there is none, and a file has the row id 0"
    with pytest.raises(CorruptLogError, match=refused):
        table.insert(rows(9))
    with pytest.raises(CorruptLogError, match=refused):
        table.update("n = 1", {"v": "1"})
    assert table.refresh().version == 2
    table.delete("n = 1")  # gives no row an id


def test_a_table_without_a_mark_is_written_if_no_file_has_ids() -> None:
    table = tracked_table()
    table.insert(rows(1, 2))
    table.truncate()
    put_foreign(table, NO_MARK)
    table.refresh().insert(rows(3))
    assert ids(table) == {3: (0, 4)}


def test_a_mark_that_another_writer_lowered_is_refused_where_a_changed_file_shows_it(table: Table) -> None:
    table.insert(rows(1, 2))
    table.insert(rows(3, 4))
    put_foreign(table, mark_action(1))
    with pytest.raises(CorruptLogError, match="its mark is 1, and a file has the row id 2"):
        table.refresh().update("n = 3", {"v": "1"})
    with pytest.raises(CorruptLogError, match="its mark is 1, and a file has the row id 2"):
        table.compact("minor")
    assert table.refresh().version == 3


def test_other_domains_survive_everything_that_tidelog_does(table: Table) -> None:
    mine = DomainMetadata(domain="com.example", configuration="x", removed=False)
    put_foreign(table, mine, DomainMetadata(domain="gone", configuration="", removed=False))
    put_foreign(table, DomainMetadata(domain="gone", configuration="", removed=True))
    table.refresh().insert(rows(1, 2))
    table.insert(rows(3))
    table.update("n = 1", {"v": "1"})
    table.compact("major")
    table.overwrite(rows(4))
    table.restore(version=3)
    table.checkpoint()
    for state in (load(table.store).head, load(table.store).replayed()):
        assert state.domains["com.example"] == mine
        assert set(state.domains) == {"com.example", "delta.rowTracking"}


def test_ids_go_on_over_the_batches_in_which_a_large_file_is_read() -> None:
    table = tracked_table()
    count = 2 * BATCH_ROWS + 5
    table.insert(pa.table({"n": range(count), "v": [0] * count}, SCHEMA))
    assert len(live_files(table)) == 1
    found = rows_with_ids(table)
    assert found["id"].to_pylist() == found["n"].to_pylist() == [*range(count)]
    # What a compaction stores for each row is what was read of it.
    table.update(f"n = {count - 1}", {"v": "1"})
    table.compact("major", purge=True)
    found = rows_with_ids(table)
    assert found["id"].to_pylist() == found["n"].to_pylist()


def test_a_partitioned_table_keeps_ids() -> None:
    table = tracked_table(partition_columns=("v",))
    table.insert(pa.table({"n": [1, 2, 3, 4], "v": [0, 1, 0, 1]}, table.schema))
    before = ids(table)
    table.update("n = 1", {"v": "1"})
    table.compact("minor")
    after = ids(table)
    assert after[1] == (before[1][0], 2)
    assert {n: kept for n, kept in after.items() if n > 1} == {n: kept for n, kept in before.items() if n > 1}


@pytest.mark.parametrize("key", [*TRACKING, SUSPENDED])
def test_the_properties_of_row_tracking_are_not_for_tidelog_to_change(key: str) -> None:
    table = tracked_table()
    with pytest.raises(ConfigurationError, match=r"cannot be changed(.|\n)*the engine that set up row tracking"):
        table.set_properties({key: "true" if key == SUSPENDED else None})
    table.set_properties({"delta.checkpointInterval": 10})
    table.insert(rows(1))
    assert ids(table) == {1: (0, 2)}


@pytest.mark.parametrize(
    ("key", "name"), [(ID_COLUMN, "v"), (VERSION_COLUMN, "n"), (VERSION_COLUMN, TRACKING[ID_COLUMN])]
)
def test_columns_for_ids_that_are_not_unique_are_refused(key: str, name: str) -> None:
    table = tracked_table(properties={**TRACKING, key: name})
    with pytest.raises(UnsupportedFeatureError, match="not unique"):
        table.insert(rows(1))
    with pytest.raises(UnsupportedFeatureError, match="not unique"):
        table.update("n = 1", {"v": "1"})
    assert table.refresh().version == 0


@pytest.mark.parametrize("name", ["_row-id-col-x", "_ROW-COMMIT-VERSION-COL-Y"])
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_new_column_cannot_have_the_name_of_one_of_row_tracking(name: str, enabled: str) -> None:
    table = tracked_table(properties={**TRACKING, ENABLED: enabled})
    taken = pa.field(name, pa.int64())
    inside = pa.field("s", pa.struct([taken]))
    attempts: list[Callable[[], object]] = [
        lambda: table.add_columns([taken]),
        lambda: table.add_columns([inside]),
        lambda: table.begin().evolve(pa.schema([*SCHEMA, taken])),
    ]
    for attempt in attempts:
        with pytest.raises(ConfigurationError, match="row tracking") as raised:
            attempt()
        assert raised.value.advice == "choose another name"
    assert table.refresh().version == 0
    table.add_columns([pa.field("more", pa.int64())])
    table.insert(pa.table({"n": [1], "v": [1], "more": [1]}))

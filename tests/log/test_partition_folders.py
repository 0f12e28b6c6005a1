"""New files go where the table has its files: into partition folders, or into folders with random names."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.faults import Counting
from tests.log.support import PROTOCOL, add, clean_up_before, live_files, memory_store, metadata, new_table, put_commit
from tidelog.compaction_daemon import compact, plan
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, RemoveFile, SetTransaction
from tidelog.log.format.paths import to_uri
from tidelog.log.state import head, version_checksum
from tidelog.log.state.head import Totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string())])
FLAT = re.compile(r"[0-9a-f]{2}/part-[0-9a-f-]{36}\.parquet")


def in_folder(day: str, value: str | None, **more: Any) -> AddFile:
    return add(f"day={day}/part-{day.encode().hex()}.parquet", partition_values={"day": value}, **more)


OUTSIDE = add("ab/part-0.parquet", partition_values={"day": "x"})


def foreign(*commits: Sequence[AddFile | RemoveFile], **more: Any) -> MemoryStore:
    """A table of another engine, without checksums. Its files are only in the log."""
    store = memory_store()
    put_commit(store, 0, metadata(SCHEMA, **{"partition_columns": ("day",), **more}), PROTOCOL)
    for version, actions in enumerate(commits, start=1):
        put_commit(store, version, *actions)
    return store


def opened(store: Store) -> Table:
    return Table(store, load(store))


def new_path(table: Table, day: str = "z") -> str:
    """Where a new row's file goes, as the commit names it."""
    before = {file.path for file in live_files(table)}
    table.insert([{"n": 1, "day": day}])
    (path,) = {file.path for file in live_files(table)} - before
    return path


# --- where files go --------------------------------------------------------------------------------------------------


def converted(rows: pa.Table, values: Mapping[str, str | None], **properties: Any) -> Table:
    """A table made of a folder: one file with these rows for each partition folder."""
    store = memory_store()
    for name in values:
        content = io.BytesIO()
        pq.write_table(rows, content)
        store.put_if_absent(f"day={name}/old.parquet", content.getvalue())
    kind = pa.field("day", pa.string())
    return Table.convert(store.url, partition_by=[kind], properties=properties)


VALUES: dict[str, str | None] = {
    "2026-01-31": "2026-01-31",
    "a%2Fb %25": "a/b %",
    "__HIVE_DEFAULT_PARTITION__": None,
    "é%3A%3D": "é:=",
}


@pytest.mark.parametrize("vectors", [True, False])
def test_every_operation_keeps_the_folders(vectors: bool) -> None:
    """And the rows, also from the change files, which are in such folders as well."""
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": True}
    table = converted(pa.table({"n": [1, 2, 3]}), VALUES, **properties)
    table.insert([{"n": 4, "day": day} for day in VALUES.values()])
    table.delete("n = 1")
    table.update("n = 2", {"n": "20"})
    table.upsert([{"n": 3, "day": day} for day in VALUES.values() if day], keys=["n", "day"])
    before = table.version
    compact(table)
    compact(table, "major", purge=True)
    table.refresh().overwrite([{"n": 5, "day": "é:="}], dynamic=True)
    table.restore(version=before)
    names = {value: name for name, value in VALUES.items()}
    wanted = [(n, day) for day in VALUES.values() for n in (3, 4, 20)]
    assert sorted((row["n"], row["day"] or "") for row in table.scan().to_arrow().to_pylist()) == sorted(
        (n, day or "") for n, day in wanted
    )
    folders = set()
    for version in range(1, table.version + 1):
        for line in table.store.read(filenames.commit_path(version)).splitlines():
            for kind, action in json.loads(line).items():
                if kind in ("add", "cdc"):
                    top = "_change_data/" if kind == "cdc" else ""
                    name = names[action["partitionValues"]["day"]]
                    assert action["path"].startswith(f"{top}{to_uri(f'day={name}')}/")
                    folders.add(top)
    assert folders == {"", "_change_data/"}


def test_tables_of_tidelog_have_no_partition_folders() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["day"])
    for _ in range(2):
        assert FLAT.fullmatch(new_path(table))
        table = opened(table.store)


@pytest.mark.parametrize("value", ["x" * 300, "__HIVE_DEFAULT_PARTITION__"])
def test_a_value_that_no_folder_can_hold_is_written_outside(value: str) -> None:
    table = opened(foreign([in_folder("a", "a")]))
    assert FLAT.fullmatch(new_path(table, value))
    assert table.scan(f"day = '{value}'").to_arrow().to_pylist() == [{"n": 1, "day": value}]
    assert "day=b/" in new_path(table, "b")


def test_a_path_is_no_longer_than_the_key_of_an_object() -> None:
    names = [f"p{number}" for number in range(6)]
    schema = pa.schema([("n", pa.int64()), *((name, pa.string()) for name in names)])
    store = memory_store()
    values = dict.fromkeys(names, "a")
    old = add("/".join(f"{name}=a" for name in names) + "/f", partition_values=values)
    put_commit(store, 0, metadata(schema, partition_columns=tuple(names)), PROTOCOL, old)
    table = opened(store)
    for length in (100, 150, 200):
        table.insert([{"n": 1, **dict.fromkeys(names, "x" * length)}])
    lengths = sorted(len(f"{store.url}/{file.path}") for file in live_files(table) if file != old)
    assert lengths[0] < 200, "too long: outside"
    assert 600 < lengths[-1] <= 1024


@pytest.mark.parametrize(
    ("configuration", "is_inside"),
    [
        ({}, True),
        ({"delta.columnMapping.mode": "name"}, False),
        ({"delta.randomizeFilePrefixes": "true"}, False),
    ],
)
def test_with_column_mapping_or_random_prefixes_folders_are_not_followed(
    configuration: dict[str, str], is_inside: bool
) -> None:
    state = load(foreign([in_folder("a", "a")], configuration=configuration))
    assert state.uses_partition_folders() is is_inside


def test_a_major_compaction_puts_files_from_outside_into_the_folders_and_then_rests() -> None:
    table = converted(pa.table({"n": [1]}), VALUES)
    flat = new_table(memory_store(), SCHEMA, partition_by=["day"])
    for value in VALUES.values():
        path = new_path(flat, value or "")
        (file,) = [file for file in live_files(flat) if file.path == path]
        table.store.put_if_absent(path, flat.store.read(path))
        table.begin().stage_adds([file]).commit()
    table.insert([{"n": 1, "day": "x" * 300}])
    reasons = [reason for reason in plan(table.refresh(), "major").reasons if "partition folders" in reason.reason]
    assert [FLAT.fullmatch(reason.path) is not None for reason in reasons] == [True] * 4
    assert not any("partition folders" in reason.reason for reason in plan(table, "auto").reasons)
    assert compact(table, "major").did_anything
    paths = [file.path for file in live_files(table.refresh())]
    assert sorted(path[:4] for path in paths if not FLAT.fullmatch(path)) == ["day="] * 4
    assert len(paths) == 5
    assert table.scan().to_arrow().num_rows == 9
    assert not compact(table, "major").did_anything


# --- how that is known -----------------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose file lists were loaded."""
    found: list[int] = []
    load_files = LogState.files

    def files(self: LogState) -> Any:
        found.append(self.head.version)
        return load_files(self)

    monkeypatch.setattr(LogState, "files", files)
    return found


def inserted(table: Table) -> bool:
    """Insert a row. Whether its file is in a partition folder."""
    return "day=z/" in inserted_path(table)


def inserted_path(table: Table) -> str:
    version = table.insert([{"n": 1, "day": "z"}]).version
    lines = map(json.loads, table.store.read(filenames.commit_path(version)).splitlines())
    (path,) = [line["add"]["path"] for line in lines if "add" in line]
    return str(path)


def known_by_the_log(store: MemoryStore) -> None:
    """Only commits."""


def known_by_a_checksum(store: MemoryStore) -> None:
    """A checksum of tidelog after a commit that says nothing."""
    put_commit(store, 3, SetTransaction(app_id="a", version=1), info={"txnId": "three"})
    put_own_checksum(store)


def known_by_a_checksum_before(store: MemoryStore) -> None:
    """Then a commit of another engine, which says nothing, and its own checksum."""
    known_by_a_checksum(store)
    put_commit(store, 4, SetTransaction(app_id="a", version=2), info={"txnId": "four"})
    put_own_checksum(store)
    content = json.loads(store.read(filenames.checksum_path(4)))
    del content["tidelog"]
    store.replace(filenames.checksum_path(4), json.dumps(content).encode())


def put_own_checksum(store: MemoryStore) -> None:
    state = load(store)
    state.uses_partition_folders()
    table_head = head.with_totals(state.head, Totals(1, 1))
    assert table_head.commit_id is not None
    stamp = table_head.timestamp_ms
    content = version_checksum.checksum_bytes(table_head, txn_id=table_head.commit_id, in_commit_timestamp_ms=stamp)
    assert content
    store.put_if_absent(filenames.checksum_path(table_head.version), content)


def known_after_a_checkpoint(store: MemoryStore) -> None:
    """Without checksums or old commits, but a commit since then names a file in a folder."""
    clean_up_before(opened(store), 2)
    put_commit(store, 3, in_folder("new", "new"))


KNOWN = [known_by_the_log, known_by_a_checksum, known_by_a_checksum_before, known_after_a_checkpoint]


@pytest.mark.parametrize("prepare", KNOWN)
def test_an_insert_does_not_load_the_files_to_know_the_layout(
    prepare: Callable[[MemoryStore], None], loads: list[int]
) -> None:
    store = foreign([in_folder("a", "a")], [OUTSIDE])
    prepare(store)
    table = opened(store)
    loads.clear()
    assert inserted(table)
    assert inserted(table)
    assert inserted(opened(store))
    assert not loads


def test_a_checkpoint_of_tidelog_says_it(loads: list[int]) -> None:
    for actions, is_inside in (([in_folder("a", "a")], True), ([OUTSIDE], False)):
        store = foreign(actions)
        clean_up_before(opened(store), 1)
        put_commit(store, 2, SetTransaction(app_id="a", version=1))
        table = opened(store)
        loads.clear()
        assert inserted(table) is is_inside
        assert not loads


def test_it_loads_them_once_if_only_the_checkpoint_of_another_engine_can_say_it(loads: list[int]) -> None:
    for actions, is_inside in (([in_folder("a", "a")], True), ([OUTSIDE], False)):
        store = foreign(actions)
        clean_up_before(opened(store), 1)
        rows = pq.read_table(io.BytesIO(store.read(filenames.checkpoint_path(1))))
        buffer = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(None), buffer)
        store.replace(filenames.checkpoint_path(1), buffer.getvalue())
        put_commit(store, 2, SetTransaction(app_id="a", version=1))
        for path in store.names("_delta_log"):
            assert not path.endswith(".crc")
        table = opened(store)
        loads.clear()
        assert inserted(table) is is_inside
        assert inserted(table) is is_inside
        assert loads == [2]
        put_own_checksum(store)
        loads.clear()
        assert inserted(opened(store)) is is_inside
        assert not loads, "the checksum says it"


def test_a_commit_of_another_engine_that_makes_folders_counts_at_once() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["day"])
    other = opened(table.store)
    assert not inserted(table)
    version = table.version + 1
    put_commit(table.store, version, in_folder("a", "a"), info={"inCommitTimestamp": 2**41})
    assert inserted(other.refresh())
    assert inserted(opened(table.store))


def test_other_partition_columns_replace_the_files() -> None:
    """As an overwrite of delta-spark with another schema does."""
    old = in_folder("a", "a")
    gone = RemoveFile(path=old.path, data_change=True, deletion_timestamp=1)
    schema = pa.schema([*SCHEMA, ("city", pa.string())])
    for new, is_inside in (("city=x/f.parquet", True), ("ab/f.parquet", False)):
        store = foreign([old])
        other = metadata(schema, partition_columns=("city",))
        put_commit(store, 2, other, gone, add(new, partition_values={"city": "x"}))
        assert load(store).uses_partition_folders() is is_inside


def test_a_table_that_is_created_on_the_path_of_another_has_a_layout_of_its_own() -> None:
    table = converted(pa.table({"n": [1]}), {"a": "a"})
    assert inserted(table)
    Table.drop(table.path)
    again = Table.create(table.path, SCHEMA, partition_by=["day"])
    assert FLAT.fullmatch(inserted_path(again))
    assert FLAT.fullmatch(inserted_path(opened(again.store)))


def test_an_insert_reads_no_more_of_the_log_than_in_another_table(loads: list[int]) -> None:
    counts = []
    for store in (foreign([OUTSIDE]), foreign([in_folder("a", "a")])):
        counting = Counting(store)
        table = opened(counting)
        counting.reads.clear()
        inserted(table)
        counts.append(len(counting.reads))
    assert counts[0] == counts[1]
    assert not loads

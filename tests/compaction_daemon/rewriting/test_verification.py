"""An output that does not hold the rows of its inputs is refused before the commit, and kept as evidence."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.compaction_daemon.support import SCHEMA, delete_rows, live_files, memory_table, numbers_of, put
from tidelog.compaction_daemon import compact
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting import clustered_rows, refused_rewrites, verification
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.refused_rewrites import Refusal
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.compaction_daemon.rewriting.verification import Findings
from tidelog.log import Table
from tidelog.log.data import reader
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import CompactionVerificationError
from tidelog.log.format.actions import AddFile

# How a compaction orders rows: the arguments of `compact`.
ORDERS: dict[str, dict[str, Any]] = {
    "minor": {"level": "minor"},
    "sort": {"level": "major", "cluster_by": ["a"]},
    "hilbert": {"level": "major", "cluster_by": ["a", "b"], "cluster_order": "hilbert"},
}
ROWS = 40


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> dict[str, Any]:
    return ORDERS[request.param]


def filled() -> Table:
    """Four files, some of whose rows are dead. `a` and `b` have the same values in another order."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("text", pa.string()), ("real", pa.float64())])
    table = Table.create(f"memory://{uuid.uuid4()}", schema)
    for number in range(4):
        keys = np.arange(number, 4 * ROWS, 4) * 7 % (4 * ROWS)
        columns: dict[str, Any] = {
            "a": keys,
            "b": keys[::-1],
            "text": [f"text {key % 5}" for key in keys],
            # Doubles that differ in their signs only: the highest bit of a word.
            "real": np.where(keys % 2, 1.0, -1.0),
        }
        table.insert(pa.table(columns, schema=schema))
    table.delete("a % 10 = 3")
    return table.refresh()


# --- what was written is not what was read ---------------------------------------------------------------------------

Change = Callable[[pa.Table], pa.Table]


def replaced(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))


def one_value(rows: pa.Table) -> pa.Table:
    return replaced(rows, "b", [rows["b"][0].as_py() + 1, *rows["b"].to_pylist()[1:]])


def one_sign(rows: pa.Table) -> pa.Table:
    return replaced(rows, "real", [-rows["real"][0].as_py(), *rows["real"].to_pylist()[1:]])


def one_null(rows: pa.Table) -> pa.Table:
    return replaced(rows, "text", [*rows["text"].to_pylist()[:-1], None])


def a_row_less(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def a_row_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1), rows.slice(0, rows.num_rows - 1)])


def an_extra_row(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def two_rows_exchanged(rows: pa.Table) -> pa.Table:
    order = np.arange(rows.num_rows)
    order[[3, 17]] = order[[17, 3]]
    return rows.take(pa.array(order))


def a_column_permuted(rows: pa.Table) -> pa.Table:
    """The same values in each column, but not the same rows."""
    return replaced(rows, "b", np.roll(rows["b"].to_numpy(), 1))


def two_signs_exchanged(rows: pa.Table) -> pa.Table:
    """Two rows in which only the highest bit of one word differs, the other way round in each."""
    values = rows["real"].to_pylist()
    first, second = values.index(1.0), values.index(-1.0)
    values[first], values[second] = -1.0, 1.0
    return replaced(rows, "real", values)


def two_columns_exchanged(rows: pa.Table) -> pa.Table:
    return replaced(replaced(rows, "a", rows["b"].to_numpy()), "b", rows["a"].to_numpy())


def no_rows(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


CHANGES: list[Change] = [
    one_value,
    one_sign,
    one_null,
    a_row_less,
    a_row_twice,
    an_extra_row,
    two_rows_exchanged,
    a_column_permuted,
    two_signs_exchanged,
    two_columns_exchanged,
    no_rows,
]


def corrupted(monkeypatch: pytest.MonkeyPatch, table: Table, change: Callable[[bytes], bytes | None]) -> None:
    """Change the first written file between the moment when it is durable and the one when it is read back."""
    honest = verification.verify

    def after_a_change(inputs: Inputs, written: Sequence[AddFile], rows: Any) -> Findings:
        overwrite(table, written[0].path, change)
        return honest(inputs, written, rows)

    monkeypatch.setattr("tidelog.compaction_daemon.rewriting.rewrite.verify", after_a_change)


def overwrite(table: Table, path: str, change: Callable[[bytes], bytes | None]) -> None:
    content = change(table.store.read(path))
    if content is None:
        table.store.delete(path)
    else:
        table.store.replace(path, content)


def as_parquet(change: Change) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        sink = io.BytesIO()
        pq.write_table(change(pq.read_table(pa.BufferReader(content))), sink)
        return sink.getvalue()

    return changed


def refused(table: Table, order: dict[str, Any], match: str = "was refused") -> Refusal:
    """Compact, which must be refused. Nothing is committed, the files are kept, and the record names them."""
    version, rows, id_ = table.refresh().version, table.scan().to_arrow(), table.head.metadata.id
    with pytest.raises(CompactionVerificationError, match=match) as caught:
        compact(table, **order)
    assert caught.value.path == table.path
    assert "these files stay in the table and no row is lost; the written files are kept" in str(caught.value)
    assert table.refresh().version == version
    assert table.scan().to_arrow().equals(rows)
    (record,) = refused_rewrites.refusals(table.store, id_)
    assert record.version == version
    assert {file.path for file in record.inputs} == {add.path for add in live_files(table)}
    assert {file.deletion_vector for file in record.inputs} == {add.key[1] for add in live_files(table)}
    assert record.read.rows == rows.num_rows
    (name,) = [status.name for status in table.store.list(refused_rewrites.REFUSED_FOLDER)]
    assert caught.value.evidence == f"{refused_rewrites.REFUSED_FOLDER}/{name}"
    assert caught.value.evidence in str(caught.value)
    assert "; ".join(record.differences) in str(caught.value)
    return record


@pytest.mark.parametrize("change", CHANGES)
def test_an_output_with_other_rows_is_refused(
    change: Change, order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled()
    before = table.scan().to_arrow()
    with monkeypatch.context() as patched:
        corrupted(patched, table, as_parquet(change))
        record = refused(table, order)
    # Rows that may change their places are compared by the row map.
    same_sums = change is two_rows_exchanged and "cluster_by" in order
    assert (record.written == record.read) == same_sums
    (output,) = record.outputs
    kept = pq.read_table(pa.BufferReader(table.store.read(output.path)))
    assert kept.num_rows == record.written.rows
    assert record.cluster_by == tuple(order.get("cluster_by", ()))
    assert compact(table, **order).did_anything, "without the corruption"
    by = [(name, "ascending") for name in before.column_names]
    assert table.refresh().scan().to_arrow().sort_by(by).equals(before.sort_by(by))


def test_an_output_that_is_the_same_in_another_encoding_is_not_refused(
    order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would pass if every output were refused."""
    table = filled()
    corrupted(monkeypatch, table, as_parquet(lambda rows: rows))
    assert compact(table, **order).did_anything


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda content: content[:100] + bytes(50) + content[150:], "a written file cannot be read back"),
        (lambda content: content[:-3], "a written file cannot be read back"),
        (lambda _: None, "is missing"),
    ],
    ids=["damaged", "truncated", "gone"],
)
def test_an_output_that_cannot_be_read_back_is_refused(
    change: Callable[[bytes], bytes | None], match: str, order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled()
    corrupted(monkeypatch, table, change)
    refused(table, order, match)


def test_rows_that_are_not_read_are_missed(order: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The live rows are counted from footers and deletion vectors, not while they are read."""
    table = filled()
    honest = reader.read_coded_batches

    def loses_a_row(*args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        for batch in honest(*args, **kwargs):
            yield batch.slice(1)

    monkeypatch.setattr("tidelog.compaction_daemon.rewriting.inputs.read_coded_batches", loses_a_row)
    with pytest.raises(CompactionVerificationError, match="rows were read, but 144 are live"):
        compact(table, **order)


# --- a wrong row map --------------------------------------------------------------------------------------------------


def column(row_map: pa.Table, name: str, values: Callable[[np.ndarray[Any, Any]], Any]) -> pa.Table:
    index = row_map.schema.get_field_index(name)
    return row_map.set_column(index, name, pa.array(values(row_map[name].to_numpy().copy())))


def first_twice(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values[1] = values[0]
    return values


def two_exchanged(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values[[0, 2]] = values[[2, 0]]
    return values


NOT_ONE_TO_ONE: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a row is missing": lambda row_map: row_map.slice(1),
    "an extra row": lambda row_map: pa.concat_tables([row_map, row_map.slice(row_map.num_rows - 1)]),
    "an input row twice": lambda row_map: column(row_map, "position", first_twice),
    "an output row twice": lambda row_map: column(row_map, "output_position", first_twice),
    "a dead row": lambda row_map: column(row_map, "position", lambda found: np.where(found == 2, 1, found)),
    "another input": lambda row_map: column(row_map, "input", lambda found: found + 1),
    "another output": lambda row_map: column(row_map, "output", lambda found: found + 1),
    "an output before the first": lambda row_map: column(row_map, "output", lambda found: found - 1),
    "a position before the first": lambda row_map: column(row_map, "output_position", lambda found: found - 1),
    "not sorted": lambda row_map: row_map.take(pc.sort_indices(row_map["output_position"])),
    "an empty map": lambda row_map: row_map.slice(0, 0),
}


@pytest.mark.parametrize("cluster_order", ["sort", "hilbert"])
@pytest.mark.parametrize("wrong", NOT_ONE_TO_ONE)
def test_a_row_map_that_is_not_one_to_one_is_refused(
    wrong: str, cluster_order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = memory_table()
    put(table, 5, 3, 9)
    put(table, 4, 3)
    delete_rows(table, [1], file=0)
    how = {"level": "major", "cluster_by": ["n"], "cluster_order": cluster_order}
    with monkeypatch.context() as patched:
        wrongly(patched, NOT_ONE_TO_ONE[wrong])
        record = refused(table, how, "the row map does not map each live row to a row of its own")
    assert record.written.content == record.read.content
    assert compact(table, **how).did_anything  # type: ignore[arg-type]


def wrongly(monkeypatch: pytest.MonkeyPatch, change: Callable[[pa.Table], pa.Table]) -> None:
    honest = clustered_rows.row_map_of
    monkeypatch.setattr(clustered_rows, "row_map_of", lambda *args: change(honest(*args)))


@pytest.mark.parametrize("order", ["sort", "hilbert"])
def test_a_row_map_that_exchanges_two_rows_is_refused(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one to one, and the rows are all there, but a later change would hit the wrong row."""
    table = filled()
    with monkeypatch.context() as patched:
        wrongly(patched, lambda row_map: column(row_map, "output_position", two_exchanged))
        record = refused(table, ORDERS[order], "2 rows are not where the row map says")
    assert record.written.content == record.read.content
    assert compact(table, **ORDERS[order]).did_anything


# --- several partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parts", "written"), [("ab", "a"), ("aa", "b")], ids=["read", "written"])
def test_files_of_several_partitions_are_refused(parts: str, written: str) -> None:
    table = memory_table()
    for number, part in enumerate(parts):
        put(table, number, part=part)
    group = PlannedGroup({"part": written}, tuple(live_files(table)))
    writer = DataWriter(table.store, table.head.metadata, table.timeline.system)
    with pytest.raises(CompactionVerificationError, match="read or written are of several partitions"):
        rewrite(writer, table.schema, group, now_ms=0)


# --- the records ------------------------------------------------------------------------------------------------------


def test_records_are_listed_newest_first_and_only_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    for number in (1, 2):
        table.insert([{"part": "a", "n": number}])
    with monkeypatch.context() as patched:
        corrupted(patched, table, as_parquet(a_row_less))
        for _ in range(2):
            with pytest.raises(CompactionVerificationError):
                compact(table)
    records = refused_rewrites.refusals(table.store, table.head.metadata.id)
    assert len(records) == 2
    assert records[0].time_ms >= records[1].time_ms
    assert refused_rewrites.refusals(table.store, "another") == ()
    monkeypatch.setattr(refused_rewrites, "MAX_RECORDS", 1)
    assert refused_rewrites.refusals(table.store, table.head.metadata.id) == records[:1]


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\xff", b'{"time_ms": "now"}', b"[" * 10_000])
def test_what_is_not_a_record_is_left_out(content: bytes) -> None:
    table = memory_table()
    table.store.put_if_absent(f"{refused_rewrites.REFUSED_FOLDER}/x.json", content)
    assert refused_rewrites.refusals(table.store, table.head.metadata.id) == ()


def test_a_table_without_refusals_has_none() -> None:
    assert refused_rewrites.refusals(memory_table().store, "any") == ()


@pytest.mark.parametrize(("bound", "most"), [("MAX_EVIDENCE", 2), ("MAX_EVIDENCE_BYTES", 1)])
def test_no_more_evidence_is_kept_than_is_enough(bound: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays: somebody may be looking at it."""
    table = memory_table()
    put(table, 1)
    put(table, 2)
    corrupted(monkeypatch, table, as_parquet(a_row_less))
    monkeypatch.setattr(refused_rewrites, bound, most)
    for _ in range(most):
        with pytest.raises(CompactionVerificationError, match="the written files are kept"):
            compact(table)
    kept = {path for path, _ in table.store.walk()}
    with pytest.raises(CompactionVerificationError, match="the written files were deleted, because") as caught:
        compact(table)
    assert not hasattr(caught.value, "evidence")
    assert {path for path, _ in table.store.walk()} == kept


def test_a_refusal_that_cannot_be_recorded_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    corrupted(monkeypatch, table, as_parquet(a_row_less))

    honest = table.store.put_if_absent

    def full(path: str, *args: Any, **kwargs: Any) -> None:
        if path.startswith(refused_rewrites.REFUSED_FOLDER):
            raise OSError("no space")
        honest(path, *args, **kwargs)

    monkeypatch.setattr(table.store, "put_if_absent", full)
    with pytest.raises(CompactionVerificationError, match="no record of them could be written") as caught:
        compact(table)
    assert not hasattr(caught.value, "evidence")
    assert numbers_of(table) == [1, 2]

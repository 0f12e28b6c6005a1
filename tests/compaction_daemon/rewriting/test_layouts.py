"""An output of a rewrite in order is never more than a tenth larger than its inputs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.compaction_daemon.support import PassingClock
from tests.log.read.test_scan import put_parquet
from tests.log.support import live_files, memory_store, new_table
from tidelog.compaction_daemon import Daemon, DaemonConfig, compact
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.planning.failed_groups import LONGEST_WAIT_S
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting import outputs
from tidelog.compaction_daemon.rewriting.rewrite import rewrite, write_in_order
from tidelog.log import Table
from tidelog.log.data.reader import DataFile, read_footer
from tidelog.log.errors import CompactionGrowthError

_FILES = 12


@pytest.fixture
def snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that finds repetitions only within a short window, so that it needs dictionaries."""
    monkeypatch.setattr(outputs, "CODEC", "snappy")


def repetitive(*, files: int = _FILES, rows: int = 20) -> Table:
    """Each file repeats a long text of its own, longer than the window in which snappy finds repetitions."""
    texts = random.Random(1)
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("text", pa.string())]))
    for number in range(files):
        text = texts.randbytes(70_000).hex()
        table.insert([{"n": number * rows + row, "text": text} for row in range(rows)])
    return table


def total_bytes(table: Table) -> int:
    return sum(add.size for add in live_files(table))


def footer_of(table: Table) -> pq.FileMetaData:
    (output,) = live_files(table)
    return read_footer(table.store, DataFile.of(output))


@pytest.mark.usefixtures("snappy")
def test_repetitive_text_stays_small() -> None:
    table = repetitive()
    before, rows = total_bytes(table), table.scan().to_arrow()
    assert compact(table).files_added == 1
    assert total_bytes(table.refresh()) <= before * 1.1
    assert table.scan().to_arrow().equals(rows)
    # All dictionaries together exceed the usual bound, but fit the larger one.
    assert footer_of(table).num_row_groups == 1


@pytest.mark.usefixtures("snappy")
def test_row_groups_of_the_inputs_are_kept_if_no_dictionary_holds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LARGE_DICTIONARY_BYTES", 2**20)
    table = repetitive()
    table.delete("n IN (0, 1, 25)")
    before, rows = total_bytes(table), table.scan().to_arrow()
    compact(table)
    assert total_bytes(table.refresh()) <= before * 1.1
    assert table.scan().to_arrow().equals(rows)
    footer = footer_of(table)
    assert [footer.row_group(number).num_rows for number in range(_FILES)] == [18, 19, *[20] * (_FILES - 2)]


def test_ordinary_files_become_one_row_group() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    for number in range(5):
        table.insert([{"n": number}])
    compact(table)
    assert footer_of(table.refresh()).num_row_groups == 1


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "compression_level": 9},
        {"compression": "gzip"},
        {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}},
    ],
    ids=["zstd", "gzip", "delta"],
)
def test_files_of_other_writers_stay_small(options: dict[str, Any]) -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("text", pa.string())]))
    random_numbers = np.random.default_rng(1)
    for number in range(4):
        numbers = np.cumsum(random_numbers.integers(0, 3, 50_000))
        words = [f"word {word} of a text that packs well" for word in random_numbers.integers(0, 30_000, 50_000)]
        put_parquet(table, f"f{number}", pa.table({"n": numbers, "text": words}), parquet=options)
    before = total_bytes(table)
    compact(table)
    assert total_bytes(table.refresh()) <= before * 1.1
    assert len(live_files(table)) == 1


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(20, 2)])
def test_integers_of_a_widened_column_have_no_encoding_that_it_cannot_have(kind: pa.DataType) -> None:
    """As steps they take next to nothing, which the wider values cannot, so the files stay as they are."""
    table = new_table(memory_store(), pa.schema([("n", kind)]))
    steps = {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}}
    for number in range(3):
        numbers = pa.array(np.arange(100_000, dtype=np.int32) + number * 100_000)
        put_parquet(table, f"f{number}", pa.table({"n": numbers}), parquet=steps)
    with pytest.raises(CompactionGrowthError):
        compact(table, level="major")


def test_a_group_that_would_grow_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_GROWTH", 0.01)
    table = repetitive(files=3, rows=1)
    files = {path for path, _ in table.store.walk()}
    with pytest.raises(CompactionGrowthError, match="would become more than a tenth larger"):
        compact(table)
    assert {path for path, _ in table.store.walk()} == files


def test_a_small_file_can_be_split() -> None:
    """Two footers take more than a tenth of a small file."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    table.insert([{"n": number} for number in range(10)])
    transaction = table.begin()
    group = PlannedGroup({}, tuple(live_files(table)), outputs=2)
    moves = rewrite(transaction.writer, transaction.schema, group, now_ms=0)
    assert len(moves.outputs) == 2


def test_a_small_file_can_get_a_column() -> None:
    """Even a column of nulls takes more than a tenth of a small file."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    table.insert([{"n": number} for number in range(4)])
    table.add_columns([pa.field("added", pa.int64())])
    table.delete("n < 3")
    before = total_bytes(table.refresh())
    compact(table, level="major")
    assert 1.1 * before < total_bytes(table.refresh()) < before + 512


@pytest.mark.usefixtures("snappy")
def test_sorted_rows_are_written_in_the_smallest_layout() -> None:
    """By `n` each of the long texts comes back far apart, beyond the usual dictionary."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("text", pa.string())]))
    random_numbers = np.random.default_rng(1)
    texts = [random_numbers.bytes(4_000).hex() for _ in range(200)]
    for _ in range(2):
        table.insert([{"n": number, "text": text} for text in texts for number in range(20)])
    before = total_bytes(table)
    table.compact(level="major", cluster_by=["n"])
    after = total_bytes(table.refresh())
    assert after <= 1.1 * before
    assert sum(path.endswith(".parquet") for path, _ in table.store.walk()) == 3


def test_the_other_groups_are_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    for number in range(4):
        table.insert([{"n": number, "p": "small"}, *({"n": row, "p": "large"} for row in range(500))])
    before = {add.path for add in live_files(table) if add.partition_values["p"] == "large"}
    write = write_in_order
    monkeypatch.setattr(applying, "THREADS", 1)

    def refused(writer: Any, group: Any, *rest: Any) -> Any:
        if group.partition_values["p"] == "large":
            monkeypatch.setattr(outputs, "MOST_GROWTH", 0.01)
        else:
            monkeypatch.setattr(outputs, "MOST_GROWTH", 1.1)
        return write(writer, group, *rest)

    monkeypatch.setattr("tidelog.compaction_daemon.rewriting.rewrite.write_in_order", refused)
    report = compact(table)
    assert (report.groups, report.files_removed, report.files_added) == (1, 4, 1)
    after = {add.path for add in live_files(table.refresh()) if add.partition_values["p"] == "large"}
    assert after == before


def test_a_daemon_tries_a_group_that_would_grow_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    table = repetitive(files=3, rows=1)
    rewrites: list[int] = []
    write = write_in_order

    def counted(*arguments: Any) -> Any:
        rewrites.append(1)
        return write(*arguments)

    monkeypatch.setattr("tidelog.compaction_daemon.rewriting.rewrite.write_in_order", counted)
    monkeypatch.setattr(outputs, "MOST_GROWTH", 0.01)
    clock = PassingClock()
    daemon = Daemon([table.path], config=DaemonConfig(growth=1.0), clock=clock)
    for _ in range(3):
        (step,) = daemon.step().tables
        assert (step.error, step.did_anything) == (None, False)
    assert daemon.status().tables[0].left_alone is None, "it is as good as it can be"
    table.insert([{"n": 9, "text": "more"}])
    assert not daemon.step().did_anything
    assert len(rewrites) == 1, "a new file makes no new group of the same files"
    monkeypatch.setattr(outputs, "MOST_GROWTH", 1.1)
    clock.pass_s(LONGEST_WAIT_S)
    assert daemon.step().did_anything

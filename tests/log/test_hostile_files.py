"""Files that lie: FIFOs and devices under the names of a table's files, and claims of far more than there is.

Each is refused at once with a typed error, or done without if the log can be read without it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from tests.log.support import live_files, put_foreign, remove
from tests.log.test_hostile_input import MAX_MIB, memory_mib, varint
from tidelog.log import Table
from tidelog.log.commit.conflict_ledger import LEDGER_FOLDER, read_ledger
from tidelog.log.conflict import moves
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.data.row_maps import read_row_map, row_map_schema
from tidelog.log.errors import CorruptLogError, DataError, DataFileDamagedError, TableNotFoundError
from tidelog.log.format import filenames
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.storage import Store

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
ROWS = 1000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["p"])
    made.insert([{"n": number, "p": "a"} for number in range(ROWS)])
    return made


def folder(table: Table) -> Path:
    return Path(table.path)


def data_file(table: Table) -> Path:
    (file,) = live_files(table)
    return folder(table) / file.path


def count(table: Table) -> int:
    return sum(batch.num_rows for batch in Table.open(table.path).scan().to_batches())


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


LIES: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "1 TiB": sparse,
    "link to itself": lambda path: path.symlink_to(path.name),
}
every_lie = pytest.mark.parametrize("lie", list(LIES))


def put(lie: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    LIES[lie](path)


@pytest.fixture(autouse=True)
def _bounded_memory() -> Any:
    before = memory_mib()
    yield
    assert memory_mib() - before < MAX_MIB


# --- what is not a file ----------------------------------------------------------------------------------------------


@every_lie
def test_a_data_file(table: Table, lie: str) -> None:
    (file,) = live_files(table)
    put(lie, data_file(table))
    with pytest.raises(DataError, match="data file"):
        count(table)
    with pytest.raises(DataError, match="data file"):
        physical_rows(table.store, DataFile.of(file))
    with pytest.raises(DataError, match="data file"):
        table.delete("n = 1")


@every_lie
def test_a_deletion_vector(table: Table, lie: str) -> None:
    table.delete("n < 10")
    (vector,) = (folder(table) / "_dv").iterdir()
    put(lie, vector)
    with pytest.raises(CorruptLogError, match="deletion vector"):
        count(table)


@every_lie
def test_a_commit(table: Table, lie: str) -> None:
    """No reader waits for it, and no writer goes past it."""
    put(lie, folder(table) / filenames.commit_path(2))
    for call in (lambda: count(table), table.refresh, lambda: table.insert([{"n": 1, "p": "b"}])):
        with pytest.raises(CorruptLogError, match="commit 2"):
            call()


@every_lie
def test_a_shortcut_is_done_without(table: Table, lie: str) -> None:
    table.checkpoint()
    for name in (filenames.checkpoint_path(1), filenames.LAST_CHECKPOINT, filenames.checksum_path(1)):
        put(lie, folder(table) / name)
        assert count(table) == ROWS
    table.insert([{"n": 1, "p": "b"}])
    assert count(table) == ROWS + 1


def test_a_shortcut_of_4_gib_is_done_without(table: Table) -> None:
    """A checkpoint is read in parts, so it may be as large."""
    for name in (filenames.LAST_CHECKPOINT, filenames.checksum_path(1)):
        path = folder(table) / name
        path.unlink(missing_ok=True)
        path.touch()
        os.truncate(path, 2**32 - 1)
        assert count(table) == ROWS
    table.insert([{"n": 1, "p": "b"}])
    assert count(table) == ROWS + 1


@every_lie
def test_an_entry_of_the_conflict_ledger(table: Table, lie: str) -> None:
    put(lie, folder(table) / LEDGER_FOLDER / "1700000000000-11111111-2222-3333-4444-555555555555.json")
    assert list(read_ledger(table.store)) == []


def test_a_log_folder_that_is_a_link_to_itself_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").symlink_to("_delta_log")
    with pytest.raises(TableNotFoundError):
        Table.open(str(tmp_path))


@every_lie
def test_a_row_map(table: Table, lie: str) -> None:
    put(lie, folder(table) / "map")
    with pytest.raises(CorruptLogError, match="row map"):
        read_row_map(table.store, "map")


# --- claims ----------------------------------------------------------------------------------------------------------


def claim(path: Path, rows: int) -> None:
    """Replace each row count in the footer of a parquet file with `rows`."""
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    old = content[-8 - length : -8]
    new = old.replace(b"\x16" + varint(ROWS), b"\x16" + varint(rows))
    assert new != old
    path.write_bytes(content[: -8 - length] + new + struct.pack("<I", len(new)) + b"PAR1")


@pytest.mark.parametrize("rows", [ROWS + 1, 2**40, 2**62])
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan().to_arrow(),
        lambda table: table.scan("n > 5").count(),
        lambda table: table.delete("n = 3"),
        lambda table: table.compact("major", purge=True, cluster_by=["n"]),
    ],
    ids=["scan", "filtered count", "delete", "compact"],
)
def test_a_footer_that_claims_more_rows_than_there_are(table: Table, rows: int, read: Callable[[Table], Any]) -> None:
    claim(data_file(table), rows)
    with pytest.raises(DataFileDamagedError, match="by its footer at 1001" if rows == ROWS + 1 else "footer claims"):
        read(Table.open(table.path))


@pytest.mark.parametrize("rows", [2**40, 2**62])
def test_a_footer_that_claims_rows_of_which_no_column_is_read(table: Table, rows: int) -> None:
    claim(data_file(table), rows)
    with pytest.raises(DataFileDamagedError, match="footer claims"):
        table.scan(columns=["p"]).to_arrow()


def test_a_column_of_nulls_is_not_taken_for_a_lie(tmp_path: Path) -> None:
    """Such a file has the most rows per byte."""
    table = Table.create(str(tmp_path / "nulls"), SCHEMA)
    table.insert(pa.table({"n": pa.nulls(2_000_000, pa.int64()), "p": pa.nulls(2_000_000, pa.string())}))
    assert table.scan(columns=["n"]).to_arrow()["n"].null_count == 2_000_000


def test_a_data_file_that_is_truncated_under_its_reader(tmp_path: Path) -> None:
    """A memory map would end the process here (SIGBUS)."""
    rows = 400_000
    table = Table.create(str(tmp_path / "t"), pa.schema([("n", pa.float64())]))
    table.insert(pa.table({"n": np.random.default_rng(1).random(rows)}))
    (file,) = live_files(table)
    source = table.store.open_input(file.path)
    os.truncate(folder(table) / file.path, 1_500_000)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.ParquetFile(source, metadata=pq.ParquetFile(source).metadata).read()


def whole_range(containers: int = 2**16) -> bytes:
    """A bitmap of 65,536 rows for each of its containers, which are runs of 12 bytes."""
    head = struct.pack("<I", 12347 | (containers - 1) << 16) + b"\xff" * (containers // 8)
    keys = b"".join(struct.pack("<HH", key, 65535) for key in range(containers))
    first = len(head) + len(keys) + 4 * containers
    offsets = struct.pack(f"<{containers}I", *(first + 6 * number for number in range(containers)))
    runs = struct.pack("<HHH", 1, 0, 65535) * containers
    return struct.pack("<IQI", 1681511377, 1, 0) + head + keys + offsets + runs


def kill_all(table: Table, *, cardinality: int = 2**32, size: int | None = None) -> None:
    """Commit a vector, of less than a megabyte, that names four billion rows."""
    blob = whole_range()
    content = b"\x01" + struct.pack(">i", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob))
    (folder(table) / "v.bin").write_bytes(content)
    (file,) = live_files(table)
    vector = DeletionVectorDescriptor(
        storage_type="p",
        path_or_inline_dv=str(folder(table) / "v.bin"),
        offset=1,
        size_in_bytes=size or len(blob),
        cardinality=cardinality,
    )
    put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector))


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan().to_arrow(),
        lambda table: table.changes(after=1).to_arrow(),
        lambda table: table.delete("n > 3"),
        lambda table: table.compact("major", purge=True),
    ],
    ids=["scan", "changes", "delete", "compact"],
)
def test_a_vector_of_four_billion_rows(table: Table, read: Callable[[Table], Any]) -> None:
    kill_all(table)
    with pytest.raises(DataError, match=r"positions beyond its last row|fewer rows than the log says"):
        read(Table.open(table.path))


@pytest.mark.parametrize(("cardinality", "size"), [(2**62, None), (2**62, 2**31 - 1), (5, None)])
def test_a_vector_with_a_wrong_description(table: Table, cardinality: int, size: int | None) -> None:
    kill_all(table, cardinality=cardinality, size=size)
    with pytest.raises(CorruptLogError, match="deletion vector"):
        count(table)
    assert Table.open(table.path).debt().small_files == 1


def test_a_huge_vector_is_not_listed_row_by_row() -> None:
    huge = BitMap64()
    huge.add_range(0, 2**28)
    with pytest.raises(CorruptLogError, match="claims"):
        moves.to_numbers(huge)


def test_a_row_map_whose_lengths_are_wrong(table: Table) -> None:
    """Arrow believes them, and reading such a value ends the process."""
    path = folder(table) / "map"
    with pa.ipc.new_file(str(path), row_map_schema()) as writer:
        writer.write_table(pa.table([pa.array(range(ROWS), pa.int64())] * 4, schema=row_map_schema()))
    assert read_row_map(table.store, "map").num_rows == ROWS
    content = path.read_bytes()
    length = ROWS.to_bytes(8, "little")
    assert length in content
    path.write_bytes(content.replace(length, (2**40).to_bytes(8, "little")))
    with pytest.raises(CorruptLogError, match="row map"):
        read_row_map(table.store, "map")


def test_a_checkpoint_is_not_read_whole_if_it_is_too_large(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.checkpoint()
    opened: list[str] = []
    original = type(table.store).open_input

    def look(store: Store, path: str) -> Any:
        opened.append(path)
        return original(store, path)

    monkeypatch.setattr(type(table.store), "open_input", look)
    monkeypatch.setattr("tidelog.log.state.checkpoint_reader.MAX_WHOLE_BYTES", 100)
    assert count(table) == ROWS
    assert filenames.checkpoint_path(1) in opened

"""Tables with many small files, and rows deleted as another engine deletes them."""

from __future__ import annotations

import itertools
import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import Action, AddFile, DeletionVectorDescriptor, RemoveFile, encode_commit
from tidelog.log.state import files
from tidelog.log.system import System

SCHEMA = pa.schema([("part", pa.string()), ("n", pa.int64())])


class ManualClock(System):
    """A clock that tests move."""

    seconds = 100.0

    def monotonic_s(self) -> float:
        return self.seconds


class PassingClock(ManualClock):
    """Time passes only when a test lets it, on both clocks."""

    def __init__(self) -> None:
        self._start_ms = super().now_ms() - round(self.seconds * 1000)

    def now_ms(self) -> int:
        return self._start_ms + round(self.seconds * 1000)

    def pass_s(self, seconds: float) -> None:
        self.seconds += seconds


def memory_table(**properties: object) -> Table:
    """Partitioned by `part`, in memory."""
    return Table.create(f"memory://{uuid.uuid4()}", SCHEMA, partition_by=["part"], properties=properties)


def leave_checkpoints_to_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers write none in the background."""
    monkeypatch.setattr(System, "in_background", lambda _system, _work: None)


def put(table: Table, *numbers: int, part: str | None = "a") -> None:
    """One commit of one file."""
    table.insert(pa.table({"part": pa.array([part] * len(numbers), pa.string()), "n": pa.array(numbers, pa.int64())}))


def numbers_of(table: Table, **partition: str) -> list[int]:
    """The column `n` in file order."""
    where = " and ".join(f"{name} = '{value}'" for name, value in partition.items()) or None
    rows: list[int] = table.refresh().scan(where).to_arrow()["n"].to_pylist()
    return rows


def live_files(table: Table) -> list[AddFile]:
    return files.to_adds(table.refresh().at().files())


def delete_rows(
    table: Table, positions: Sequence[int], *, file: int = 0, data_change: bool = True
) -> DeletionVectorDescriptor:
    """Give a live file a deletion vector, in a commit as delta-spark writes it (remove and re-add)."""
    add = live_files(table)[file]
    vector = put_vector(table, positions)
    removed = RemoveFile(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=1,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
    )
    put_commit(table, removed, msgspec.structs.replace(add, data_change=data_change, deletion_vector=vector))
    return vector


def put_vector(table: Table, positions: Sequence[int]) -> DeletionVectorDescriptor:
    """Write a deletion vector to a file next to the data, in the protocol's format."""
    bitmap = struct.pack("<I", 1681511377) + bytes(BitMap64(positions).serialize())
    name = uuid.uuid4()
    content = b"\x01" + struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    table.store.put_if_absent(f"deletion_vector_{name}.bin", content)
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=z85(name.bytes),
        offset=1,
        size_in_bytes=len(bitmap),
        cardinality=len(positions),
    )


def put_commit(table: Table, *actions: Action, **info: Any) -> int:
    """Commit the next version as another writer would."""
    table.refresh()
    stamp = int(table.at().timestamp.timestamp() * 1000) + 1
    content = encode_commit({"inCommitTimestamp": stamp, "operation": "TEST", **info}, actions)
    table.store.put_if_absent(filenames.commit_path(table.version + 1), content)
    return table.refresh().version


def z85(raw: bytes) -> str:
    """ZeroMQ's base 85, which the protocol uses."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for start in range(0, len(raw), 4):
        value = int.from_bytes(raw[start : start + 4], "big")
        text += "".join(digits[value // 85**power % 85] for power in range(4, -1, -1))
    return text


def logged_paths(table: Table) -> set[str]:
    """Every data file that any commit names."""
    history = [table.at(version=version) for version in range(table.refresh().version + 1)]
    return set(itertools.chain.from_iterable(snapshot.files()["path"].to_pylist() for snapshot in history))

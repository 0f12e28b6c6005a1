"""The file of a row map is read back before the commit that names it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.compaction_daemon.rewriting.test_verification import ORDERS, column, filled, overwrite, two_exchanged
from tidelog.compaction_daemon import compact
from tidelog.log.data import row_maps
from tidelog.log.errors import CompactionVerificationError


def two_rows_exchanged_in_the_file(content: bytes) -> bytes:
    with pa.ipc.open_file(pa.BufferReader(content)) as reader:
        row_map = column(reader.read_all(), "output_position", two_exchanged)
    return as_ipc(row_map.cast(row_maps.row_map_schema()))


def as_ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


DAMAGED_FILES: dict[str, Callable[[bytes], bytes | None]] = {
    "other addresses": two_rows_exchanged_in_the_file,
    "a row map of no rows": lambda _: as_ipc(row_maps.row_map_schema().empty_table()),
    "other columns": lambda _: as_ipc(pa.table({"input": [1]})),
    "truncated": lambda content: content[:-3],
    "without some bytes": lambda content: content[:600] + content[620:],
    "another byte": lambda content: content[:700] + bytes([content[700] ^ 1]) + content[701:],
    "zeros": lambda content: bytes(len(content)),
    "empty": lambda _: b"",
    "gone": lambda _: None,
}


@pytest.mark.parametrize("damage", DAMAGED_FILES)
def test_a_damaged_row_map_file_is_refused(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled()
    version, rows = table.version, table.scan().to_arrow()
    honest = row_maps.write_row_map

    def damaged(*args: Any) -> str:
        path = honest(*args)
        overwrite(table, path, DAMAGED_FILES[damage])
        return path

    with monkeypatch.context() as patched:
        patched.setattr(row_maps, "write_row_map", damaged)
        with pytest.raises(CompactionVerificationError, match="does not hold what was written to it") as caught:
            compact(table, **ORDERS["hilbert"])
    assert caught.value.path == table.path
    assert table.refresh().version == version
    assert table.scan().to_arrow().equals(rows)
    assert compact(table, **ORDERS["hilbert"]).did_anything

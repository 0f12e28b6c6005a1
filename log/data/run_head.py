"""The head of a run of the key index: what the run belongs to, its data files, and its blocks.

Whoever can write into the table's folder can make a head up. So its size is bounded before it is read, what it says is
checked before it is used, and nothing in it takes more memory than its own size allows.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import Int64Array
from tidelog.log.data.block_filter import line_bytes
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.packed_order import OrderLayout, stored_bytes
from tidelog.log.storage.store import arrow_input

# Where the head begins, its size, its checksum, and the magic.
TRAILER = struct.Struct("<QQI8s")
# Runs with the older ones have no filters, and those with the oldest no order.
_MAGIC, _OLD_MAGICS = b"tidekey3", (b"tidekey1", b"tidekey2")
# There are about 12 bytes for each block, so this is enough for 2,800,000,000 entries.
MOST_HEAD_BYTES = 2**26
# Of the head's schema, which has the columns and the order.
_MOST_MESSAGE_BYTES = 2**20
_MOST_ROWS = 2**31 - 1
_COLUMNS = pa.schema(
    [
        ("paths", pa.list_(pa.string())),
        ("rows", pa.list_(pa.int64())),
        ("fences", pa.list_(pa.int64())),
        ("sums", pa.list_(pa.uint32())),
    ]
)


@dataclass(frozen=True, slots=True)
class RunHead:
    """What a head says.

    There are `rows` in each data file, dead ones included. `fences` are the first codes of the blocks, or their first
    words, and `sums` their CRC-32. Each block has `block` entries, and there is one more of `tail` unless it is 0.
    `filter_sum` is the checksum of the fences and the filters; None if there are none. `order` are the places in the
    layout of the columns of the key's order. `size` is the size of the head, which is about what it takes in memory.
    """

    block: int
    tail: int
    paths: pa.Array
    rows: Int64Array
    fences: Int64Array
    sums: np.ndarray
    layout: OrderLayout = ()
    order: tuple[int, ...] = ()
    filter_sum: int | None = None
    size: int = 0

    def __len__(self) -> int:
        """How many entries the run has."""
        return (len(self.fences) - bool(self.tail)) * self.block + self.tail

    @property
    def filter_bytes(self) -> int:
        """The size of the filters of all blocks."""
        return 0 if self.filter_sum is None else len(self.fences) * line_bytes(self.block)

    def entry_bytes(self, words: int) -> int:
        """The size of an entry whose code has so many words."""
        return 8 * words + 8 + (stored_bytes(self.layout) if self.layout else 0)

    def written(self, key: IndexedKey, start: int) -> bytes:
        """The head of a run of this key, and the trailer. It begins at `start`."""
        columns = [self.paths, pa.array(self.rows), pa.array(self.fences), pa.array(self.sums, pa.uint32())]
        lists = [
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values.cast(column.type.value_type))
            for values, column in zip(columns, _COLUMNS, strict=True)
        ]
        metadata = {"table": key.table_id, "key": key.columns, "block": str(self.block), "tail": str(self.tail)}
        if self.layout:
            metadata["order"] = key.order.written(self.layout)
        if self.filter_sum is not None:
            metadata["filter"] = str(self.filter_sum)
        schema = _COLUMNS.with_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(lists, schema=schema))
        content: bytes = sink.getvalue().to_pybytes()
        return content + TRAILER.pack(start, len(content), zlib.crc32(content), _MAGIC)

    @staticmethod
    def read(source: Any, key: IndexedKey, block: int) -> RunHead:
        """The head of an open file. Raises ValueError if it is no run of this key with blocks of so many entries.

        Also raises the errors of the store.
        """
        size = source.size()
        trailer = read_part(source, size - TRAILER.size, TRAILER.size)
        start, head_size, checksum, magic = TRAILER.unpack(trailer)
        _require(
            (magic == _MAGIC or magic in _OLD_MAGICS) and start + head_size + TRAILER.size == size,
            "it is torn, or no run",
        )
        _require(head_size <= MOST_HEAD_BYTES, f"its head has {head_size:,} bytes, more than {MOST_HEAD_BYTES:,}")
        content = read_part(source, start, head_size)
        _require(zlib.crc32(content) == checksum, "its head is damaged")
        try:
            head = _decoded(content, key, block)
        except (OSError, LookupError, AttributeError, OverflowError, RecursionError, pa.ArrowException) as error:
            # The file was read: an OSError is about what it says.
            message = f"its head cannot be decoded: {error}"
            raise ValueError(message) from error
        _require(start == head.filter_bytes + len(head) * head.entry_bytes(key.words), "its head is of other blocks")
        return head


def read_part(source: Any, start: int, size: int) -> bytes:
    """A part of an open file. Raises ValueError if the file is shorter."""
    found = source.read_at(size, start) if start >= 0 else b""
    _require(len(found) == size, "it ends early")
    return bytes(found)


def _decoded(content: bytes, key: IndexedKey, block: int) -> RunHead:
    batch = _only_batch(content)
    metadata = {name.decode(): value.decode() for name, value in (batch.schema.metadata or {}).items()}
    is_own = metadata.get("table") == key.table_id and metadata.get("key") == key.columns
    _require(is_own, "it is of another table or key")
    _require(metadata.get("block") == str(block), "it has blocks of another size")
    paths, *numbers = (column.flatten() for column in batch.columns)
    rows, fences, sums = (column.to_numpy() for column in numbers)
    tail, filter_sum = int(metadata["tail"]), metadata.get("filter")
    layout, order = key.order.read(metadata["order"]) if metadata.get("order") else ((), [])
    _require(0 <= tail < block and len(fences) >= bool(tail) and len(sums) == len(fences), "its head has wrong counts")
    _require(len(paths) == len(rows) == len(pc.unique(paths)) and not paths.null_count, "its head has wrong paths")
    _require(bool(((rows >= 0) & (rows <= _MOST_ROWS)).all()), "its head has wrong counts of rows")
    _require(bool((fences[1:] >= fences[:-1]).all()), "its blocks are out of order")
    own_filter = None if filter_sum is None else int(filter_sum)
    head = RunHead(block, tail, paths, rows, fences, sums, layout, tuple(order), own_filter, len(content))
    _require(len(head) <= int(rows.sum()), "it has more entries than its files have rows")
    return head


def _only_batch(content: bytes) -> pa.RecordBatch:
    """The row of a head, as it was written. Decoding it takes no more memory than its bytes."""
    reader = pa.ipc.MessageReader.open_stream(arrow_input(content))
    messages = [reader.read_next_message(), reader.read_next_message()]
    _require(
        [message.type for message in messages] == ["schema", "record batch"]
        and all(message.metadata.size <= _MOST_MESSAGE_BYTES for message in messages),
        "its head has other parts",
    )
    schema = pa.ipc.read_schema(messages[0])
    _require(schema.equals(_COLUMNS), "its head has other columns")
    _require(not _is_compressed(messages[1].metadata.to_pybytes()), "its head is compressed")
    batch = pa.ipc.read_record_batch(messages[1], schema)
    batch.validate(full=True)
    return batch


def _is_compressed(message: bytes) -> bool:
    """Whether the message of a record batch, which Arrow has verified, says that its buffers are compressed.

    A few bytes of them can stand for gigabytes, and pyarrow decompresses them without a bound. The message is a
    flatbuffer of the tables `Message` and, in its field 2, `RecordBatch`, whose field 3 is the compression.
    """

    def field(table: int, number: int) -> int | None:
        (back,) = struct.unpack_from("<i", message, table)
        (size,) = struct.unpack_from("<H", message, table - back)
        place = 4 + 2 * number
        (offset,) = struct.unpack_from("<H", message, table - back + place) if place < size else (0,)
        return table + offset if offset else None

    (root,) = struct.unpack_from("<I", message)
    header = field(root, 2)
    _require(header is not None, "its head has other parts")
    assert header is not None
    (offset,) = struct.unpack_from("<I", message, header)
    return field(header + offset, 3) is not None


def _require(is_so: bool, message: str) -> None:  # noqa: FBT001 - a condition
    if not is_so:
        raise ValueError(message)

"""Runs of the key index: at which positions of some data files the rows with a key are.

A run is a file `_tidelog/keys/<uuid>.run` that never changes. It is a hint: rows are found without it, and it can be
deleted at any time. It has an entry for each row of its data files, whether the row is live or not, except for rows
with a null in the key. Entries are sorted by the key's code: an integer or a time is its own code, other keys have a
hash of 128 bits, which begins with a number of the table's, so that nobody outside prepares two keys with one code.

The entries are in blocks of BLOCK, each with the codes first, then the numbers of the files, then the positions, all
little-endian. A lookup reads the blocks that can hold a code. The head after the blocks has the first code and the
CRC-32 of each block, the paths and row counts of the data files, and what the run belongs to: the table's id, the
columns and their types.

In a table with an order (`tidelog.orderBy`), a block ends with the order of each row, as `packed_order` has it, and the
head says which columns these are. Where a row's order is not known, the number of its file is inverted. Such a run has
another magic, so that a tidelog which does not know it scans the files.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, BinaryIO, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.packed_order import (
    NO_COLUMNS,
    OrderLayout,
    PackedColumns,
    PackedOrder,
    joined_layout,
    stored_bytes,
)
from tidelog.log.data.row_hashes import HASH_NAME, Seeds, row_hashes
from tidelog.log.data.spill import LocalCopy
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import physical_name
from tidelog.log.storage import Store
from tidelog.log.storage.store import arrow_input
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

KEYS_FOLDER = "_tidelog/keys"
ENDING = ".run"
BLOCK = 512
_MAGIC, _MAGIC_WITH_ORDER = b"tidekey1", b"tidekey2"
# The sizes of the blocks and of the head, the checksum of the head, and the magic.
_TRAILER = struct.Struct("<QQI8s")
# Runs up to this number of blocks stay in memory once they are read. The limits are for entries of so many bytes; of
# larger ones there are fewer.
_SMALL_BLOCKS = 16
_ENTRY = 32
# The most blocks that a lookup has in memory: 64 to 128 MB.
_MOST_BLOCKS = 8192
# The most runs of a store that are known at a time: of small ones some 200 MB.
_MOST_OPEN = 1024
# Of a run in an object store, so many ranges are asked for by one lookup; for more it is copied to this machine.
_MOST_REQUESTS = 32
_COPIED_FROM = 2**20
# The most bytes of copies that a process has.
_MOST_COPIED = 2**33
_COPIED_AT_ONCE = 2**24
_WORD_BITS = 64
_FIXED_WIDTH = (pt.is_signed_integer, pt.is_date32, pt.is_timestamp)
_HASHED = (pt.is_string, pt.is_binary, pt.is_decimal, pt.is_boolean)
# The keys of so many rows, or of so many bytes, or a few more, are in memory for one run.
MOST_KEYS, MOST_KEY_BYTES = 2**22, 2**27


class UnusableRunError(Exception):
    """The run at `path` is damaged, gone, or of another table or key. Its files count as not covered."""

    def __init__(self, path: str, message: str, *, is_final: bool = True) -> None:
        super().__init__(message)
        self.path = path
        # Not so if the store did not answer, or if the run was merged with others meanwhile.
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class IndexedKey:
    """The key of a table whose keys are indexed: its columns, and what a run of the table says of them.

    `order` are the columns of the table's order, if runs have them as well; `stored` names all columns of a run.
    """

    table_id: str
    names: tuple[str, ...]
    columns: str
    words: int
    order: PackedColumns = NO_COLUMNS
    stored: tuple[str, ...] = ()

    @staticmethod
    def of(metadata: Metadata, schema: pa.Schema) -> IndexedKey | None:
        """The indexed key of a table with these columns; None without an index.

        Nested columns, and those of floating point, which have values that are equal and look different, have none.
        """
        spelled = {name.lower(): name for name in schema.names}
        names = tuple(spelled.get(name.lower(), "") for name in properties.indexed_key(metadata.configuration))
        if not names or "" in names:
            return None
        kinds = [schema.field(name).type for name in names]
        if not all(any(is_kind(kind) for is_kind in (*_FIXED_WIDTH, *_HASHED)) for kind in kinds):
            return None
        described = [[physical_name(schema.field(name)), str(kind)] for name, kind in zip(names, kinds, strict=True)]
        is_number = len(kinds) == 1 and any(is_kind(kinds[0]) for is_kind in _FIXED_WIDTH)
        has_order = properties.ORDER_BY in metadata.configuration
        order = PackedColumns.of(metadata.configuration, schema) if has_order else NO_COLUMNS
        columns, words = (described, 1) if is_number else ([*described, HASH_NAME], 2)
        text = msgspec.json.encode(columns).decode()
        return IndexedKey(metadata.id, names, text, words, order, tuple(dict.fromkeys((*names, *order.names))))

    def codes(self, rows: pa.Table) -> Int64Array:
        """The codes of rows without nulls in the key: an array of `words` lines with a number for each row."""
        # One by one: all texts together can be more than one array holds.
        batches = rows.select(self.names).to_batches()
        none = np.zeros((self.words, 0), dtype=np.int64)
        return (
            np.concatenate([none, *map(self._codes, batches)], axis=1) if len(batches) != 1 else self._codes(batches[0])
        )

    def _codes(self, rows: pa.RecordBatch) -> Int64Array:
        if self.words == 1:
            column = rows.column(0)
            if pt.is_dictionary(column.type):
                column = column.dictionary_decode()
            if pt.is_date32(column.type):
                column = column.cast(pa.int32())
            return np.asarray(column.cast(pa.int64())).reshape(1, -1)
        return row_hashes(rows.columns, rows.num_rows, seeds=self._seeds).view(np.int64)

    @property
    def _seeds(self) -> Seeds:
        first, second = struct.unpack("<QQ", hashlib.blake2b(self.table_id.encode(), digest_size=16).digest())
        return np.uint64(first), np.uint64(second)


# --- writing ----------------------------------------------------------------------------------------------------------

# How many entries are written at a time: so few stay in the processor's cache.
_WRITTEN_ENTRIES = 2**16


@dataclass(frozen=True, slots=True)
class FileKeys:
    """A data file, as its action names it, and the columns `stored` of all its rows, one after the other."""

    path: str
    rows: pa.Table


def write_run(store: Store, path: str, key: IndexedKey, files: Sequence[FileKeys]) -> None:
    """Write a run for some files, whose keys are in memory."""
    entries = _Entries.joined([_of_file(key, number, file.rows) for number, file in enumerate(files)])
    with store.create_unsynced(path) as sink:
        run = RunFile(sink, key, entries.order.layout if entries.order else ())
        for piece in entries.in_order():
            run.append(piece)
        run.end([file.path for file in files], [file.rows.num_rows for file in files])


def new_run_path(system: System) -> str:
    """A path below the table for a new run."""
    return f"{KEYS_FOLDER}/{system.uuid()}{ENDING}"


def _of_file(key: IndexedKey, number: int, rows: pa.Table) -> _Entries:
    """The entries of the rows that have a key."""
    positions = np.arange(rows.num_rows, dtype=np.int32)
    for name in key.names:
        if rows[name].null_count:
            has_value = np.asarray(rows[name].is_valid())
            rows, positions = rows.filter(pa.array(has_value)), positions[has_value]
    numbers = np.broadcast_to(np.int32(number), len(positions))
    return _Entries(key.codes(rows), numbers, positions, key.order.packed(rows) if key.order.names else None)


class RunFile:
    """A run that is being written. Entries are appended in the order of their codes.

    `layout` is that of the order of all entries; without columns the run has no order.
    """

    def __init__(self, sink: BinaryIO, key: IndexedKey, layout: OrderLayout) -> None:
        self._sink = sink
        self._key = key
        self._layout = layout
        self._rest = _Entries.none(key.words)
        self._fences: list[Int64Array] = []
        self._sums: list[int] = []
        self._size = 0

    def append(self, found: _Entries) -> None:
        """Write more entries. Less than a block stays in memory."""
        if self._rest:
            found = _Entries.joined([self._rest, found])
        whole = len(found) // BLOCK * BLOCK
        self._write(found.take(slice(whole)), BLOCK)
        self._rest = found.take(slice(whole, len(found)))

    def end(self, paths: Sequence[str], rows: Sequence[int]) -> None:
        """Complete the file. `paths` and `rows` are those of the data files, dead rows included."""
        if self._rest:
            self._write(self._rest, len(self._rest))
        fences = np.concatenate(self._fences) if self._fences else np.zeros(0, dtype=np.int64)
        head = pa.table(
            {
                "paths": pa.array([list(paths)], pa.list_(pa.string())),
                "rows": pa.array([list(rows)], pa.list_(pa.int64())),
                "fences": pa.array([fences], pa.list_(pa.int64())),
                "sums": pa.array([self._sums], pa.list_(pa.uint32())),
            }
        )
        metadata = {"table": self._key.table_id, "key": self._key.columns}
        metadata |= {"block": str(BLOCK), "tail": str(len(self._rest))}
        if self._layout:
            metadata["order"] = self._key.order.written(self._layout)
        head = head.replace_schema_metadata(metadata)
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, head.schema) as stream:
            stream.write_table(head)
        content = buffer.getvalue().to_pybytes()
        self._sink.write(content)
        magic = _MAGIC_WITH_ORDER if self._layout else _MAGIC
        self._sink.write(_TRAILER.pack(self._size, len(content), zlib.crc32(content), magic))

    def _write(self, entries: _Entries, block: int) -> None:
        if not entries:
            return
        content = entries.in_blocks(block, self._layout)
        # Not a view, which would keep all codes.
        self._fences.append(entries.codes[0, ::block].copy())
        self._sums += (zlib.crc32(row) for row in content)
        self._sink.write(content.data)
        self._size += content.nbytes


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries in columns: `codes` has a line for each word. Without `order` nothing is known of any."""

    codes: Int64Array
    files: np.ndarray
    positions: np.ndarray
    order: PackedOrder | None = None

    def __len__(self) -> int:
        return len(self.files)

    @staticmethod
    def none(words: int) -> _Entries:
        numbers = np.zeros(0, dtype=np.int32)
        return _Entries(np.zeros((words, 0), dtype=np.int64), numbers, numbers)

    @staticmethod
    def joined(parts: Sequence[_Entries]) -> _Entries:
        if len(parts) == 1:
            return parts[0]
        return _Entries(
            np.concatenate([part.codes for part in parts], axis=1),
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.positions for part in parts]),
            _joined_orders(parts),
        )

    def take(self, chosen: Any) -> _Entries:
        """Some entries: a slice or numbers of them."""
        # Of codes of two words, `np.take` is ten times as fast as an index.
        codes = self.codes[:, chosen] if isinstance(chosen, slice) else np.take(self.codes, chosen, axis=1)
        order = self.order and self.order.take(chosen)
        return _Entries(codes, self.files[chosen], self.positions[chosen], order)

    def in_order(self) -> Iterator[_Entries]:
        """The entries in the order of their codes, in pieces that stay in the processor's cache."""
        first = self.codes[0]
        bits = len(first).bit_length()
        least, most = (int(first.min()), int(first.max())) if bits else (0, 0)
        if (most - least).bit_length() + bits > _WORD_BITS or len(self.codes) > 1:
            yield from map(self.take, _pieces(np.argsort(first)))
            return
        # A number that holds both code and place is sorted in half of the time, and the code is not looked up again.
        packed = (first - least).view(np.uint64) << np.uint64(bits) | np.arange(len(first), dtype=np.uint64)
        packed.sort()
        for piece in _pieces(packed):
            codes = (piece >> np.uint64(bits)).view(np.int64) + least
            chosen = (piece & np.uint64(2**bits - 1)).view(np.int64)
            order = self.order and self.order.take(chosen)
            yield _Entries(codes.reshape(1, -1), self.files[chosen], self.positions[chosen], order)

    def in_blocks(self, block: int, layout: OrderLayout) -> np.ndarray:
        """The bytes of each block of so many entries: an array of a line for each."""
        count = len(self) // block
        files, rest = self.files, []
        if layout:
            order = self.order or PackedOrder.unknown(len(self))
            files = np.where(order.is_known, files, ~files)
            rest = [order.laid_out(layout).content.reshape(count, -1)]
        columns = [*self.codes, files, self.positions]
        parts = [np.ascontiguousarray(column).reshape(count, block).view(np.uint8) for column in columns]
        return np.concatenate([*parts, *rest], axis=1)

    @staticmethod
    def of_blocks(content: np.ndarray, words: int, block: int, layout: OrderLayout) -> _Entries:
        """The entries in blocks as `in_blocks` gives them."""
        start = 0

        def column(kind: type[np.number[Any]]) -> np.ndarray:
            nonlocal start
            stop = start + np.dtype(kind).itemsize * block
            found = np.ascontiguousarray(content[:, start:stop]).view(kind).ravel()
            start = stop
            return found

        codes = np.stack([column(np.int64) for _ in range(words)])
        files, positions = column(np.int32), column(np.int32)
        if not layout:
            return _Entries(codes, files, positions)
        is_known = files >= 0
        order = PackedOrder(layout, content[:, start:].reshape(len(files), -1), is_known)
        return _Entries(codes, np.where(is_known, files, ~files), positions, order)


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that have one of some codes: the numbers of the code and of the file in the run, the position, the order."""

    places: Int64Array
    files: Int64Array
    positions: Int64Array
    order: PackedOrder | None = None

    def __len__(self) -> int:
        return len(self.files)

    @staticmethod
    def joined(parts: Sequence[Hits]) -> Hits:
        """Those of several runs, or parts of one."""
        none = np.zeros(0, dtype=np.int64)
        return Hits(
            np.concatenate([none, *(part.places for part in parts)]),
            np.concatenate([none, *(part.files for part in parts)]),
            np.concatenate([none, *(part.positions for part in parts)]),
            _joined_orders(parts),
        )


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[start : start + _WRITTEN_ENTRIES] for start in range(0, len(values), _WRITTEN_ENTRIES))


def _joined_orders(parts: Sequence[_Entries] | Sequence[Hits]) -> PackedOrder | None:
    if all(part.order is None for part in parts):
        return None
    return PackedOrder.joined([part.order or PackedOrder.unknown(len(part)) for part in parts])


class KeyRun:
    """An open run. Thread-safe."""

    def __init__(self, store: Store, path: str, key: IndexedKey) -> None:
        """Open it. Raises UnusableRunError if it is not a whole run of this table and key, and the store's errors."""
        self.path = path
        self._name = f"the run {path} of {store.url}"
        self._words = key.words
        # The runs of a store are forgotten with it.
        self._store = weakref.ref(store)
        source = store.open_input(path)
        self._at_once = store.small_reads_at_once
        self._is_far = self._at_once > 1 and source.size() > _COPIED_FROM
        self._copy: LocalCopy | None = None
        try:
            head, blocks_size = self._head(source)
            metadata = {name.decode(): value.decode() for name, value in (head.schema.metadata or {}).items()}
            if metadata.get("table") != key.table_id or metadata.get("key") != key.columns:
                raise UnusableRunError(self.path, f"{self._name} is of another table or key")
            if metadata.get("block") != str(BLOCK):
                raise UnusableRunError(self.path, f"{self._name} has blocks of another size")
            self.paths: pa.Array = head["paths"].chunk(0).values.cast(pa.string())
            self.rows: Int64Array = head["rows"].chunk(0).values.to_numpy()
            self._fences: Int64Array = head["fences"].chunk(0).values.to_numpy()
            self._sums = head["sums"].chunk(0).values.to_numpy()
            self._tail = int(metadata["tail"])
            order = metadata.get("order")
            self._layout, self._order = key.order.read(order) if order else ((), [])
        except (ValueError, LookupError, AttributeError, struct.error, pa.ArrowException) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}") from error
        self._width = BLOCK * (8 * key.words + 8 + (stored_bytes(self._layout) if self._layout else 0))
        # How many times larger an entry is than the limits expect.
        self.share = max(1.0, self._width / (_ENTRY * BLOCK))
        whole = len(self._fences) - bool(self._tail)
        has_size = blocks_size == whole * self._width + self._tail * (self._width // BLOCK)
        if not has_size or len(self.paths) != len(self.rows) or len(self._sums) != len(self._fences):
            raise UnusableRunError(self.path, f"{self._name} has other sizes than its head says")
        self._all: _Entries | None = None
        if len(self._fences) * self.share <= _SMALL_BLOCKS:
            self._all = self._loaded(np.arange(len(self._fences)), source)

    def __len__(self) -> int:
        """How many entries it has."""
        return (len(self._fences) - bool(self._tail)) * BLOCK + self._tail

    def _head(self, source: Any) -> tuple[pa.Table, int]:
        size = source.size()
        trailer = _part(source, size - _TRAILER.size, _TRAILER.size)
        blocks_size, head_size, checksum, magic = _TRAILER.unpack(trailer)
        if magic not in (_MAGIC, _MAGIC_WITH_ORDER) or blocks_size + head_size + _TRAILER.size != size:
            message = "it is torn, or no run"
            raise ValueError(message)
        content = _part(source, blocks_size, head_size)
        if zlib.crc32(content) != checksum:
            message = "its head is damaged"
            raise ValueError(message)
        return pa.ipc.open_stream(arrow_input(content)).read_all(), blocks_size

    def _opened(self, ranges: int) -> Any:
        """What to read so many ranges from. It is not kept open, as a process can have many runs."""
        if self._copy is not None:
            return self._copy
        store = self._store()
        assert store is not None, "the store is in use"
        source = store.open_input(self.path)
        if self._is_far and ranges > _MOST_REQUESTS and LocalCopy.total + source.size() <= _MOST_COPIED:
            # A reader of the store mostly waits, and the run never changes.
            size, start = source.size(), 0
            copy = LocalCopy(size)
            while start < size:
                content = _part(source, start, min(_COPIED_AT_ONCE, size - start))
                copy.write(content)
                start += len(content)
            source = self._copy = copy
        return source

    def find(self, codes: Int64Array) -> Hits:
        """The entries with one of `codes`, an array of a line for each word. Raises UnusableRunError."""
        return Hits.joined(list(self._found(codes, np.argsort(codes[0]))))

    def _found(self, codes: Int64Array, order: Int64Array) -> Iterator[Hits]:
        wanted = codes[0, order]
        # Equal codes can begin in the block before the first one that starts with them.
        first = np.maximum(np.searchsorted(self._fences, wanted, "left") - 1, 0)
        last = np.searchsorted(self._fences, wanted, "right") - 1
        can_match = last >= 0
        first, last, order, wanted = first[can_match], last[can_match], order[can_match], wanted[can_match]
        if not len(order):
            return
        marks = np.zeros(len(self._fences) + 1, dtype=np.int64)
        np.add.at(marks, first, 1)
        np.add.at(marks, last + 1, -1)
        touched = np.flatnonzero(np.cumsum(marks)[:-1])
        if len(touched) * self.share > _MOST_BLOCKS and len(order) > 1:
            half = len(order) // 2
            yield from self._found(codes, order[:half])
            yield from self._found(codes, order[half:])
            return
        entries = self._blocks(touched)
        starts = np.searchsorted(entries.codes[0], wanted, "left")
        counts = np.searchsorted(entries.codes[0], wanted, "right") - starts
        chosen = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        places = np.repeat(order, counts)
        if self._words > 1:
            is_equal = (entries.codes[1:, chosen] == codes[1:, places]).all(axis=0)
            chosen, places = chosen[is_equal], places[is_equal]
        found = self._believed(entries.take(chosen))
        yield Hits(places, found.files.astype(np.int64), found.positions.astype(np.int64), found.order)

    def between(self, start: int | None, stop: int | None) -> _Entries:
        """The entries with codes from `start` on, and below `stop`, by their first words. Raises UnusableRunError."""
        first = 0 if start is None else max(int(np.searchsorted(self._fences, start, "left")) - 1, 0)
        last = len(self._fences) if stop is None else int(np.searchsorted(self._fences, stop, "left"))
        found = self._blocks(np.arange(first, last))
        begin = 0 if start is None else int(np.searchsorted(found.codes[0], start, "left"))
        end = len(found) if stop is None else int(np.searchsorted(found.codes[0], stop, "left"))
        return self._believed(found.take(slice(begin, end)))

    def _believed(self, entries: _Entries) -> _Entries:
        """Raise UnusableRunError for a place that its files do not have, which no tidelog wrote."""
        files, positions = entries.files, entries.positions
        has_file = bool(((files >= 0) & (files < len(self.rows))).all())
        if not has_file or ((positions < 0) | (positions >= self.rows[files])).any():
            raise UnusableRunError(self.path, f"{self._name} has rows that its files do not have")
        return entries

    @property
    def layout(self) -> OrderLayout:
        """That of the columns of the order, if it has them."""
        return tuple(self._layout[place] for place in self._order)

    @property
    def fences(self) -> Int64Array:
        """The first code of each block, or its first word."""
        return self._fences

    def _blocks(self, touched: Int64Array) -> _Entries:
        if self._all is not None and len(touched) < len(self._fences):
            chosen = (touched.reshape(-1, 1) * BLOCK + np.arange(BLOCK)).ravel()
            chosen = chosen[chosen < len(self)]
            return self._all.take(chosen)
        return self._loaded(touched) if self._all is None else self._all

    def _loaded(self, touched: Int64Array, source: Any = None) -> _Entries:
        """Read blocks, neighbours together, and check them."""
        ranges = np.split(touched, np.flatnonzero(np.diff(touched) > 1) + 1)
        pieces = [piece for blocks in ranges if len(blocks) for piece in self._pieces(blocks)]
        if self._is_far and self._copy is None and 1 < len(pieces) <= _MOST_REQUESTS:
            with ThreadPoolExecutor(min(len(pieces), self._at_once), "tidelog-keys") as threads:
                parts = list(threads.map(lambda piece: self._checked(self._source(1), *piece), pieces))
        else:
            source = self._source(len(pieces)) if source is None else source
            parts = [self._checked(source, *piece) for piece in pieces]
        # All whole blocks at once, as there can be many pieces. The last block is shorter.
        by_length: dict[int, list[np.ndarray]] = {}
        for content, length in parts:
            by_length.setdefault(length, []).append(content)
        entries = [self._entries(np.concatenate(found), length) for length, found in by_length.items()]
        return _Entries.joined(entries) if entries else _Entries.none(self._words)

    def _entries(self, content: np.ndarray, block: int) -> _Entries:
        entries = _Entries.of_blocks(content, self._words, block, self._layout)
        return replace(entries, order=entries.order.select(self._order) if entries.order and self._order else None)

    def _source(self, ranges: int) -> Any:
        try:
            return self._opened(ranges)
        except (TidelogError, OSError, ValueError) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}", is_final=False) from error

    def _pieces(self, blocks: Int64Array) -> Iterator[tuple[int, int, int, Int64Array]]:
        """Where to read neighbouring blocks: the start, how many, how long each is, and their numbers."""
        is_tail = bool(self._tail) and blocks[-1] == len(self._fences) - 1
        whole = len(blocks) - is_tail
        start = int(blocks[0]) * self._width
        for count, length in ((whole, BLOCK), (int(is_tail), self._tail)):
            if count:
                width = self._width // BLOCK * length
                yield start, count, width, blocks[whole:] if length != BLOCK else blocks[:whole]
                start += count * width

    def _checked(self, source: Any, start: int, count: int, width: int, blocks: Int64Array) -> tuple[np.ndarray, int]:
        try:
            content = np.frombuffer(_part(source, start, count * width), dtype=np.uint8).reshape(count, width)
        except (TidelogError, OSError) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}", is_final=False) from error
        except (ValueError, pa.ArrowException) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}") from error
        for block, row in zip(blocks, content, strict=True):
            if zlib.crc32(row.data) != self._sums[block]:
                raise UnusableRunError(self.path, f"{self._name} is damaged in block {block}")
        return content, width // (self._width // BLOCK)


def _part(source: Any, start: int, size: int) -> bytes:
    """A part of an open file. Raises ValueError if the file is shorter."""
    found = source.read_at(size, start) if start >= 0 else b""
    if len(found) != size:
        message = "it ends early"
        raise ValueError(message)
    return bytes(found)


# The open runs of each store, by their path and key; None for one that cannot be used.
_Opened: TypeAlias = OrderedDict[tuple[str, IndexedKey], KeyRun | None]
_open: weakref.WeakKeyDictionary[Store, _Opened] = weakref.WeakKeyDictionary()
_lock = Lock()


def open_runs(store: Store, key: IndexedKey, paths: Sequence[str] | None = None) -> list[KeyRun]:
    """The runs of a table that can be used, those with the most entries first. A store opens each once.

    `paths` are those of `listed_runs`, if it was called before.
    """
    paths = listed_runs(store) if paths is None else paths
    listed = set(paths)
    with _lock:
        known = _open.setdefault(store, OrderedDict())
        for place in [place for place in known if place[0] not in listed]:
            del known[place]
        are_new = sum((path, key) not in known for path in paths) > 1
    if are_new and store.small_reads_at_once > 1:
        with ThreadPoolExecutor(store.small_reads_at_once, "tidelog-keys") as threads:
            runs = list(threads.map(partial(_opened, store, key), paths))
    else:
        runs = [_opened(store, key, path) for path in paths]
    return sorted((run for run in runs if run is not None), key=len, reverse=True)


def listed_runs(store: Store) -> list[str]:
    """The paths of the runs; none if they cannot be listed, as the index is only a hint."""
    try:
        return run_paths(store)
    except (TidelogError, OSError) as error:
        _LOGGER.debug("the key index of %s cannot be listed: %s", store.url, error)
        return []


def useless_runs(store: Store, key: IndexedKey) -> list[str]:
    """The paths of the runs that were opened and are damaged, or of another table or key."""
    with _lock:
        return [path for (path, known), run in _open.get(store, {}).items() if known == key and run is None]


def run_paths(store: Store) -> list[str]:
    """The paths of all files that have the name of a run."""
    return [f"{KEYS_FOLDER}/{name}" for name in store.names(KEYS_FOLDER) if name.endswith(ENDING)]


def forget(store: Store, key: IndexedKey, path: str) -> None:
    """Do not use a run of this store again."""
    with _lock:
        _open.setdefault(store, OrderedDict())[path, key] = None


def _opened(store: Store, key: IndexedKey, path: str) -> KeyRun | None:
    place = (path, key)
    with _lock:
        known = _open.setdefault(store, OrderedDict())
        if place in known:
            known.move_to_end(place)
            return known[place]
    run = None
    try:
        run = KeyRun(store, path, key)
    except UnusableRunError as error:
        _LOGGER.debug("%s", error)
        if not error.is_final:
            return None
    except (TidelogError, OSError) as error:
        _LOGGER.debug("%s of %s cannot be read: %s", path, store.url, error)
        return None  # it may be readable later
    with _lock:
        known[place] = run
        while len(known) > _MOST_OPEN:
            known.popitem(last=False)
    return run


# --- merging ----------------------------------------------------------------------------------------------------------

# How many entries a merge has in memory, about.
_MERGED_ENTRIES = 2**21


def merge_runs(
    store: Store, path: str, key: IndexedKey, runs: Sequence[KeyRun], kept: Sequence[BoolArray]
) -> Iterator[None]:
    """Write one run with the entries of several, of which only the `kept` files count. Yields after each piece.

    The file is there once the iteration has ended. Raises UnusableRunError if one of the runs cannot be read.
    """
    numbers, first = [], 0
    for own in kept:
        numbers.append(np.where(own, first + np.cumsum(own) - 1, -1))
        first += int(own.sum())
    with store.create(path) as sink:
        layouts = [run.layout for run in runs if run.layout]
        merged = RunFile(sink, key, joined_layout(layouts) if layouts else ())
        for start, stop in _ranges(runs):
            parts = [_kept(run.between(start, stop), number) for run, number in zip(runs, numbers, strict=True)]
            entries = _Entries.joined(parts)
            for piece in entries.in_order():
                merged.append(piece)
            yield
        paths = [
            path for run, own in zip(runs, kept, strict=True) for path in run.paths.filter(pa.array(own)).to_pylist()
        ]
        merged.end(paths, np.concatenate([run.rows[own] for run, own in zip(runs, kept, strict=True)]).tolist())


def _ranges(runs: Sequence[KeyRun]) -> Iterator[tuple[int | None, int | None]]:
    """Ranges of codes with about as many entries each, from one code (None: all) up to the next."""
    fences = np.sort(np.concatenate([run.fences for run in runs]))
    step = max(1, int(_MERGED_ENTRIES // BLOCK / max(run.share for run in runs)))
    cuts = np.unique(fences[step::step]).tolist()
    yield from zip([None, *cuts], [*cuts, None], strict=True)


def _kept(entries: _Entries, number: Int64Array) -> _Entries:
    files = number[entries.files]
    return replace(entries, files=files.astype(np.int32)).take(np.flatnonzero(files >= 0))

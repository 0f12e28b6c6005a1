"""Runs of the key index: at which positions of some data files the rows with a key are.

A run is a file `_tidelog/keys/<uuid>.run` that never changes. It is a hint: rows are found without it, and it can be
deleted at any time. It has an entry for each row of its data files, whether the row is live or not, except for rows
with a null in the key. Entries are sorted by the key's code, which `indexed_key` computes.

The entries are in blocks of BLOCK, each with the codes first, then the numbers of the files, then the positions, all
little-endian. A lookup reads the blocks that can hold a code. After the blocks there is a filter for each of them
(`block_filter`), and then the head (`run_head`): the first code and the CRC-32 of each block, the paths and row counts
of the data files, and what the run belongs to.

In a table with an order (`tidelog.orderBy`), a block ends with the order of each row, as `packed_order` has it, and the
head says which columns these are. Where a row's order is not known, the number of its file is inverted.

A run that contradicts itself is not used: by its sizes, checksums and counts, the order of its codes, or rows that its
files do not have. Nobody can see that a row is missing from a run, or has another row's code, without reading the data
file. So who can write into the folder can hide rows from lookups by key; they could as well delete them.
"""

from __future__ import annotations

import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.block_filter import MOST_FILTERED_BLOCKS, filter_lines, may_have
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.packed_order import OrderLayout, joined_layout
from tidelog.log.data.room import CacheByStore, Room
from tidelog.log.data.run_entries import Entries, Hits
from tidelog.log.data.run_head import RunHead, read_part
from tidelog.log.data.spill import LocalCopy
from tidelog.log.errors import TidelogError
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

KEYS_FOLDER = "_tidelog/keys"
ENDING = ".run"
BLOCK = 512
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
# A lookup uses filters from this number of codes on, unless each block of a run probably has one of them.
_FILTERED_FROM, _CODES_PER_BLOCK = 32, 8
_POSITION_BITS = 32
# The keys of so many rows, or of so many bytes, or a few more, are in memory for one run.
MOST_KEYS, MOST_KEY_BYTES = 2**22, 2**27


class UnusableRunError(Exception):
    """The run at `path` is damaged, gone, or of another table or key. Its files count as not covered."""

    def __init__(self, path: str, message: str, *, is_final: bool = True, head_bytes: int = 0) -> None:
        super().__init__(message)
        self.path = path
        # Not so if the store did not answer, or if the run was merged with others meanwhile.
        self.is_final = is_final
        # What its head takes, if there is no room for it.
        self.head_bytes = head_bytes


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileKeys:
    """A data file, as its action names it, and the columns `stored` of all its rows, one after the other."""

    path: str
    rows: pa.Table


def write_run(store: Store, path: str, key: IndexedKey, files: Sequence[FileKeys]) -> None:
    """Write a run for some files, whose keys are in memory."""
    entries = Entries.joined([_of_file(key, number, file.rows) for number, file in enumerate(files)])
    with store.create_unsynced(path) as sink:
        run = RunFile(sink, key, entries.order.layout if entries.order else ())
        for piece in entries.in_order():
            run.append(piece)
        run.end([file.path for file in files], [file.rows.num_rows for file in files])


def new_run_path(system: System) -> str:
    """A path below the table for a new run."""
    return f"{KEYS_FOLDER}/{system.uuid()}{ENDING}"


def _of_file(key: IndexedKey, number: int, rows: pa.Table) -> Entries:
    """The entries of the rows that have a key."""
    positions = np.arange(rows.num_rows, dtype=np.int32)
    for name in key.names:
        if rows[name].null_count:
            has_value = np.asarray(rows[name].is_valid())
            rows, positions = rows.filter(pa.array(has_value)), positions[has_value]
    numbers = np.broadcast_to(np.int32(number), len(positions))
    return Entries(key.codes(rows), numbers, positions, key.order.packed(rows) if key.order.names else None)


class RunFile:
    """A run that is being written. Entries are appended in the order of their codes.

    `layout` is that of the order of all entries; without columns the run has no order.
    """

    def __init__(self, sink: BinaryIO, key: IndexedKey, layout: OrderLayout) -> None:
        self._sink = sink
        self._key = key
        self._layout = layout
        self._rest = Entries.none(key.words)
        self._fences: list[Int64Array] = []
        self._sums: list[int] = []
        self._lines: list[np.ndarray] = []
        self._size = 0

    def append(self, found: Entries) -> None:
        """Write more entries. Less than a block stays in memory."""
        if self._rest:
            found = Entries.joined([self._rest, found])
        whole = len(found) // BLOCK * BLOCK
        self._write(found.take(slice(whole)), BLOCK)
        self._rest = found.take(slice(whole, len(found)))

    def end(self, paths: Sequence[str], rows: Sequence[int]) -> None:
        """Complete the file. `paths` and `rows` are those of the data files, dead rows included."""
        if self._rest:
            self._write(self._rest, len(self._rest))
        fences = np.concatenate(self._fences) if self._fences else np.zeros(0, dtype=np.int64)
        filter_sum = None
        if 0 < len(fences) <= MOST_FILTERED_BLOCKS:
            # They say nothing without the first codes of the blocks, so they vouch for them as well.
            lines = np.concatenate(self._lines).tobytes()
            filter_sum = zlib.crc32(lines, zlib.crc32(fences.tobytes()))
            self._sink.write(lines)
            self._size += len(lines)
        of_files = (pa.array(paths, pa.string()), np.array(rows, dtype=np.int64))
        sums = np.array(self._sums, dtype=np.uint32)
        head = RunHead(BLOCK, len(self._rest), *of_files, fences, sums, self._layout, filter_sum=filter_sum)
        self._sink.write(head.written(self._key, self._size))

    def _write(self, entries: Entries, block: int) -> None:
        if not entries:
            return
        content = entries.in_blocks(block, self._layout)
        # Not a view, which would keep all codes.
        self._fences.append(entries.codes[0, ::block].copy())
        self._sums += (zlib.crc32(row) for row in content)
        if len(self._sums) <= MOST_FILTERED_BLOCKS:
            self._lines.append(filter_lines(entries.codes[0], block, BLOCK))
        else:
            self._lines = []
        self._sink.write(content.data)
        self._size += content.nbytes


# --- reading ----------------------------------------------------------------------------------------------------------


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
            self._head = head = RunHead.read(source, key, BLOCK)
        except ValueError as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be used: {error}") from error
        self._fences = head.fences
        self._width = BLOCK * head.entry_bytes(key.words)
        self._count = len(head)
        # The filters are behind the blocks.
        self._filters_at = self._width // BLOCK * self._count
        # How many times larger an entry is than the limits expect.
        self.share = max(1.0, self._width / (_ENTRY * BLOCK))
        self._lines: np.ndarray | None = None
        self._is_begin_checked = False
        self._all: Entries | None = None
        size = head.size + _HEAD_OBJECTS
        if not _HEADS.take(self, size) and not (_makes_room(size, store) and _HEADS.take(self, size)):
            message = f"{self._name} is not used: the heads of all runs take too much memory"
            raise UnusableRunError(self.path, message, is_final=False, head_bytes=size)
        if len(self._fences) * self.share <= _SMALL_BLOCKS and _CONTENT.take(self, len(self._fences) * self._width):
            self._all = self._loaded(np.arange(len(self._fences)), source)

    def __len__(self) -> int:
        """How many entries it has."""
        return self._count

    @property
    def paths(self) -> pa.Array:
        """The paths of its data files."""
        return self._head.paths

    @property
    def rows(self) -> Int64Array:
        """How many rows each data file has, dead ones included."""
        return self._head.rows

    @property
    def head_bytes(self) -> int:
        """The size of its head."""
        return self._head.size

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
                content = read_part(source, start, min(_COPIED_AT_ONCE, size - start))
                copy.write(content)
                start += len(content)
            source = self._copy = copy
        return source

    def find(self, codes: Int64Array, *, mostly_absent: bool = False) -> Hits:
        """The entries with one of `codes`, an array of a line for each word. Raises UnusableRunError.

        If most of the codes are in other runs, the filters save many blocks.
        """
        order = np.argsort(codes[0])
        wanted = codes[0, order]
        are_distinct = not (wanted[1:] == wanted[:-1]).any()
        if mostly_absent:
            order = order[self._passes(wanted)]
        parts = [self._unique(part) if are_distinct else part for part in self._found(codes, order)]
        return self._unique(Hits.joined(parts)) if are_distinct and len(parts) > 1 else Hits.joined(parts)

    def _found(self, codes: Int64Array, order: Int64Array) -> Iterator[Hits]:
        first, last = self._reach(codes[0, order])
        if self._are_fences_checked or self._is_begin_checked:
            order, first, last = order[last >= 0], first[last >= 0], last[last >= 0]
        if not len(order) or not len(self._fences):
            return
        # A code below the first one is not there if the first block begins as the head says.
        last = np.maximum(last, 0)
        marks = np.zeros(len(self._fences) + 1, dtype=np.int64)
        np.add.at(marks, first, 1)
        np.add.at(marks, last + 1, -1)
        touched = np.flatnonzero(np.cumsum(marks)[:-1])
        most = max(1, int(_MOST_BLOCKS / self.share))
        if len(touched) > most and len(order) > 1:
            half = len(order) // 2
            yield from self._found(codes, order[:half])
            yield from self._found(codes, order[half:])
            return
        # More than one part only for one code that many rows have.
        for start in range(0, len(touched), most):
            part = touched[start : start + most]
            entries = self._blocks(part)
            yield self._matching(entries, codes, order)
        if not self._are_fences_checked:
            self._check_ends(part, entries, codes[0, order], last)

    def _reach(self, wanted: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The first and the last block that can have each code; -1 as the last one if the code is below all."""
        # Equal codes can begin in the block before the first one that starts with them.
        first = np.maximum(np.searchsorted(self._fences, wanted, "left") - 1, 0)
        return first, np.searchsorted(self._fences, wanted, "right") - 1

    def _matching(self, entries: Entries, codes: Int64Array, order: Int64Array) -> Hits:
        """Those of some entries that have one of the codes whose numbers are `order`."""
        wanted = codes[0, order]
        starts = np.searchsorted(entries.codes[0], wanted, "left")
        counts = np.searchsorted(entries.codes[0], wanted, "right") - starts
        chosen = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        places = np.repeat(order, counts)
        if self._words > 1:
            is_equal = (entries.codes[1:, chosen] == codes[1:, places]).all(axis=0)
            chosen, places = chosen[is_equal], places[is_equal]
        found = self._believed(entries.take(chosen))
        return Hits(places, found.files.astype(np.int64), found.positions.astype(np.int64), found.order)

    def _check_ends(self, touched: Int64Array, entries: Entries, wanted: Int64Array, last: Int64Array) -> None:
        """Where a code is after the end of the last block that can have it, check that the next block begins later.

        Otherwise a head with a wrong first code would hide rows.
        """
        ends = np.minimum(np.arange(1, len(touched) + 1) * BLOCK, len(entries)) - 1
        is_after = wanted > entries.codes[0, ends[np.searchsorted(touched, last)]]
        following = np.setdiff1d(last[is_after] + 1, touched)
        following = following[following < len(self._fences)]
        if len(following):
            self._loaded(following)

    @property
    def _are_fences_checked(self) -> bool:
        """Whether the first codes of all blocks are known to be those that were written."""
        return self._all is not None or self._lines is not None

    def _passes(self, wanted: Int64Array) -> BoolArray:
        """Which of the codes this run may have, by its filters; all of them if reading blocks is as good."""
        every = np.ones(len(wanted), dtype=bool)
        if self._all is not None or not _FILTERED_FROM <= len(wanted) <= _CODES_PER_BLOCK * len(self._fences):
            return every
        lines = self._filter()
        if lines is None:
            return every
        first, last = self._reach(wanted)
        counts = last - first + 1
        blocks = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        numbers = np.repeat(np.arange(len(wanted)), counts)
        found = ~every
        found[numbers[may_have(lines, wanted[numbers], blocks)]] = True
        return found

    def _filter(self) -> np.ndarray | None:
        """The filters of all blocks, which stay in memory; None if there are none, or no room for them."""
        size = self._head.filter_bytes
        if self._lines is None and size and _CONTENT.take(self, size):
            content = self._part(self._source(1), self._filters_at, size)
            if zlib.crc32(content, zlib.crc32(self._fences.tobytes())) != self._head.filter_sum:
                raise UnusableRunError(self.path, f"{self._name} has a damaged filter")
            lines = np.frombuffer(content, dtype=np.uint8).reshape(len(self._fences), -1)
            # Each block has its first code. Bits of other codes, or set by another rule, would hide rows.
            if not may_have(lines, self._fences, np.arange(len(self._fences))).all():
                raise UnusableRunError(self.path, f"{self._name} has a filter of other codes")
            self._lines = lines
        return self._lines

    def between(self, start: int | None, stop: int | None) -> Entries:
        """The entries with codes from `start` on, and below `stop`, by their first words. Raises UnusableRunError."""
        first = 0 if start is None else max(int(np.searchsorted(self._fences, start, "left")) - 1, 0)
        last = len(self._fences) if stop is None else int(np.searchsorted(self._fences, stop, "left"))
        found = self._blocks(np.arange(first, last))
        begin = 0 if start is None else int(np.searchsorted(found.codes[0], start, "left"))
        end = len(found) if stop is None else int(np.searchsorted(found.codes[0], stop, "left"))
        return self._believed(found.take(slice(begin, end)))

    def _believed(self, entries: Entries) -> Entries:
        """Raise UnusableRunError for a place that its files do not have, which no tidelog wrote."""
        files, positions = entries.files, entries.positions
        has_file = bool(((files >= 0) & (files < len(self.rows))).all())
        if not has_file or ((positions < 0) | (positions >= self.rows[files])).any():
            raise UnusableRunError(self.path, f"{self._name} has rows that its files do not have")
        return entries

    def _unique(self, hits: Hits) -> Hits:
        """Raise UnusableRunError if a row is there twice: it has one key."""
        rows = np.sort(hits.files << _POSITION_BITS | hits.positions)
        if (rows[1:] == rows[:-1]).any():
            raise UnusableRunError(self.path, f"{self._name} has a row twice")
        return hits

    @property
    def layout(self) -> OrderLayout:
        """That of the columns of the order, if it has them."""
        return tuple(self._head.layout[place] for place in self._head.order)

    @property
    def fences(self) -> Int64Array:
        """The first code of each block, or its first word."""
        return self._fences

    def _blocks(self, touched: Int64Array) -> Entries:
        if self._all is not None and len(touched) < len(self._fences):
            chosen = (touched.reshape(-1, 1) * BLOCK + np.arange(BLOCK)).ravel()
            chosen = chosen[chosen < len(self)]
            return self._all.take(chosen)
        return self._loaded(touched) if self._all is None else self._all

    def _loaded(self, touched: Int64Array, source: Any = None) -> Entries:
        """Read blocks, neighbours together, and check them."""
        ranges = np.split(touched, np.flatnonzero(np.diff(touched) > 1) + 1) if len(touched) else []
        if self._is_far and self._copy is None and 1 < len(ranges) <= _MOST_REQUESTS:
            with ThreadPoolExecutor(min(len(ranges), self._at_once), "tidelog-keys") as threads:
                parts = list(threads.map(lambda blocks: self._neighbours(self._source(1), blocks), ranges))
        else:
            source = self._source(len(ranges)) if source is None else source
            parts = [self._neighbours(source, blocks) for blocks in ranges]
        found = Entries.of_blocks(parts, self._words, BLOCK, self._width, self._head.layout)
        if found.order is not None:
            own = self._head.order
            found = replace(found, order=found.order.select(own) if own else None)
        self._require_order(touched, found.codes[0])
        return found

    def _neighbours(self, source: Any, blocks: Int64Array) -> np.ndarray:
        """The bytes of blocks that are one after the other."""
        start, stop = int(blocks[0]) * self._width, min((int(blocks[-1]) + 1) * self._width, self._filters_at)
        content = self._part(source, start, stop - start)
        view = memoryview(content)
        for place, block in enumerate(blocks.tolist()):
            if zlib.crc32(view[place * self._width : (place + 1) * self._width]) != self._head.sums[block]:
                raise UnusableRunError(self.path, f"{self._name} is damaged in block {block}")
        return np.frombuffer(content, dtype=np.uint8)

    def _require_order(self, blocks: Int64Array, codes: Int64Array) -> None:
        """Raise UnusableRunError if codes of these blocks are out of order, or the head has other first codes."""
        starts = np.arange(len(blocks)) * BLOCK
        ends = np.minimum(starts + BLOCK, len(codes)) - 1
        is_last = blocks == len(self._fences) - 1
        following = self._fences[np.where(is_last, 0, blocks + 1)]
        is_so = (codes[1:] >= codes[:-1]).all() and (codes[starts] == self._fences[blocks]).all()
        if not is_so or not (is_last | (codes[ends] <= following)).all():
            raise UnusableRunError(self.path, f"{self._name} is out of order")
        self._is_begin_checked |= bool(len(blocks)) and blocks[0] == 0

    def _source(self, ranges: int) -> Any:
        try:
            return self._opened(ranges)
        except (TidelogError, OSError, ValueError) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}", is_final=False) from error

    def _part(self, source: Any, start: int, size: int) -> bytes:
        try:
            return read_part(source, start, size)
        except (TidelogError, OSError) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}", is_final=False) from error
        except (ValueError, pa.ArrowException) as error:
            raise UnusableRunError(self.path, f"{self._name} cannot be read: {error}") from error


_HEADS, _CONTENT = Room(2**28), Room(2**28)
# What the objects of an open run take, beside its columns.
_HEAD_OBJECTS = 2**12


# The open runs of each store, by their path and key. None for one that cannot be used; a size for one whose head has so
# many bytes that there was no room for it.
_open: CacheByStore[tuple[str, IndexedKey], KeyRun | int | None] = CacheByStore()
_Opened: TypeAlias = OrderedDict[tuple[str, IndexedKey], KeyRun | int | None]


def _makes_room(head_bytes: int, store: Store) -> bool:
    """Close runs of other stores for a head if need be. Returns whether there is room for it."""
    with _open.lock:
        return _open.make_room(_HEADS, head_bytes, store)


def open_runs(store: Store, key: IndexedKey, paths: Sequence[str] | None = None) -> list[KeyRun]:
    """The runs of a table that can be used, those with the most entries first. A store opens each once.

    `paths` are those of `listed_runs`, if it was called before.
    """
    paths = listed_runs(store) if paths is None else paths
    listed = set(paths)
    with _open.lock:
        known = _open.of(store)
        for place in [place for place in known if place[0] not in listed]:
            del known[place]
        are_new = sum((path, key) not in known for path in paths) > 1
    if are_new and store.small_reads_at_once > 1:
        with ThreadPoolExecutor(store.small_reads_at_once, "tidelog-keys") as threads:
            runs = list(threads.map(partial(_opened, store, key, known), paths))
    else:
        runs = [_opened(store, key, known, path) for path in paths]
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
    with _open.lock:
        return [path for (path, known), run in _open.of(store).items() if known == key and run is None]


def are_some_without_room(store: Store, key: IndexedKey) -> bool:
    """Whether there are runs that were not opened because there is no room for their heads."""
    with _open.lock:
        return any(known == key and isinstance(run, int) for (_, known), run in _open.of(store).items())


def run_paths(store: Store) -> list[str]:
    """The paths of all files that have the name of a run."""
    return [f"{KEYS_FOLDER}/{name}" for name in store.names(KEYS_FOLDER) if name.endswith(ENDING)]


def forget(store: Store, key: IndexedKey, path: str) -> None:
    """Do not use a run of this store again."""
    with _open.lock:
        _open.of(store)[path, key] = None


def _opened(store: Store, key: IndexedKey, known: _Opened, path: str) -> KeyRun | None:
    place = (path, key)
    head_bytes = 0
    with _open.lock:
        if place in known:
            known.move_to_end(place)
            found = known[place]
            if not isinstance(found, int):
                return found
            head_bytes = found
    if head_bytes and not _makes_room(head_bytes, store):
        return None  # its head is not read again in vain
    run: KeyRun | int | None = None
    try:
        run = KeyRun(store, path, key)
    except UnusableRunError as error:
        _LOGGER.debug("%s", error)
        if not error.is_final and not error.head_bytes:
            return None
        run = error.head_bytes or None
    except (TidelogError, OSError) as error:
        _LOGGER.debug("%s of %s cannot be read: %s", path, store.url, error)
        return None  # it may be readable later
    with _open.lock:
        known[place] = run
        while len(known) > _MOST_OPEN:
            known.popitem(last=False)
    return None if isinstance(run, int) else run


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
            entries = Entries.joined(parts)
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


def _kept(entries: Entries, number: Int64Array) -> Entries:
    files = number[entries.files]
    return replace(entries, files=files.astype(np.int32)).take(np.flatnonzero(files >= 0))

"""The key index of a table: which rows have one of some keys, without opening a data file.

An entry of a run is a hint. It is believed if its file is live, the row is not in the file's deletion vector, and the
code is that of the key. A run covers a file if it counts as many rows as the file's statistics do. Live files that no
run covers are left to a scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyroaring import BitMap64

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import KeyRun, UnusableRunError, forget, listed_runs, open_runs
from tidelog.log.data.packed_order import PackedOrder
from tidelog.log.data.run_entries import Hits
from tidelog.log.format.actions import AddFile
from tidelog.log.predicate import And, Column, Comparison, Expression, In, Literal
from tidelog.log.state.files import FileValues, to_adds
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


class Located(NamedTuple):
    """The live rows of a file that have one of some keys.

    `place` is that of the file among those asked about, `places` are the numbers of the keys, and `rows` counts the
    file's rows, dead ones included. Positions are in order. `order` has the columns of the table's order, as far as the
    index knows them.
    """

    place: int
    add: AddFile
    positions: Int64Array
    places: Int64Array
    rows: int
    order: PackedOrder | None


class KeyIndex:
    """The runs of a table."""

    def __init__(self, store: Store, key: IndexedKey) -> None:
        self._store = store
        self._key = key
        # How many runs covered the files that were asked about last.
        self.num_used = 0

    @cached_property
    def paths(self) -> list[str]:
        """The paths of its runs, some of which may be useless."""
        return listed_runs(self._store)

    @cached_property
    def _runs(self) -> list[KeyRun]:
        return open_runs(self._store, self._key, self.paths)

    def locate(self, files: pa.Table, keys: pa.Table) -> tuple[list[Located], BoolArray]:
        """The rows of `files`, which are live and have the schema ADD, that have one of `keys`, in the files' order.

        Also which files the index does not cover. `keys` have no nulls.
        """
        while True:
            run_of, number_of, rows_of = self._coverage(files)
            try:
                found = self._hits(run_of, number_of, self._key.codes(keys.select(self._key.names)))
            except UnusableRunError as error:
                # One that is gone was merged with others meanwhile.
                if error.is_final:
                    _LOGGER.warning("%s; its files are scanned", error)
                    forget(self._store, self._key, error.path)
                continue
            self.num_used = len(np.unique(run_of[run_of >= 0]))
            return self._located(files, found, rows_of), run_of < 0

    def _coverage(self, files: pa.Table) -> tuple[Int64Array, Int64Array, Int64Array]:
        """For each file the number of the run that covers it or -1, its number in that run, and its count of rows."""
        nothing = np.full(files.num_rows, -1)
        if not files.num_rows or not self._runs:
            return nothing, nothing, nothing
        paths = pa.chunked_array([run.paths for run in self._runs], pa.string())
        at = pc.index_in(files["path"], value_set=paths.combine_chunks())
        at = np.asarray(pc.fill_null(at, -1), dtype=np.int64)
        counts = np.concatenate([run.rows for run in self._runs])
        known = np.asarray(pc.fill_null(FileValues(files).rows(), -1), dtype=np.int64)
        is_covered = (at >= 0) & (counts[at] == known)
        lengths = [len(run.rows) for run in self._runs]
        runs = np.repeat(np.arange(len(lengths)), lengths)
        numbers = np.concatenate([np.arange(length) for length in lengths])
        return np.where(is_covered, runs[at], -1), np.where(is_covered, numbers[at], -1), known

    def _hits(self, run_of: Int64Array, number_of: Int64Array, codes: Int64Array) -> Hits:
        """The entries for the codes. Their files are the places among those asked about."""
        found: list[Hits] = []
        asked = np.unique(run_of[run_of >= 0]).tolist()
        entries = sum(len(self._runs[number]) for number in asked)
        for number in asked:
            run = self._runs[number]
            try:
                # Most keys are in a run that has most of the entries.
                hits = run.find(codes, mostly_absent=2 * len(run) < entries)
            except UnusableRunError:
                self._runs.remove(run)
                raise
            place_of = np.full(len(run.rows), -1)
            own = np.flatnonzero(run_of == number)
            place_of[number_of[own]] = own
            files = place_of[hits.files]
            is_wanted = files >= 0
            order = hits.order and hits.order.take(is_wanted)
            found.append(Hits(hits.places[is_wanted], files[is_wanted], hits.positions[is_wanted], order))
        return Hits.joined(found)

    def _located(self, files: pa.Table, hits: Hits, rows_of: Int64Array) -> list[Located]:
        if not len(hits.files):
            return []
        order = np.lexsort((hits.positions, hits.files))
        numbers, starts = np.unique(hits.files[order], return_index=True)
        adds = to_adds(files.take(pa.array(numbers)))
        located = []
        for place, add, own in zip(numbers.tolist(), adds, np.split(order, starts[1:]), strict=True):
            is_live = np.ones(len(own), dtype=bool)
            if add.deletion_vector is not None:
                positions = hits.positions[own]
                dead = read_dead_rows(self._store, add.deletion_vector) & BitMap64(positions)
                is_live = ~np.isin(positions, np.fromiter(dead, dtype=np.int64, count=len(dead)))
            if is_live.any():
                chosen, rows = own[is_live], int(rows_of[place])
                known = hits.order and hits.order.take(chosen)
                located.append(Located(place, add, hits.positions[chosen], hits.places[chosen], rows, known))
        return located


# Looking up keys is worth its request only if files can be left out.
_FEW_FILES = 2


class Narrowed(NamedTuple):
    """The files that can have rows for which a predicate is true, and where, by the path of a file; all without it."""

    files: pa.Table
    positions: Mapping[str, BitMap64]


def narrowed(
    store: Store, key: IndexedKey | None, files: pa.Table, predicate: Expression, schema: pa.Schema
) -> Narrowed:
    """Live files without those that have no row with a key which the predicate asks for, as far as an index knows.

    The predicate must ask for a whole number or a text in the only column of the key: `id = 7 AND ...`, `id IN (...)`.
    """
    everything = Narrowed(files, {})
    if key is None or len(key.names) > 1 or files.num_rows < _FEW_FILES:
        return everything
    (name,) = key.names
    values = _asked(predicate, name)
    kind = schema.field(name).type
    known = str if pt.is_string(kind) else int if pt.is_integer(kind) else None
    if not values or not all(type(value) is known for value in values):
        return everything
    try:
        keys = pa.table({name: pa.array(list(values), kind)})
    except (pa.ArrowException, OverflowError):
        return everything  # no value of the column is so large
    index = KeyIndex(store, key)
    if files.num_rows < len(index.paths):
        return everything  # opening the files takes no longer than opening the runs
    located, is_left = index.locate(files, keys)
    is_left[[found.place for found in located]] = True
    positions = {found.add.path: BitMap64(found.positions) for found in located}
    return Narrowed(files.filter(pa.array(is_left)), positions)


def _asked(predicate: Expression, name: str) -> set[Any] | None:
    """The values that a column must have one of; None if the predicate does not say it."""
    match predicate:
        case And(left, right):
            return _asked(left, name) or _asked(right, name)
        case In(Column((column,)), values) if column == name:
            return {value for value in values if value is not None}
        case Comparison("=", Column((column,)), Literal(value)) | Comparison("=", Literal(value), Column((column,))):
            return {value} if column == name else None
        case _:
            return None


def index_of(store: Store, key: IndexedKey | None, names: Sequence[str]) -> KeyIndex | None:
    """The index of a table by the columns `names`, in any order; None if the table has no such index."""
    return KeyIndex(store, key) if key is not None and set(key.names) == set(names) else None

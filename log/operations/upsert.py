"""Staging UPSERT: rows with the keys of the data die, and the data's rows take their place.

The data and its keys are held in memory, and with the change data feed on the old rows as well; of the table only the
key columns of files that may hold one of the keys are read, some files at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Reads, RowDelete, Staged
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.operations.keys import Keys
from tidelog.log.operations.row_matcher import Matched, RowMatcher, file_metrics
from tidelog.log.operations.upsert_data import split_upsert
from tidelog.log.read.change_files import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.state.loader import LogState

UPSERT_METRICS = (
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numRemovedFiles",
    "numAddedFiles",
    "numAddedBytes",
    "numCopiedRows",
    "numDeletionVectorsAdded",
)

# Rows of small files are looked up together, so that the keys are hashed once for all of them, not once a file.
_JOINED_ROWS = 500_000


def stage_upsert(
    state: LogState, writer: DataWriter, data: Any, names: Sequence[str], delete_where: str | None
) -> Staged | None:
    """Each row of `data` replaces the table's rows of its key, whose columns are `names`; None where nothing changes.

    A row for which `delete_where` is true adds nothing. Of several rows of one key in the table all die.
    Raises SchemaMismatchError, DuplicateKeyError, PredicateError.
    """
    written, gone = split_upsert(data, writer.schema, names, delete_where)
    written, gone = writer.prepared(written), writer.prepared(gone)
    if not written.num_rows and not gone.num_rows:
        return None
    keys = Keys(pa.concat_tables([written.select(gone.column_names), gone]), names, writer.store.url)
    change = _Upsert(state, writer, keys, written.num_rows)
    deletes = change.deletes()
    if not written.num_rows and not deletes:
        return None
    adds = writer.write(written)
    cdc = change.changes(written) if change.feed else []
    return staged_upsert(change.pairs, keys, delete_where, deletes, adds, cdc)


class Pairs:
    """Which keys have rows in the table; the first `written` of them are those of rows to be added."""

    def __init__(self, keys: int, written: int) -> None:
        self.written = written
        self.matched: BoolArray = np.zeros(keys, dtype=bool)

    def followed(self, places: Int64Array) -> BoolArray:
        """For each of some more of the table's rows, whose keys have these places, whether a new row follows it.

        A second row of a key has no image of its own among the new ones: the feed tells it as deleted.
        """
        first = np.zeros(len(places), dtype=bool)
        first[np.unique(places, return_index=True)[1]] = True
        follows = first & ~self.matched[places] & (places < self.written)
        self.matched[places] = True
        return follows


def staged_upsert(
    pairs: Pairs,
    keys: Keys,
    delete_where: str | None,
    deletes: Sequence[RowDelete],
    adds: Sequence[AddFile],
    cdc: Sequence[AddCDCFile],
) -> Staged:
    """The operation of which these are the whole."""
    updated = int(pairs.matched[: pairs.written].sum())
    metrics = {
        "numSourceRows": keys.table.num_rows,
        "numTargetRowsInserted": pairs.written - updated,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": sum(len(delete.positions) for delete in deletes) - updated,
        **file_metrics(deletes, adds),
        "numAddedBytes": sum(add.size for add in adds),
    }
    return Staged(
        operation="MERGE",
        operation_class=OperationClass.UPDATE_DELETE,
        adds=tuple(adds),
        deletes=tuple(deletes),
        cdc=tuple(cdc),
        reads=Reads(keys.predicate(), keys.table),
        parameters=_parameters(keys.names, delete_where),
        metrics=metrics,
    )


class KeyMatcher(RowMatcher):
    """The rows that some keys have in the table."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys) -> None:
        super().__init__(state, writer)
        self._keys = keys

    def found(self) -> Iterator[tuple[AddFile, Int64Array, Int64Array]]:
        """The files that hold rows of the keys: the rows' positions, and the places of their keys."""
        waiting: list[tuple[AddFile, Int64Array, pa.Table]] = []
        length = 0
        for add in self.candidates(self._keys.predicate()):
            positions, rows = self._read_keys(add)
            waiting.append((add, positions, rows))
            length += rows.num_rows
            if length >= max(_JOINED_ROWS, self._keys.table.num_rows):
                yield from self._looked_up(waiting)
                waiting, length = [], 0
        if waiting:
            yield from self._looked_up(waiting)

    def old_changes(self, old: pa.Table, follows: BoolArray) -> list[AddCDCFile]:
        """The change rows of rows that die, `follows` those that a new row follows."""
        before = self.cdc(old.filter(pa.array(follows)), UPDATE_PREIMAGE)
        return before + self.cdc(old.filter(pa.array(~follows)), DELETE)

    def new_changes(self, new: pa.Table, known: BoolArray) -> list[AddCDCFile]:
        """The change rows of rows that are added, `known` those whose key was there."""
        after = self.cdc(new.filter(pa.array(known)), UPDATE_POSTIMAGE)
        return after + self.cdc(new.filter(pa.array(~known)), INSERT)

    def _looked_up(
        self, waiting: Sequence[tuple[AddFile, Int64Array, pa.Table]]
    ) -> Iterator[tuple[AddFile, Int64Array, Int64Array]]:
        places = self._keys.places(pa.concat_tables([rows for _, _, rows in waiting]))
        start = 0
        for add, positions, rows in waiting:
            own = places[start : start + rows.num_rows]
            start += rows.num_rows
            hit = own >= 0
            if hit.any():
                yield add, positions[hit], own[hit]

    def _read_keys(self, add: AddFile) -> tuple[Int64Array, pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in self._keys.names])
        pieces = list(read_numbered_batches(self._writer.store, DataFile.of(add), schema))
        positions = np.concatenate([np.empty(0, dtype=np.int64), *(numbers for numbers, _ in pieces)])
        return positions, pa.Table.from_batches([batch for _, batch in pieces], schema=schema)

    def whole_rows(self, add: AddFile, positions: BitMap64) -> pa.Table:
        pieces = read_numbered_batches(self._writer.store, DataFile.of(add), self.schema, only=positions)
        return pa.Table.from_batches([batch for _, batch in pieces], schema=self.schema)


class _Upsert(KeyMatcher):
    """Those of the keys of the data, and what becomes of them; the first `written` keys are those of added rows."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys, written: int) -> None:
        super().__init__(state, writer, keys)
        self.pairs = Pairs(keys.table.num_rows, written)
        self._old_rows: list[pa.Table] = []
        self._new_rows_follow: list[BoolArray] = []

    def deletes(self) -> list[RowDelete]:
        """How the rows die, file by file."""
        deletes = []
        for add, positions, places in self.found():
            rows = self.whole_rows(add, BitMap64(positions)) if self.feed else pa.table({})
            self._new_rows_follow.append(self.pairs.followed(places))
            self._old_rows.append(rows)
            deletes.append(self.delete(Matched(add, BitMap64(positions), rows)))
        return deletes

    def changes(self, written: pa.Table) -> list[AddCDCFile]:
        """The change rows of the whole commit: a reader looks at nothing else in a version that has any."""
        cdc = []
        if self._old_rows:
            cdc += self.old_changes(pa.concat_tables(self._old_rows), np.concatenate(self._new_rows_follow))
        return cdc + self.new_changes(written, self.pairs.matched[: written.num_rows])


def _parameters(names: Sequence[str], delete_where: str | None) -> dict[str, str]:
    """As delta-spark writes those of its MERGE: JSON lists of texts."""
    condition = " AND ".join(f"target.`{name}` = source.`{name}`" for name in names)
    matched = [{"actionType": "update"}]
    if delete_where is not None:
        matched.insert(0, {"predicate": delete_where, "actionType": "delete"})
    return {
        "predicate": msgspec.json.encode([condition]).decode(),
        "matchedPredicates": msgspec.json.encode(matched).decode(),
        "notMatchedPredicates": msgspec.json.encode([{"actionType": "insert"}]).decode(),
    }

"""Stage UPSERT: replace the table rows that have the keys of the data with the data's rows.

The data and its keys are held in memory, and with the change data feed on the replaced rows, too. From the table, only
the key columns are read, and only of files that can have one of the keys, a few files at a time.
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
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.operations.keys import Keys
from tidelog.log.operations.row_matcher import Matched, RowMatcher, file_metrics
from tidelog.log.operations.upsert_data import split_upsert
from tidelog.log.predicate import at_time
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

# Files are looked up together up to this number of rows, so that the keys are not hashed once for every small file.
_JOINED_ROWS = 500_000


def stage_upsert(
    state: LogState, writer: DataWriter, data: Any, names: Sequence[str], delete_where: str | None
) -> Staged | None:
    """Stage replacing, for each row of `data`, all table rows with its key; None if nothing changes.

    `names` are the key columns. A row for which `delete_where` is true deletes its key and adds nothing.
    Raises SchemaMismatchError, DuplicateKeyError, PredicateError.
    """
    delete_where = at_time(delete_where, writer.system.now_ms)
    written, deleted = split_upsert(data, writer.schema, names, delete_where)
    written, deleted = writer.prepared(written), writer.prepared(deleted)
    if not written.num_rows and not deleted.num_rows:
        return None
    keys = Keys(pa.concat_tables([written.select(deleted.column_names), deleted]), names, writer.store.url)
    change = _Upsert(state, writer, keys, written.num_rows)
    deletes = change.deletes()
    if not written.num_rows and not deletes:
        return None
    adds = writer.write(written)
    cdc = change.changes(written) if change.feed else []
    return staged_upsert(change.pairs, keys, delete_where, deletes, adds, cdc)


class Pairs:
    """Which keys have rows in the table. The first `written` keys belong to rows that are added."""

    def __init__(self, keys: int, written: int) -> None:
        self.written = written
        self.matched: BoolArray = np.zeros(keys, dtype=bool)

    def followed(self, places: Int64Array) -> BoolArray:
        """Whether a new row replaces each of these table rows, given as the indices of their keys.

        If the table has several rows of a key, a new row replaces the first, and the feed shows the rest as deleted.
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
    """The operation as one value."""
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
        record={commit_info.UPSERT_KEYS: list(keys.names)},
    )


class KeyMatcher(RowMatcher):
    """Finds the table rows that have one of some keys."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys) -> None:
        super().__init__(state, writer)
        self._keys = keys

    def found(self) -> Iterator[tuple[AddFile, Int64Array, Int64Array]]:
        """The files with rows that have one of the keys: the rows' positions, and the indices of their keys."""
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
        """The change rows for deleted rows; `follows` marks those that a new row replaces."""
        before = self.cdc(old.filter(pa.array(follows)), UPDATE_PREIMAGE)
        return before + self.cdc(old.filter(pa.array(~follows)), DELETE)

    def new_changes(self, new: pa.Table, known: BoolArray) -> list[AddCDCFile]:
        """The change rows for added rows; `known` marks those whose key existed."""
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
            found = own >= 0
            if found.any():
                yield add, positions[found], own[found]

    def _read_keys(self, add: AddFile) -> tuple[Int64Array, pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in self._keys.names])
        pieces = list(self.read(add, schema))
        positions = np.concatenate([np.empty(0, dtype=np.int64), *(numbers for numbers, _ in pieces)])
        return positions, pa.Table.from_batches([batch for _, batch in pieces], schema=schema)

    def whole_rows(self, add: AddFile, positions: BitMap64) -> pa.Table:
        pieces = self.read(add, self.schema, positions)
        return pa.Table.from_batches([batch for _, batch in pieces], schema=self.schema)


class _Upsert(KeyMatcher):
    """The table rows that match the data's keys. The first `written` keys belong to rows that are added."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys, written: int) -> None:
        super().__init__(state, writer, keys)
        self.pairs = Pairs(keys.table.num_rows, written)
        self._old_rows: list[pa.Table] = []
        self._new_rows_follow: list[BoolArray] = []

    def deletes(self) -> list[RowDelete]:
        """Stage deleting the matching rows, file by file."""
        deletes = []
        for add, positions, places in self.found():
            rows = self.whole_rows(add, BitMap64(positions)) if self.feed else pa.table({})
            self._new_rows_follow.append(self.pairs.followed(places))
            self._old_rows.append(rows)
            deletes.append(self.delete(Matched(add, BitMap64(positions), rows)))
        return deletes

    def changes(self, written: pa.Table) -> list[AddCDCFile]:
        """All change rows of the commit, because readers of a version with change files read nothing else."""
        cdc = []
        if self._old_rows:
            cdc += self.old_changes(pa.concat_tables(self._old_rows), np.concatenate(self._new_rows_follow))
        return cdc + self.new_changes(written, self.pairs.matched[: written.num_rows])


def _parameters(names: Sequence[str], delete_where: str | None) -> dict[str, str]:
    """The parameters that delta-spark records for a MERGE: JSON lists."""
    condition = " AND ".join(f"target.`{name}` = source.`{name}`" for name in names)
    matched = [{"actionType": "update"}]
    if delete_where is not None:
        matched.insert(0, {"predicate": delete_where, "actionType": "delete"})
    return {
        "predicate": msgspec.json.encode([condition]).decode(),
        "matchedPredicates": msgspec.json.encode(matched).decode(),
        "notMatchedPredicates": msgspec.json.encode([{"actionType": "insert"}]).decode(),
    }

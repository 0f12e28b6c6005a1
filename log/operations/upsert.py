"""Stage UPSERT: replace the table rows that have the keys of the data with the data's rows.

The data and its keys are held in memory, and with the change data feed on the replaced rows, too. From the table, only
the key columns are read, and only of files that can have one of the keys, a few files at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidelog.log import predicate
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.cleanup.pieces import finished
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Reads, RowDelete, Staged
from tidelog.log.data import conform, python_rows
from tidelog.log.data.conform import match_names
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.packed_order import PackedColumns, PackedOrder
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import SchemaMismatchError, TidelogError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.row_tracking import ROW_ID, kind_of
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.operations.delete_update import Matched, RowMatcher, file_metrics, free_name
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.operations.upsert_order import Decision, FoundRows, UpsertOrder, newest_of
from tidelog.log.predicate import at_time
from tidelog.log.read.change_files import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.read.key_index import Located, index_of
from tidelog.log.read.keys import Keys
from tidelog.log.read.scan import Selection
from tidelog.log.rules import RowRules
from tidelog.log.state.files import to_adds
from tidelog.log.state.loader import LogState
from tidelog.log.system import logger

_LOGGER = logger(__name__)

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

# The id of a row that no table row had before.
NEW_ROW = -1

# With more runs of the key index than this, an upsert merges those that have no more entries than that.
_MANY_RUNS = 64
_SMALL_RUN = 2**18

# Files are looked up together up to this number of rows, so that the keys are not hashed once for every small file.
_JOINED_ROWS = 500_000


def stage_upsert(
    state: LogState,
    writer: DataWriter,
    data: Any,
    names: Sequence[str],
    delete_where: str | None,
    order: Sequence[str] = (),
) -> Staged | None:
    """Stage replacing, for each row of `data`, all table rows with its key; None if nothing changes.

    `names` are the key columns. A row for which `delete_where` is true deletes its key and adds nothing. With `order`,
    a row has no effect if the table has something newer of its key; see `upsert_order`.

    Raises SchemaMismatchError, DuplicateKeyError, PredicateError.
    """
    if delete_where is not None:
        delete_where = at_time(delete_where, writer.system.now_ms)
    rules = RowRules.of(writer)
    if order:
        data = newest_of(data, rules, names, order)
    staged = stage_records(state, writer, rules, data, names, delete_where, order)
    has_effect = staged is not None and (staged.adds or staged.deletes or staged.tombstones is not None)
    return staged if has_effect else None


def stage_records(
    state: LogState,
    writer: DataWriter,
    rules: RowRules,
    data: Any,
    names: Sequence[str],
    delete_where: str | None,
    order: Sequence[str],
    *,
    is_part: bool = False,
) -> Staged | None:
    """Stage the newest records of each key; None without records.

    With `is_part` other processes stage the other keys. Then files with rows that are deleted are not written again,
    also in a table without deletion vectors, and neither are tombstones or runs of the index that could be merged.
    """
    written, deleted = split_upsert(data, rules, list(dict.fromkeys((*names, *order))), delete_where)
    written, deleted = writer.prepared(written), writer.prepared(deleted)
    if order:
        deleted = distinct(deleted)
    records = pa.concat_tables([loose(written.select(deleted.column_names)), loose(deleted)])
    if not records.num_rows:
        return None
    keys = Keys(records, names, writer.store.url)
    change = _Upsert(state, writer, keys, written.num_rows, is_part=is_part)
    ordered = change.of_order(records.select(order)) if order else None
    if ordered is not None:
        written = written.filter(pa.array(ordered.decision.wins[: written.num_rows]))
    deletes = change.deletes()
    adds = writer.write(with_kept_ids(written, writer.tracked, change.pairs.row_ids[: written.num_rows]))
    cdc = change.changes(written) if change.feed else []
    staged = staged_upsert(change.pairs, keys, delete_where, deletes, adds, cdc)
    return with_tombstones(staged, change.tombstones()) if ordered is None else ordered.staged(staged)


def loose(rows: pa.Table) -> pa.Table:
    """The rows with columns that can be null, so that they can be put together with others."""
    fields = [field.with_nullable(True) for field in rows.schema]  # noqa: FBT003 - pyarrow's signature
    return pa.table(rows.columns, schema=pa.schema(fields))


def distinct(rows: pa.Table) -> pa.Table:
    """The rows without repetitions: deletions of one key with one order have the same effect."""
    numbers = np.asarray(group_numbers(rows, rows.column_names))
    first = np.sort(np.unique(numbers, return_index=True)[1])
    return rows if len(first) == rows.num_rows else rows.take(pa.array(first))


def with_kept_ids(rows: pa.Table, tracked: Sequence[pa.Field], row_ids: Int64Array) -> pa.Table:
    """New rows with the ids of the rows that they replace, or NEW_ROW; as they are if the table does not keep ids."""
    for field in tracked:
        ids = pa.array(row_ids, field.type, mask=(row_ids == NEW_ROW) | (kind_of(field) != ROW_ID))
        rows = rows.append_column(field, ids)
    return rows


class Matches(NamedTuple):
    """The rows of a file that have one of some keys: their positions, the indices of their keys, and their row ids.

    `order` has the columns of the table's order, as far as its index knows them.
    """

    add: AddFile
    positions: Int64Array
    places: Int64Array
    row_ids: Int64Array
    order: PackedOrder | None = None

    def only(self, numbers: Int64Array) -> Matches:
        """The rows of some keys: those that have a number from 0 on in `numbers`, which are their new indices.

        The order is left out.
        """
        chosen = numbers[self.places] >= 0
        return Matches(self.add, self.positions[chosen], numbers[self.places[chosen]], self.row_ids[chosen])


class Pairs:
    """Which keys have rows in the table. The first `written` keys belong to rows that are added.

    `row_ids` has, for each key, the id of the table row that a new row replaces, or NEW_ROW.
    """

    def __init__(self, keys: int, written: int) -> None:
        self.written = written
        self.matched: BoolArray = np.zeros(keys, dtype=bool)
        self.row_ids: Int64Array = np.full(keys, NEW_ROW)

    def followed(self, places: Int64Array, row_ids: Int64Array) -> BoolArray:
        """Whether a new row replaces each of these table rows, given as the indices of their keys and their ids.

        If the table has several rows of a key, a new row replaces the first, and the feed shows the rest as deleted.
        """
        first = np.zeros(len(places), dtype=bool)
        first[np.unique(places, return_index=True)[1]] = True
        follows = first & ~self.matched[places] & (places < self.written)
        self.matched[places] = True
        self.row_ids[places[follows]] = row_ids[follows]
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


def with_tombstones(staged: Staged, tombstones: TombstoneChange | None) -> Staged:
    """An upsert without an order, with the tombstones of the rows of the keys that it deletes; None without any.

    A rebase does not know which of the rows that it finds would be replaced, so they are a conflict.
    """
    return staged if tombstones is None else replace(staged, is_computed=True, tombstones=tombstones)


def old_changes(old: pa.Table, follows: BoolArray) -> list[tuple[str, pa.Table]]:
    """The changes of deleted rows; `follows` marks those that a new row replaces."""
    return [(UPDATE_PREIMAGE, old.filter(pa.array(follows))), (DELETE, old.filter(pa.array(~follows)))]


def new_changes(new: pa.Table, known: BoolArray) -> list[tuple[str, pa.Table]]:
    """The changes of added rows; `known` marks those whose key existed."""
    return [(UPDATE_POSTIMAGE, new.filter(pa.array(known))), (INSERT, new.filter(pa.array(~known)))]


class Ordered(NamedTuple):
    """A decision, the rows that records with an effect replace or delete, and the rows that are newer than theirs.

    The keys of `matches` are numbered among those with an effect.
    """

    decision: Decision
    matches: list[Matches]
    kept: list[RowDelete]

    def staged(self, staged: Staged) -> Staged:
        """The operation as one with an order."""
        return self.decision.staged(staged, self.kept)


class KeyMatcher(RowMatcher):
    """Finds the table rows that have one of some keys."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys, *, is_part: bool = False) -> None:
        super().__init__(state, writer)
        self._keys = keys
        self._is_part = is_part

    def found(self) -> Iterator[Matches]:
        """The files with rows that have one of the keys. In a table that does not keep ids, each row is a NEW_ROW.

        First those that the table's index has, and then those that are found in the other files.
        """
        files = self.candidates(self._keys.predicate())
        located, is_left = self.located(files)
        for found in located:
            row_ids = np.full(len(found.positions), NEW_ROW)
            if self._id_field:
                rows = self.read(found.add, pa.schema(self._id_field), BitMap64(found.positions))
                row_ids = np.concatenate([self._row_ids(pa.Table.from_batches([batch])) for _, batch in rows])
            yield Matches(found.add, found.positions, found.places, row_ids, found.order)
        yield from self.scanned(files.filter(pa.array(is_left)))

    def located(self, files: pa.Table) -> tuple[list[Located], BoolArray]:
        """The rows that the key index has, if the table has one, and which files it does not cover."""
        index = index_of(self._writer.store, self._writer.indexed_key, self._keys.names)
        if index is None:
            return [], np.ones(files.num_rows, dtype=bool)
        located, is_left = index.locate(files, self._keys.table)
        if index.num_used > _MANY_RUNS and not self._is_part:
            self._merge_runs()
        self._physical_rows |= {found.add.path: found.rows for found in located}
        return located, is_left

    def _merge_runs(self) -> None:
        """Merge the small runs of the index, which a daemon would do otherwise. What fails is left to the next time."""
        store, system = self._writer.store, self._writer.system
        try:
            finished(tend_index(store, self._state, system, reads=False, most_entries=_SMALL_RUN))
        except (TidelogError, OSError) as error:
            _LOGGER.debug("the key index of %s was not tended: %s", store.url, error)

    def scanned(self, files: pa.Table) -> Iterator[Matches]:
        """The rows that are found by reading the key columns of files."""
        waiting: list[tuple[AddFile, Int64Array, pa.Table]] = []
        length = 0
        for add in to_adds(files):
            positions, rows = self._read_keys(add)
            waiting.append((add, positions, rows))
            length += rows.num_rows
            if length >= max(_JOINED_ROWS, self._keys.table.num_rows):
                yield from self._looked_up(waiting)
                waiting, length = [], 0
        if waiting:
            yield from self._looked_up(waiting)

    def _looked_up(self, waiting: Sequence[tuple[AddFile, Int64Array, pa.Table]]) -> Iterator[Matches]:
        places = self._keys.places(pa.concat_tables([rows for _, _, rows in waiting]))
        start = 0
        for add, positions, rows in waiting:
            own = places[start : start + rows.num_rows]
            start += rows.num_rows
            found = own >= 0
            if found.any():
                yield Matches(add, positions[found], own[found], self._row_ids(rows)[found])

    def _read_keys(self, add: AddFile) -> tuple[Int64Array, pa.Table]:
        schema = pa.schema([*(self.schema.field(name) for name in self._keys.names), *self._id_field])
        pieces = list(self.read(add, schema))
        positions = np.concatenate([np.empty(0, dtype=np.int64), *(numbers for numbers, _ in pieces)])
        return positions, pa.Table.from_batches([batch for _, batch in pieces], schema=schema)

    def ordered(self, records: pa.Table, is_delete: BoolArray) -> Ordered:
        """Decide which of the records of the keys, with the columns of an order, have an effect."""
        matches = list(self.found())
        return self.decided(records, is_delete, matches, list(self._in_order(matches, records.column_names)))

    def decided(
        self, records: pa.Table, is_delete: BoolArray, matches: Sequence[Matches], found: Sequence[FoundRows]
    ) -> Ordered:
        """The same, with all rows that have one of the keys, and the columns of the order of each."""
        order = UpsertOrder(self._state, self._writer, self._keys, records.column_names, merges=not self._is_part)
        decision = order.decide(records, is_delete, found)
        newer = [match.only(numbered(~decision.wins)) for match in matches]
        older = [match.only(numbered(decision.wins)) for match in matches]
        kept = [self.keeping(match.add, match.positions) for match in newer if len(match.places)]
        return Ordered(decision, [match for match in older if len(match.places)], kept)

    def _in_order(self, matches: Sequence[Matches], names: Sequence[str]) -> Iterator[FoundRows]:
        """The columns of an order of rows that were found: what the index knows, and the rest from the files."""
        indexed = self._indexed_order(names)
        known: list[tuple[Int64Array, PackedOrder]] = []
        for own in matches:
            is_left = np.ones(len(own.places), dtype=bool)
            if indexed is not None and own.order is not None:
                is_left = ~own.order.is_known
                known.append((own.places[~is_left], own.order.take(~is_left)))
            if is_left.any():
                rest = own._replace(positions=own.positions[is_left], places=own.places[is_left])
                yield FoundRows(rest.places, self.columns_of(rest, names))
        if indexed is not None and known:
            packed = PackedOrder.joined([order for _, order in known])
            yield FoundRows(np.concatenate([places for places, _ in known]), indexed.unpacked(packed).select(names))

    def _indexed_order(self, names: Sequence[str]) -> PackedColumns | None:
        """The columns of the order that the table's index has, if these are among them."""
        key = self._writer.indexed_key
        return key.order if key is not None and set(names) <= set(key.order.names) else None

    def order_of(self, found: Located, names: Sequence[str]) -> pa.Table | None:
        """The columns of an order of rows from the index; None if it does not know those of all of them."""
        indexed = self._indexed_order(names)
        if indexed is None or found.order is None or not found.order.is_known.all():
            return None
        return indexed.unpacked(found.order).select(names)

    def columns_of(self, matches: Matches, names: Sequence[str]) -> pa.Table:
        """Some columns of rows that were found."""
        schema = pa.schema([self.schema.field(name) for name in names])
        if not names:
            return schema.empty_table()
        pieces = self.read(matches.add, schema, BitMap64(matches.positions))
        return pa.Table.from_batches([batch for _, batch in pieces], schema=schema)

    @property
    def _id_field(self) -> list[pa.Field]:
        return [field for field in self._writer.tracked if kind_of(field) == ROW_ID]

    def _row_ids(self, rows: pa.Table) -> Int64Array:
        for field in self._id_field:
            return np.asarray(pc.fill_null(rows[field.name], NEW_ROW), dtype=np.int64)
        return np.full(rows.num_rows, NEW_ROW)

    def bury_deleted(self, add: AddFile, positions: Int64Array, places: Int64Array, written: int) -> None:
        """Leave tombstones of the rows whose keys are deleted: those after the first `written` ones."""
        gone = positions[places >= written]
        if len(gone):
            self.bury(Matched(add, BitMap64(gone), pa.table({})))

    def whole_rows(self, add: AddFile, positions: BitMap64) -> pa.Table:
        pieces = self.read(add, self.schema, positions)
        return pa.Table.from_batches([batch for _, batch in pieces], schema=self.schema)


class _Upsert(KeyMatcher):
    """The table rows that match the data's keys. The first `written` keys belong to rows that are added."""

    def __init__(self, state: LogState, writer: DataWriter, keys: Keys, written: int, *, is_part: bool) -> None:
        super().__init__(state, writer, keys, is_part=is_part)
        self.pairs = Pairs(keys.table.num_rows, written)
        # What is known of the rows to delete; None before they are looked for.
        self._matches: list[Matches] | None = None
        self._old_rows: list[pa.Table] = []
        self._new_rows_follow: list[BoolArray] = []

    def of_order(self, records: pa.Table) -> Ordered:
        """Leave out the keys for which the table has something newer than `records`, which have the order's columns."""
        ordered = self.ordered(records, np.arange(records.num_rows) >= self.pairs.written)
        wins = ordered.decision.wins
        self.pairs = Pairs(int(wins.sum()), int(wins[: self.pairs.written].sum()))
        self._matches = ordered.matches
        return ordered

    def deletes(self) -> list[RowDelete]:
        """Stage deleting the matching rows, file by file."""
        deletes = []
        for add, positions, places, row_ids, _ in self.found() if self._matches is None else self._matches:
            rows = self.whole_rows(add, BitMap64(positions)) if self.feed else pa.table({})
            self._new_rows_follow.append(self.pairs.followed(places, row_ids))
            self._old_rows.append(rows)
            matched = Matched(add, BitMap64(positions), rows)
            if self._matches is None:
                self.bury_deleted(add, positions, places, self.pairs.written)
            deletes.append(self.keeping(add, positions) if self._is_part else self.delete(matched))
        return deletes

    def changes(self, written: pa.Table) -> list[AddCDCFile]:
        """All change rows of the commit, because readers of a version with change files read nothing else."""
        changes = []
        if self._old_rows:
            changes += old_changes(pa.concat_tables(self._old_rows), np.concatenate(self._new_rows_follow))
        return self.cdc(*changes, *new_changes(written, self.pairs.matched[: written.num_rows]))


def numbered(chosen: BoolArray) -> Int64Array:
    """For each of some things its number among those that are chosen, or -1."""
    return np.where(chosen, np.cumsum(chosen) - 1, -1)


def _parameters(names: Sequence[str], delete_where: str | None) -> dict[str, str]:
    matched = [{"actionType": "update"}]
    if delete_where is not None:
        matched.insert(0, {"predicate": delete_where, "actionType": "delete"})
    predicates = {"matchedPredicates": matched, "notMatchedPredicates": [{"actionType": "insert"}]}
    return merge_parameters(names, predicates)


def merge_parameters(names: Sequence[str], predicates: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, str]:
    """The parameters that delta-spark records for a MERGE by these keys: JSON lists."""
    keys = ["`" + name.replace("`", "``") + "`" for name in names]
    condition = " AND ".join(f"target.{key} = source.{key}" for key in keys)
    lists: dict[str, Sequence[Any]] = {"predicate": [condition], **predicates}
    return {name: msgspec.json.encode(value).decode() for name, value in lists.items()}


# --- rows to write, and keys to delete --------------------------------------------------------------------------------


def split_upsert(
    data: Any, rules: RowRules, keys: Sequence[str], delete_where: str | None
) -> tuple[pa.Table, pa.Table]:
    """Split `data` into the rows to write and, for rows where `delete_where` is true, the columns `keys`.

    `delete_where` is SQL text over the columns of the data. It can use columns that the table lacks. In a row that it
    selects, only the key has to fit the table. Raises PredicateError, and the errors of `RowRules.rows`.
    """
    held, schema = conform.hold(data), rules.schema
    if delete_where is None or (not isinstance(held, pa.Table) and not held):
        written = rules.rows(held)
        return written, written.select(keys).slice(0, 0)
    answers: pa.Table | None = None
    if isinstance(held, pa.Table):
        answers, held = rules.split(held)
    else:
        python_rows.require_dicts(held)
        held = rules.with_defaults(held)
    loose = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
    known, extra = python_rows.by_ownership(held, loose)
    for name in keys:
        if name not in known.column_names:
            raise SchemaMismatchError(
                f"the data lacks the key column {name!r}", advice="add the column to the data", column=name
            )
    everything = pa.table([*known.columns, *extra.columns], schema=pa.schema([*known.schema, *extra.schema]))
    used = predicate.columns(predicate.parse(delete_where, everything.schema))
    match_names([name for name in extra.column_names if name not in used], schema.names)
    is_deleted = matching(everything, delete_where)
    deleted = conform.conform(known.filter(is_deleted), loose).select(keys)
    is_written = pc.invert(is_deleted)
    return rules.answered(known.filter(is_written), answers and answers.filter(is_written)), deleted


def matching(table: pa.Table, where: str) -> pa.Array:
    """Whether `where` is true, for each row."""
    number = free_name(table.schema)
    numbered = table.append_column(number, pa.array(range(table.num_rows), pa.int64()))
    selection = Selection(numbered.schema, where, [number])
    matching = np.zeros(table.num_rows, dtype=bool)
    for batch in numbered.select(selection.read_schema.names).to_batches():
        for piece in selection.apply(batch):
            matching[np.asarray(piece.column(0))] = True
    return pa.array(matching)

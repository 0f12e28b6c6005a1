"""The tombstones that a commit leaves: of the keys that an UPSERT with an order deletes, or of the rows of a DELETE.

A DELETE of rows leaves tombstones only in a table that names both a primary key and an order. They have the order that
each row had, and win ties; see `tidelog.log.data.tombstones`. A rebase can change which rows die, and then they are
written again from the rows that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.conflict.staged import RowDelete
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.data.tombstones import (
    MERGED_ROWS,
    TombstoneColumns,
    files_to_merge,
    merge_tombstones,
    tombstone_columns,
    write_tombstones,
)
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of, own_names
from tidelog.log.format.tombstone_list import TombstoneChange, TombstoneFile
from tidelog.log.state.head import Head
from tidelog.log.state.tombstones import expired_ms, tombstones_of
from tidelog.log.storage import Store
from tidelog.log.system import System


def columns_of_rows(metadata: Metadata, path: str) -> TombstoneColumns | None:
    """The columns of the tombstones that deleted rows leave; None if they leave none.

    They leave none in a table without a primary key or an order, and in one whose record of tombstones can expire,
    where upserts with an order are refused.
    """
    configuration = metadata.configuration
    keys, order = properties.primary_key(configuration), properties.order_by(configuration)
    if not keys or not order or properties.TRANSACTION_RETENTION in configuration:
        return None
    schema = columns_of(metadata, path)
    keys, order = tuple(own_names(keys, schema)), tuple(own_names(order, schema))
    known = {name for name in schema.names if not pt.is_nested(schema.field(name).type)}
    return tombstone_columns(metadata, path, keys, order) if known >= {*keys, *order} else None


class Burial:
    """Writes the tombstones of one transaction on a version of the table.

    `wins_ties` says whether a record of an equal order has no effect. With `merges` some of the table's files are
    merged as well, once there are many. `written` are the paths of all files that were written, durable.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        head: Head,
        columns: TombstoneColumns,
        *,
        wins_ties: bool = True,
        merges: bool = True,
    ) -> None:
        self.columns = columns
        self.written: list[str] = []
        self._store = store
        self._system = system
        self._head = head
        self._wins_ties = wins_ties
        self._merges = merges
        self._files: list[TombstoneFile] = []
        self._held: list[pa.Table] = []
        self._rows = 0

    @property
    def names(self) -> list[str]:
        """The columns that it needs of rows: those of the key, then those of the order."""
        return list(dict.fromkeys((*self.columns.keys.names, *self.columns.order.names)))

    def add(self, rows: pa.Table) -> None:
        """Bury rows, which have the columns `names`. A row with a null in its key has no tombstone.

        Holds no more rows than one file has.
        """
        for name in self.columns.keys.names:
            if rows[name].null_count:
                rows = rows.filter(pc.is_valid(rows[name]))
        if not rows.num_rows:
            return
        written_ms = self._head.next_timestamp_ms(self._system.now_ms())
        fields = [*self.columns.keys, *self.columns.order]
        columns = [rows[field.name].cast(field.type) for field in fields]
        columns.append(pa.array(np.full(rows.num_rows, written_ms), pa.int64()))
        columns.append(pa.array(np.full(rows.num_rows, self._wins_ties)))
        self._held.append(pa.table(columns, names=self.columns.names))
        self._rows += rows.num_rows
        if self._rows >= MERGED_ROWS:
            self._flush()

    def add_deleted(self, deletes: Iterable[RowDelete]) -> None:
        """Bury rows of data files, of which only the columns `names` are read."""
        schema = pa.schema({field.name: field for field in (*self.columns.keys, *self.columns.order)}.values())
        for delete in deletes:
            for _, batch in read_numbered_batches(self._store, DataFile.of(delete.file), schema, only=delete.positions):
                self.add(pa.Table.from_batches([batch]))

    def change(self) -> TombstoneChange:
        """What the transaction does to the list of the table's tombstones."""
        self._flush()
        order = tuple(self.columns.order.names)
        if not self._files:
            return TombstoneChange(order)
        now_ms = self._system.now_ms()
        counts_ms = expired_ms(self._head, now_ms)
        known = tombstones_of(self._store, self._head, now_ms) if self._merges else ()
        chosen = files_to_merge([file for file in known if file.newest_ms >= counts_ms], self.columns)
        merged = self._noted(merge_tombstones(self._store, self._system, self.columns, chosen, counts_ms))
        change = TombstoneChange(order, merged=merged, expired_ms=counts_ms)
        if merged is not None:
            change = replace(change, replaced=frozenset(file.path for file in chosen))
        if len(self._files) == 1:
            return replace(change, own=self._files[0])
        return replace(change, several=tuple(self._files))

    def change_of_rows(self) -> TombstoneChange | None:
        """The same for the tombstones of all rows that a transaction deletes; None without any."""
        change = self.change()
        return replace(change, keys=tuple(self.columns.keys.names)) if change.written else None

    def _flush(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            self._held, self._rows = [], 0
            self._files.append(write_tombstones(self._store, self._system, self.columns, rows))
            self._noted(self._files[-1])

    def _noted(self, file: TombstoneFile | None) -> TombstoneFile | None:
        if file is not None:
            self.written.append(file.path)
        return file


def buried_again(
    store: Store,
    system: System,
    head: Head,
    metadata: Metadata,
    change: TombstoneChange,
    deletes: Sequence[RowDelete],
) -> tuple[TombstoneChange, list[str]]:
    """The change for the rows that die after a rebase, and the paths of the files that were written for it."""
    columns = tombstone_columns(metadata, store.url, change.keys, change.order)
    burial = Burial(store, system, head, columns, merges=False)
    burial.add_deleted(deletes)
    again = burial.change()
    return replace(change, own=again.own, several=again.several, rows_differ=False), burial.written


def joined_changes(
    store: Store,
    system: System,
    metadata: Metadata,
    changes: Sequence[TombstoneChange | None],
    keys: Sequence[str] = (),
) -> TombstoneChange | None:
    """The changes of the parts of one transaction as one, in few files; None if no part has one.

    `keys` are the columns of the key, unless the changes name them.
    """
    known = [change for change in changes if change is not None]
    if not known:
        return None
    files = [file for change in known for file in (*change.several, *(() if change.own is None else (change.own,)))]
    first = known[0]
    if not files:
        return first
    counts_ms = min(change.expired_ms for change in known if change.written)
    columns = tombstone_columns(metadata, store.url, first.keys or keys, first.order)
    found = [_merged(store, system, columns, group) for group in _groups(files)]
    left = {file.path for file in found}
    delete_unnamed(store, [file.path for file in files if file.path not in left])
    if len(found) == 1:
        return replace(first, own=found[0], several=(), expired_ms=counts_ms)
    return replace(first, own=None, several=tuple(found), expired_ms=counts_ms)


def _groups(files: Sequence[TombstoneFile]) -> list[list[TombstoneFile]]:
    """The files in groups of up to MERGED_ROWS rows."""
    groups: list[list[TombstoneFile]] = []
    rows = MERGED_ROWS
    for file in files:
        if rows + file.rows > MERGED_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(file)
        rows += file.rows
    return groups


def _merged(store: Store, system: System, columns: TombstoneColumns, files: Sequence[TombstoneFile]) -> TombstoneFile:
    merged = merge_tombstones(store, system, columns, files, 0) if len(files) > 1 else None
    return files[0] if merged is None else merged

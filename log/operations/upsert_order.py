"""The order of an UPSERT's records: which of them have no effect, because the table has something newer of their key.

A record is compared with the live row of its key, with the greatest if there are several, and with the key's tombstone
only if there is none. If it is less, it has no effect. If it is equal or greater, it replaces or deletes. So records
with different orders end in the same rows, whichever batches they come in, for as long as tombstones are kept. INSERT,
UPDATE, DELETE and OVERWRITE have no order: they change rows as they say, and leave no tombstones.

What a record does depends on what the table has, so another commit that changes a row or a tombstone of one of the keys
is a conflict, and the statement runs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data import conform, python_rows
from tidelog.log.data.ordering import are_newest, present, ranks
from tidelog.log.data.tombstones import (
    WRITTEN_MS,
    files_to_merge,
    merge_tombstones,
    order_names,
    read_tombstones,
    tombstone_columns,
    write_tombstones,
)
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.tombstone_list import TombstoneChange, TombstoneFile
from tidelog.log.read.keys import Keys
from tidelog.log.rules import RowRules
from tidelog.log.state.loader import LogState
from tidelog.log.state.tombstones import tombstones_of

# The metric of a commit that counts the records without effect.
OUTDATED = "numSourceRowsOutdated"
_NONE: Int64Array = np.empty(0, dtype=np.int64)


def newest_of(data: Any, rules: RowRules, names: Sequence[str], order: Sequence[str]) -> Any:
    """The data without rows that are older than another one with their key, and without what it has twice.

    Left as it is if one of the columns is missing that the table generates: then a key with several rows is an error.
    Raises SchemaMismatchError if the data lacks one of the columns, or has a value that does not fit.
    """
    held, schema = conform.hold(data), rules.schema
    generated = {rule.column for rule in rules.rules.generated} if rules.rules else set()
    if generated & {*names, *order}:
        return held
    wanted = list(dict.fromkeys((*names, *order)))
    loose = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
    if isinstance(held, pa.Table):
        present(held.column_names, wanted)
        known, extra = python_rows.by_ownership(held, loose)
        rows = pa.table([*known.columns, *extra.columns], schema=pa.schema([*known.schema, *extra.schema]))
        newest = are_newest(rows, names, order)
        return held if newest.all() else rows.filter(pa.array(newest))
    python_rows.require_dicts(held)
    for row in held:
        present([str(name) for name in row], wanted)
    known = {name.lower() for name in wanted}
    own = pa.schema([loose.field(name) for name in wanted])
    compared = python_rows.to_table([{key: row[key] for key in row if str(key).lower() in known} for row in held], own)
    # The texts of rows can be compared even if a column mixes types.
    texts = pa.array([repr(sorted(row.items(), key=str)) for row in held], pa.string())
    newest = are_newest(compared.append_column(WRITTEN_MS, texts), names, order)
    return [row for row, is_newest in zip(held, newest, strict=True) if is_newest]


class FoundRows(NamedTuple):
    """Live rows of the table: the numbers of their keys, and the columns of the order."""

    places: Int64Array
    order: pa.Table


@dataclass(frozen=True, slots=True)
class Decision:
    """Which records have an effect, and what the commit does to the tombstones."""

    wins: BoolArray
    change: TombstoneChange

    @property
    def outdated(self) -> int:
        """How many records have no effect."""
        return int((~self.wins).sum())

    def staged(self, staged: Staged, kept: Sequence[RowDelete]) -> Staged:
        """The operation as one with an order. `kept` are the rows that are newer than the records of their keys."""
        return replace(
            staged,
            is_computed=True,
            kept=(*staged.kept, *kept),
            tombstones=self.change,
            metrics={**staged.metrics, "numSourceRows": len(self.wins), OUTDATED: self.outdated},
        )


class UpsertOrder:
    """The order of one statement on one version of the table. With `merges` it also merges files of tombstones."""

    def __init__(
        self, state: LogState, writer: DataWriter, keys: Keys, order: Sequence[str], *, merges: bool = True
    ) -> None:
        if properties.TRANSACTION_RETENTION in writer.metadata.configuration:
            raise ConfigurationError(
                f"{writer.store.url} has {properties.TRANSACTION_RETENTION}, which lets the record of deletions expire "
                "that an upsert with an order compares with",
                advice="remove that property, or pass order_by=()",
            )
        self._state = state
        self._writer = writer
        self._keys = keys
        self._order = list(order)
        self._merges = merges
        self._columns = tombstone_columns(writer.metadata, writer.store.url, keys.names, order)

    def decide(self, records: pa.Table, is_delete: BoolArray, found: Sequence[FoundRows]) -> Decision:
        """Decide about records, in the order of the keys. `found` are all live rows of the table with these keys.

        Writes tombstones, durable on return. Raises CorruptLogError if those of the table cannot be read.
        """
        has_row = np.zeros(records.num_rows, dtype=bool)
        for rows in found:
            has_row[rows.places] = True
        files = tombstones_of(self._writer.store, self._state.head)
        buried = list(self._tombstones(files, ~has_row))
        older = [*found, *buried]
        everything = [self._plain(records), *(self._plain(rows.order) for rows in older)]
        of_row = ranks(pa.concat_tables(everything), self._order)
        own, others = of_row[: records.num_rows], of_row[records.num_rows :]
        greatest = np.full(records.num_rows, -1, dtype=np.int64)
        np.maximum.at(greatest, np.concatenate([_NONE, *(rows.places for rows in older)]), others)
        wins = own >= greatest
        is_new = wins & is_delete & ~(~has_row & (own == greatest))
        return Decision(wins, self._change(files, records.filter(pa.array(is_new)), is_new))

    def _plain(self, rows: pa.Table) -> pa.Table:
        columns = [rows[name].cast(field.type) for name, field in zip(self._order, self._columns.order, strict=True)]
        return pa.table(columns, names=self._order)

    def _tombstones(self, files: Sequence[TombstoneFile], wanted: BoolArray) -> Iterator[FoundRows]:
        """The tombstones of the keys that are wanted."""
        if not files or not wanted.any():
            return
        asked = self._keys.table.filter(pa.array(wanted))
        for file in files:
            if not self._columns.fit(file):
                continue
            for rows in read_tombstones(self._writer.store, file, self._columns, asked):
                places = self._keys.places(rows)
                chosen = np.flatnonzero((places >= 0) & wanted[places])
                if len(chosen):
                    order = rows.select(order_names(self._order)).take(pa.array(chosen)).rename_columns(self._order)
                    yield FoundRows(places[chosen], order)

    def _change(self, files: Sequence[TombstoneFile], gone: pa.Table, is_gone: BoolArray) -> TombstoneChange:
        """The tombstones of deleting these keys; once there are many files, some are merged as well."""
        store, system = self._writer.store, self._writer.system
        now_ms = system.now_ms()
        kept_ms = properties.duration_ms(self._writer.metadata.configuration, properties.TOMBSTONE_RETENTION)
        expired_ms, order = now_ms - kept_ms, tuple(self._order)
        if not gone.num_rows:
            return TombstoneChange(order)
        keys = self._keys.table.filter(pa.array(is_gone))
        columns = [*keys.columns, *self._plain(gone).columns, pa.array(np.full(gone.num_rows, now_ms), pa.int64())]
        rows = pa.table(columns, names=[*keys.column_names, *order_names(self._order), WRITTEN_MS])
        own = write_tombstones(store, system, self._columns, rows)
        self._writer.written.append(own.path)
        recent = [file for file in files if file.newest_ms >= expired_ms] if self._merges else []
        chosen = files_to_merge(recent, self._columns)
        merged = merge_tombstones(store, system, self._columns, chosen, expired_ms) if chosen else None
        if merged is None:
            return TombstoneChange(order, own, expired_ms=expired_ms)
        self._writer.written.append(merged.path)
        replaced = frozenset(file.path for file in chosen)
        return TombstoneChange(order, own, merged=merged, replaced=replaced, expired_ms=expired_ms)

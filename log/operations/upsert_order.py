"""The order of an UPSERT's records: which of them have no effect, because the table has something newer of their key.

A record is compared with the live row of its key, with the greatest if there are several, and with the key's tombstone
only if there is none. If it is less, it has no effect. If it is equal or greater, it replaces or deletes. So records
with different orders end in the same rows, whichever batches they come in, for as long as tombstones are kept. INSERT,
UPDATE, DELETE and OVERWRITE have no order: they change rows as they say. A DELETE leaves tombstones of its rows, and an
equal record has no effect on such a one.

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
from tidelog.log.commit.burial import Burial
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data import conform, python_rows
from tidelog.log.data.ordering import are_newest, present, ranks
from tidelog.log.data.tombstone_cache import uncache_others
from tidelog.log.data.tombstones import WINS_TIES, WRITTEN_MS, order_names, read_tombstones, tombstone_columns
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.read.keys import Keys
from tidelog.log.rules import RowRules
from tidelog.log.state.loader import LogState
from tidelog.log.state.tombstones import expired_ms, tombstones_of

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
    """Live rows of the table, or tombstones: the numbers of their keys, and the columns of the order."""

    places: Int64Array
    order: pa.Table
    # Which of them a record of an equal order does not replace; None if none.
    wins_ties: BoolArray | None = None


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


def _wins_ties(rows: FoundRows) -> Int64Array:
    return np.zeros(len(rows.places), dtype=np.int64) if rows.wins_ties is None else rows.wins_ties.astype(np.int64)


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
        older = [*found, *self._tombstones(~has_row)]
        everything = [self._plain(records), *(self._plain(rows.order) for rows in older)]
        # Twice the rank, so that what wins ties is above what is equal.
        of_row = 2 * ranks(pa.concat_tables(everything), self._order)
        own, others = of_row[: records.num_rows], of_row[records.num_rows :]
        others = others + np.concatenate([_NONE, *(_wins_ties(rows) for rows in older)])
        greatest = np.full(records.num_rows, -1, dtype=np.int64)
        np.maximum.at(greatest, np.concatenate([_NONE, *(rows.places for rows in older)]), others)
        wins = own >= greatest
        is_new = wins & is_delete & ~(~has_row & (own == greatest))
        return Decision(wins, self._change(records.filter(pa.array(is_new)), is_new))

    def _plain(self, rows: pa.Table) -> pa.Table:
        columns = [rows[name].cast(field.type) for name, field in zip(self._order, self._columns.order, strict=True)]
        return pa.table(columns, names=self._order)

    def _tombstones(self, wanted: BoolArray) -> Iterator[FoundRows]:
        """The tombstones of the keys that are wanted, as far as they are not too old."""
        head, now_ms = self._state.head, self._writer.system.now_ms()
        files = tombstones_of(self._writer.store, head, now_ms)
        uncache_others(self._writer.store, [file.path for file in files])
        if not files or not wanted.any():
            return
        asked, counts_ms = self._keys.table.filter(pa.array(wanted)), expired_ms(head, now_ms)
        for file in files:
            if not self._columns.fit(file) or file.newest_ms < counts_ms:
                continue
            for rows in read_tombstones(self._writer.store, file, self._columns, asked):
                places = self._keys.places(rows)
                chosen = np.flatnonzero((places >= 0) & wanted[places] & (np.asarray(rows[WRITTEN_MS]) >= counts_ms))
                if len(chosen):
                    rows = rows.take(pa.array(chosen))  # noqa: PLW2901 - the same rows, but fewer
                    order = rows.select(order_names(self._order)).rename_columns(self._order)
                    yield FoundRows(places[chosen], order, np.asarray(rows[WINS_TIES]))

    def _change(self, gone: pa.Table, is_gone: BoolArray) -> TombstoneChange:
        """The tombstones of deleting these keys; once there are many files, some are merged as well."""
        writer = self._writer
        burial = Burial(
            writer.store, writer.system, self._state.head, self._columns, wins_ties=False, merges=self._merges
        )
        if gone.num_rows:
            keys, order = self._keys.table.filter(pa.array(is_gone)), self._plain(gone)
            burial.add(pa.table({name: rows[name] for rows in (order, keys) for name in rows.column_names}))
        change = burial.change()
        writer.written.extend(burial.written)
        return change

"""Stage an upsert with rules, or one whose data has some of the columns only.

The source and the rows that change are held in memory. From the table, the rows with one of the source's keys are read;
with rules for rows that are not in the source, all rows, one file at a time.

The new rows are computed from the old ones, so another commit that changes or adds a row with one of the keys is a
conflict, and the statement runs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log import predicate
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Reads, RowDelete, Staged
from tidelog.log.data import conform, python_rows
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, DuplicateKeyError, PredicateError, SchemaMismatchError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.operations.delete_update import Matched, counts_by_clause, file_metrics
from tidelog.log.operations.merge_rules import Act, MergeRules, RowRule
from tidelog.log.operations.upsert import (
    NEW_ROW,
    KeyMatcher,
    matching,
    merge_parameters,
    with_kept_ids,
)
from tidelog.log.operations.upsert_order import newest_of
from tidelog.log.predicate import Condition, Literal, backquoted
from tidelog.log.predicate.tree import CURRENT
from tidelog.log.presentable import did_you_mean
from tidelog.log.read import change_files
from tidelog.log.read.keys import Keys
from tidelog.log.rules import RowRules
from tidelog.log.state import files
from tidelog.log.state.loader import LogState

SOURCE, TARGET = "source", "target"
_NONE = -1


class _Source:
    """The data: the table's own columns in the table's types, and others; in memory.

    `given` says, for each column of a list of dicts, which rows have it.
    """

    def __init__(self, data: Any, rules: RowRules, names: Sequence[str], path: str) -> None:
        held, schema = conform.hold(data), rules.schema
        self.given: dict[str, BoolArray] = {}
        self.rows: Sequence[Any] | None = None
        if not isinstance(held, pa.Table):
            python_rows.require_dicts(held)
            self.rows = held
        loose = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
        if self.rows is not None and not self.rows:
            held = loose.empty_table()
        known, self.extra = python_rows.by_ownership(held, loose)
        # As a reader will see them: in a partition column an empty string is null.
        self.known = rules.writer.prepared(known)
        if self.rows:
            spelled = {name.lower(): name for name in self.known.column_names}
            for name in self.known.column_names:
                self.given[name] = np.zeros(len(self.rows), dtype=bool)
            for number, row in enumerate(self.rows):
                for name in row:
                    if str(name).lower() in spelled:
                        self.given[spelled[str(name).lower()]][number] = True
        for name in names:
            if name not in self.known.column_names:
                raise SchemaMismatchError(
                    f"the data lacks the key column {name!r}", advice="add the column to the data", column=name
                )
        self.everything = pa.table(
            [*self.known.columns, *self.extra.columns], schema=pa.schema([*self.known.schema, *self.extra.schema])
        )
        keyed = np.ones(self.known.num_rows, dtype=bool)
        for name in names:
            keyed &= self.known[name].is_valid().to_numpy()
        self.keyed = np.flatnonzero(keyed)
        self.keys = Keys(self.known.select(names).take(pa.array(self.keyed)), names, path)

    def has(self, name: str, places: Int64Array) -> BoolArray:
        """Which of the rows give a value, or null, for a column of the table."""
        return self.given[name][places] if name in self.given else np.ones(len(places), dtype=bool)


class _Found(NamedTuple):
    """Live rows of a file: the numbers of their rows in the source, or -1, their positions, ids and columns."""

    add: AddFile
    places: Int64Array
    positions: Int64Array
    row_ids: Int64Array
    rows: pa.Table


class _Merge(KeyMatcher):
    """Applies the rules to the rows of the table, and stages what they change."""

    def __init__(
        self, state: LogState, writer: DataWriter, source: _Source, rules: RowRules, *, has_order: bool = False
    ) -> None:
        super().__init__(state, writer, source.keys)
        if has_order:
            # The records leave tombstones, and not the rows.
            self.burial = None
        self.rules = rules
        self._source = source
        self.is_matched: BoolArray = np.zeros(source.known.num_rows, dtype=bool)
        self.deletes: list[RowDelete] = []
        self.kept: list[RowDelete] = []
        self.updated = 0
        self._by_source_updated = self._by_source_deleted = 0
        self._images: list[pa.Table] = []
        self._ids: list[Int64Array] = []
        self._changes: list[tuple[str, pa.Table]] = []

    def apply(
        self,
        matched: Sequence[RowRule],
        by_source: Sequence[RowRule],
        *,
        partial: pa.Array | None,
        inserts: bool = False,
    ) -> None:
        """Apply the rules to all rows of the table that they can change.

        With `inserts`, the rows of the table that keep a row of the source from being inserted are kept in mind. With
        `partial`, matched rows get the columns that the source gives instead, or are deleted where it is true.
        """
        for found in self._rows(whole=bool(by_source)):
            is_matched = found.places >= 0
            self.is_matched[found.places[is_matched]] = True
            outcomes: list[tuple[Int64Array, pa.Table | None]] = []
            if is_matched.any():
                chosen = np.flatnonzero(is_matched)
                old, places = found.rows.take(pa.array(chosen)), found.places[chosen]
                parts = (
                    self._partial(old, places, partial) if partial is not None else self._matched(old, places, matched)
                )
                outcomes += [(chosen[rows], images) for rows, images in parts]
                if inserts:
                    selected = np.concatenate([chosen[:0], *(rows for rows, _ in outcomes)])
                    self._keep(found, np.setdiff1d(chosen, selected))
            if by_source and not is_matched.all():
                chosen = np.flatnonzero(~is_matched)
                old = found.rows.take(pa.array(chosen))
                joined = _joined(None, old)
                for rows, images in self._by_rules(old, joined, by_source, None):
                    outcomes.append((chosen[rows], images))
                    self._by_source_updated += 0 if images is None else len(rows)
                    self._by_source_deleted += len(rows) if images is None else 0
            self._stage(found, outcomes)

    def counts(self, rules: MergeRules) -> dict[str, int]:
        """How many rows of the table the rules have changed."""
        deleted = sum(len(delete.positions) for delete in self.deletes) - self.updated
        found = {"numTargetRowsUpdated": self.updated, "numTargetRowsDeleted": deleted}
        if not rules.by_source:
            return found
        return found | counts_by_clause(self.updated, deleted, self._by_source_updated, self._by_source_deleted)

    def _rows(self, *, whole: bool) -> Iterator[_Found]:
        keyed = self._source.keyed
        if not whole:
            for add, positions, places, row_ids, _ in self.found():
                yield _Found(add, keyed[places], positions, row_ids, self.whole_rows(add, BitMap64(positions)))
            return
        for add in files.to_adds(self._state.files().adds):
            positions, keys = self._read_keys(add)
            places = self._keys.places(keys)
            numbers = np.where(places >= 0, keyed[places], _NONE) if len(keyed) else np.full(len(places), _NONE)
            pieces = [batch for _, batch in self.read(add, self.schema)]
            rows = pa.Table.from_batches(pieces, schema=self.schema)
            yield _Found(add, numbers, positions, self._row_ids(keys), rows)

    def _matched(
        self, old: pa.Table, places: Int64Array, ordered: Sequence[RowRule]
    ) -> Iterator[tuple[Int64Array, pa.Table | None]]:
        source = self._source.everything.take(pa.array(places))
        yield from self._by_rules(old, _joined(source, old), ordered, self._source.known.column_names)

    def _by_rules(
        self, old: pa.Table, joined: pa.Table, ordered: Sequence[RowRule], columns: Sequence[str] | None
    ) -> Iterator[tuple[Int64Array, pa.Table | None]]:
        """For each rule the rows that it selects, and their new images; None if it deletes them."""
        for rule, chosen in _decided(ordered, joined):
            if not len(chosen):
                continue
            if rule.act is Act.DELETE:
                yield chosen, None
                continue
            values = rule.values
            if values is None:
                values = {name: f"{SOURCE}.{backquoted(name)}" for name in columns or ()}
            places = pa.array(chosen)
            yield chosen, self._assigned(old.take(places), joined.take(places), values)

    def _assigned(self, old: pa.Table, joined: pa.Table, values: Mapping[str, str]) -> pa.Table:
        new = columns_set(values, self.schema)
        columns = [
            predicate.evaluate(new[field.name], joined, field) if field.name in new else old[field.name]
            for field in self.schema
        ]
        return self.rules.images(pa.table(columns, schema=self.schema), new)

    def _partial(
        self, old: pa.Table, places: Int64Array, deleted: pa.Array
    ) -> Iterator[tuple[Int64Array, pa.Table | None]]:
        goes = np.asarray(deleted)[places]
        if goes.any():
            yield np.flatnonzero(goes), None
        stays = np.flatnonzero(~goes)
        if not len(stays):
            return
        names = [name for name in self.schema.names if name in self._source.known.column_names]
        given = np.stack([self._source.has(name, places[stays]) for name in names], axis=1)
        # Rows that give the same columns are changed together: what is generated from the others stays.
        patterns, numbers = np.unique(given, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = stays[np.flatnonzero(numbers.reshape(-1) == number)]
            changed = {name for name, is_given in zip(names, pattern, strict=True) if is_given}
            before = old.take(pa.array(rows))
            after = self._source.known.take(pa.array(places[rows]))
            columns = [after[name] if name in changed else before[name] for name in self.schema.names]
            images = conform.conform(pa.table(dict(zip(self.schema.names, columns, strict=True))), self.schema)
            yield rows, self.rules.images(images, changed - set(self._keys.names))

    def _keep(self, found: _Found, rows: Int64Array) -> None:
        if len(rows):
            self.kept.append(self.keeping(found.add, found.positions[rows]))

    def _stage(self, found: _Found, outcomes: Sequence[tuple[Int64Array, pa.Table | None]]) -> None:
        chosen = np.concatenate([np.empty(0, dtype=np.int64), *(rows for rows, _ in outcomes)])
        if not len(chosen):
            return
        gone = np.sort(chosen)
        positions = BitMap64(found.positions[gone])
        self.deletes.append(self.delete(Matched(found.add, positions, found.rows.take(pa.array(gone)))))
        for rows, images in outcomes:
            if images is not None:
                self.updated += len(rows)
                self._images.append(images)
                self._ids.append(found.row_ids[rows])
            if self.burial is not None:
                old = found.rows.take(pa.array(rows))
                if images is None:
                    self.burial.add(old)
                else:
                    self.bury_old_keys(old, images)
            if self.feed:
                old = found.rows.take(pa.array(rows))
                kind = change_files.DELETE if images is None else change_files.UPDATE_PREIMAGE
                self._changes.append((kind, old))
                if images is not None:
                    self._changes.append((change_files.UPDATE_POSTIMAGE, images))

    def inserted(self, ordered: Sequence[RowRule]) -> int:
        """Insert the rows of the source that no row of the table matches, by the rules. Returns how many."""
        missing = np.flatnonzero(~self.is_matched)
        if not len(missing):
            return 0
        count = 0
        source = self._source.everything.take(pa.array(missing))
        joined = _joined(source, None)
        for rule, chosen in _decided(ordered, joined):
            if not len(chosen):
                continue
            if rule.values is None:
                self._insert(self._new_rows(missing[chosen]))
            else:
                new = columns_set(rule.values, self.schema)
                rows = joined.take(pa.array(chosen))
                fields = [field for field in self.schema if field.name in new]
                columns = [predicate.evaluate(new[field.name], rows, field) for field in fields]
                self._insert(self.rules.rows(pa.table(columns, schema=pa.schema(fields))))
            count += len(chosen)
        return count

    def _new_rows(self, numbers: Int64Array) -> pa.Table:
        own = self._source.known.column_names
        if self._source.rows is None:
            return self.rules.rows(self._source.known.take(pa.array(numbers)))
        lowered = {name.lower() for name in own}
        rows = [self._source.rows[number] for number in numbers]
        return self.rules.rows([{name: row[name] for name in row if str(name).lower() in lowered} for row in rows])

    def _insert(self, rows: pa.Table) -> None:
        self._images.append(rows)
        self._ids.append(np.full(rows.num_rows, NEW_ROW))
        if self.feed:
            self._changes.append((change_files.INSERT, rows))

    def write(self) -> tuple[list[AddFile], list[AddCDCFile]]:
        """Write the new rows, and all change rows: readers of a version with change files read nothing else."""
        adds: list[AddFile] = []
        if self._images:
            rows = self._writer.prepared(pa.concat_tables(self._images))
            adds = self._writer.write(with_kept_ids(rows, self._writer.tracked, np.concatenate(self._ids)))
        cdc = self.cdc(*((kind, self._writer.prepared(rows)) for kind, rows in self._changes)) if self._changes else []
        return adds, cdc


def stage_merge(
    state: LogState, writer: DataWriter, data: Any, names: Sequence[str], rules: MergeRules
) -> Staged | None:
    """Stage an upsert by rules; None if nothing changes.

    Raises SchemaMismatchError, DuplicateKeyError, PredicateError, and ConfigurationError for a column that is set and
    does not exist.
    """
    row_rules = RowRules.of(writer)
    source = _Source(data, row_rules, names, writer.store.url)
    for rule in rules.matched:
        if rule.act is Act.UPDATE and rule.values is None:
            _require_all(source, row_rules)
    merge = _Merge(state, writer, source, row_rules)
    _require_read(source.extra.column_names, rules)
    # An empty list of dicts has no columns that a rule could name.
    is_known = source.rows is None or bool(source.rows)
    _check(rules if is_known else MergeRules(by_source=rules.by_source), source.everything, merge.schema)
    merge.apply(rules.matched, rules.by_source, partial=None, inserts=bool(rules.not_matched))
    staged = _staged(merge, source, merge.inserted(rules.not_matched), rules)
    return staged if staged.adds or staged.deletes else None


def stage_partial(
    state: LogState,
    writer: DataWriter,
    data: Any,
    names: Sequence[str],
    delete_where: str | None,
    order: Sequence[str] = (),
) -> Staged | None:
    """Stage an upsert that sets the columns which the data gives, of the rows with its keys; None if nothing changes.

    Other columns keep their values, or get their defaults in a new row. In a list of dicts, each row has columns of its
    own. With `order`, a row has no effect if the table has something newer of its key; see `upsert_order`.

    Raises the errors of `stage_upsert`.
    """
    if delete_where is not None:
        delete_where = predicate.at_time(delete_where, writer.system.now_ms)
    row_rules = RowRules.of(writer)
    if order:
        held = conform.hold(data)
        data = newest_of(held, row_rules, names, order)
        if not isinstance(held, pa.Table) and len(data) < len(held):
            _require_no_more(held, data, row_rules, names, delete_where)
    source = _Source(data, row_rules, names, writer.store.url)
    if not source.known.num_rows:
        return None
    if len(source.keyed) < source.known.num_rows:
        Keys(source.known.select(names), names, writer.store.url)  # raises
    used = predicate.columns(predicate.parse(delete_where, source.everything.schema)) if delete_where else set()
    conform.match_names([name for name in source.extra.column_names if name not in used], writer.schema.names)
    deleted = pa.array(np.zeros(source.known.num_rows, dtype=bool))
    if delete_where is not None:
        deleted = matching(source.everything, delete_where)
    ordered = None
    if order:
        ordered = KeyMatcher(state, writer, source.keys).ordered(source.known.select(order), np.asarray(deleted))
        everything, wins = source.keys, ordered.decision.wins
        if not wins.all():
            rows = source.everything
            left = rows.filter(pa.array(wins)) if source.rows is None else list(compress(source.rows, wins))
            source, deleted = _Source(left, row_rules, names, writer.store.url), deleted.filter(pa.array(wins))
    merge = _Merge(state, writer, source, row_rules, has_order=bool(order))
    merge.apply((), (), partial=deleted)
    merge.is_matched |= np.asarray(deleted)
    matched = [RowRule(None, Act.UPDATE)]
    if delete_where is not None:
        matched.insert(0, RowRule(delete_where, Act.DELETE))
    inserts = [RowRule(None, Act.INSERT)]
    staged = _staged(merge, source, merge.inserted(inserts), MergeRules(matched, inserts))
    if ordered is None:
        return staged if staged.adds or staged.deletes else None
    return replace(ordered.staged(staged), reads=Reads(everything.predicate(), everything.table))


def _require_no_more(
    rows: Sequence[Any], newest: Sequence[Any], rules: RowRules, names: Sequence[str], delete_where: str | None
) -> None:
    """Raise DuplicateKeyError if a row sets a column that the newest row of its key does not. Deletions set none."""
    loose = pa.schema([field.with_nullable(True) for field in rules.schema])  # noqa: FBT003 - pyarrow's signature
    known, extra = python_rows.by_ownership(rows, loose)
    everything = pa.table([*known.columns, *extra.columns], schema=pa.schema([*known.schema, *extra.schema]))
    is_deleted = matching(everything, delete_where).to_pylist() if delete_where else [False] * len(rows)
    own = {name.lower() for name in rules.schema.names}
    given = [{str(name).lower() for name in row} & own for row in rows]
    chosen, keys = {id(row) for row in newest}, known.select(names).to_pylist()
    of_key: dict[tuple[Any, ...], set[str]] = {}
    for row, key, columns, is_gone in zip(rows, keys, given, is_deleted, strict=True):
        if id(row) in chosen:
            of_key[tuple(key.values())] = own if is_gone else columns
    for key, columns, is_gone in zip(keys, given, is_deleted, strict=True):
        more = set() if is_gone else columns - of_key.get(tuple(key.values()), own)
        if more:
            named = ", ".join(f"{name}={value!r}" for name, value in key.items())
            raise DuplicateKeyError(
                f"the data has several rows for 1 key, {named}, and the newest lacks the column {min(more)!r}",
                advice="upsert them one after another, or give all of them the same columns",
                key=named,
            )


def _staged(merge: _Merge, source: _Source, inserted: int, rules: MergeRules) -> Staged:
    adds, cdc = merge.write()
    names = source.keys.names
    reads = Reads(source.keys.predicate(), source.keys.table)
    if rules.by_source:
        reads = Reads(Literal(True))  # noqa: FBT003 - a value
    return Staged(
        operation="MERGE",
        operation_class=OperationClass.UPDATE_DELETE,
        adds=tuple(adds),
        deletes=tuple(merge.deletes),
        cdc=tuple(cdc),
        reads=reads,
        is_computed=True,
        sees_all=rules.reads_all,
        kept=tuple(merge.kept),
        tombstones=merge.tombstones(),
        parameters=_parameters(names, rules),
        metrics={
            "numSourceRows": source.known.num_rows,
            "numTargetRowsInserted": inserted,
            **merge.counts(rules),
            **file_metrics(merge.deletes, adds),
            "numAddedBytes": sum(add.size for add in adds),
        },
        record={commit_info.UPSERT_KEYS: list(names)},
    )


def _parameters(names: Sequence[str], rules: MergeRules) -> dict[str, str]:
    kinds = {
        "matchedPredicates": rules.matched,
        "notMatchedPredicates": rules.not_matched,
        "notMatchedBySourcePredicates": rules.by_source,
    }
    return merge_parameters(names, {name: [_described(rule) for rule in ordered] for name, ordered in kinds.items()})


def _described(rule: RowRule) -> dict[str, str]:
    condition = {} if rule.condition is None else {"predicate": rule.condition}
    return {**condition, "actionType": rule.act}


def _require_all(source: _Source, rules: RowRules) -> None:
    """Raise SchemaMismatchError if the source lacks a column of the table, which an update of all columns needs."""
    generated = {rule.column for rule in rules.rules.generated} if rules.rules else set()
    missing = [name for name in rules.schema.names if name not in (*source.known.column_names, *generated)]
    if missing:
        raise SchemaMismatchError(
            f"the rule 'update' sets all columns of the table, and the data lacks {', '.join(missing)}",
            advice="add the columns to the data, or say what to set: {'price': 'source.price'}",
            column=missing[0],
        )


def columns_set(values: Mapping[str, str], schema: pa.Schema) -> dict[str, str]:
    """The new values by the names of the table's columns; case does not matter. Raises ConfigurationError."""
    spelled = {name.lower(): name for name in schema.names}
    found: dict[str, str] = {}
    for name, text in values.items():
        known = name if name in schema.names else spelled.get(name.lower())
        if known is None:
            raise ConfigurationError(
                f"there is no column {name!r} to set",
                advice=f"{did_you_mean(name, schema.names)}the columns are {', '.join(schema.names)}",
            )
        if known in found:
            raise ConfigurationError(
                f"the column {known!r} is set twice", advice="column names that differ in case only are the same column"
            )
        found[known] = text
    return found


def _require_read(extra: Sequence[str], rules: MergeRules) -> None:
    """Raise SchemaMismatchError if whole rows are taken, and a column is neither the table's nor read by a rule."""
    rows = [rule for rule in (*rules.matched, *rules.not_matched) if rule.act is not Act.DELETE]
    if all(rule.values is not None for rule in rows):
        return
    texts = [
        text.lower()
        for rule in (*rules.matched, *rules.not_matched, *rules.by_source)
        for text in (rule.condition, *(rule.values or {}).values())
        if text is not None
    ]
    for name in extra:
        if not any(name.lower() in text for text in texts):
            raise SchemaMismatchError(
                f"the data has a column {name!r} that the table does not have, and no rule reads it",
                advice="drop the column from the data, or add it to the table first",
                column=name,
            )


def _check(rules: MergeRules, source: pa.Table, schema: pa.Schema) -> None:
    """Raise the errors of rules that are invalid for any row, before any file is read."""
    none, target = source.slice(0, 0), schema.empty_table()
    for ordered, joined in (
        (rules.matched, _joined(none, target)),
        (rules.not_matched, _joined(none, None)),
        (rules.by_source, _joined(None, target)),
    ):
        for rule in ordered:
            if rule.condition is not None:
                _require_clear(rule.condition, joined.schema)
                Condition(predicate.parse(rule.condition, joined.schema), joined.schema)
            for name, text in columns_set(rule.values or {}, schema).items():
                _require_clear(text, joined.schema)
                predicate.evaluate(text, joined, schema.field(name))


def _require_clear(text: str, joined: pa.Schema) -> None:
    """Raise PredicateError for a name that is a column of both sides, and a function without parentheses as well."""
    sides = [
        {field.name.lower() for field in joined.field(name).type} for name in (SOURCE, TARGET) if name in joined.names
    ]
    both = [name for name in CURRENT if all(name in side for side in sides) and len(sides) > 1]
    if both:
        columns = pa.schema([*joined, *(pa.field(name, pa.null()) for name in both)])
        for name in predicate.columns(predicate.parse(text, columns)) & set(both):
            raise PredicateError(
                f"{name!r} is a column of the source and of the target",
                advice=f"write source.{name} or target.{name}, or {name}() for the function",
                token=name,
            )


def _joined(source: pa.Table | None, target: pa.Table | None) -> pa.Table:
    """Rows of both sides as structs, `source` and `target`. A name that only one side has is a column, too."""
    sides = {name: side for name, side in ((SOURCE, source), (TARGET, target)) if side is not None}
    columns: dict[str, pa.Array] = {name: pa.chunked_array([_struct(side)]) for name, side in sides.items()}
    counts: dict[str, int] = {SOURCE: 1, TARGET: 1}
    for side in sides.values():
        for name in side.column_names:
            counts[name.lower()] = counts.get(name.lower(), 0) + 1
    for side in sides.values():
        columns.update({name: side[name] for name in side.column_names if counts[name.lower()] == 1})
    return pa.table(columns)


def _struct(rows: pa.Table) -> pa.StructArray:
    arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in rows.columns]
    if not arrays:
        return pa.array([{}] * rows.num_rows, pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=[field.with_metadata(None) for field in rows.schema])


def _decided(ordered: Sequence[RowRule], joined: pa.Table) -> Iterator[tuple[RowRule, Int64Array]]:
    """For each rule the rows for which its condition is the first that is true."""
    left: Int64Array = np.arange(joined.num_rows)
    for rule in ordered:
        if rule.condition is None:
            yield rule, left
            return
        rows = joined.take(pa.array(left))
        is_true = np.asarray(
            Condition(predicate.parse(rule.condition, joined.schema), joined.schema).mask(rows), dtype=bool
        )
        yield rule, left[is_true]
        left = left[~is_true]

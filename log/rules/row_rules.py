"""The rules of a table, applied to new rows: columns that the data lacks are filled, and broken rules are errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.data import conform, python_rows
from tidelog.log.data.blocks import repeated
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, ConstraintViolationError, PredicateError
from tidelog.log.predicate.tree import clipped
from tidelog.log.rules import expressions, refusals
from tidelog.log.rules.declared import Check, Computed, Declared, Identity, Length, declared

_Rule = TypeVar("_Rule", Computed, Identity)


@dataclass(frozen=True, slots=True)
class RowRules:
    """The schema of a table and its rules for new rows; picklable.

    Rules see the values that a reader will see: an empty string in a partition column counts as null
    (`DataWriter.prepared`), a varchar(n) has lost spaces that are too many, and a char(n) has got those that it lacks.

    `answers` are columns that Spark added to the data: for each rule in `answered`, whether it holds for the row. Then
    Spark has filled all columns, and nothing is computed here (see `spark_work`).
    """

    writer: DataWriter
    rules: Declared
    answers: tuple[str, ...] = ()

    @classmethod
    def of(cls, writer: DataWriter) -> RowRules:
        """The rules of the writer's table, at the present time.

        Raises CorruptLogError, and UnsupportedFeatureError for a rule that engines read in different ways or a column
        of a type such as char(n).
        """
        rules = declared(writer.metadata, writer.store.url)
        if not rules:
            return cls(writer, rules)
        for error in refusals.of_rules(rules, writer.schema.names, writer.store.url):
            raise error
        return cls(writer, rules.at(writer.system.now_ms()))

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.writer.schema

    @property
    def path(self) -> str:
        """The table, for errors."""
        return self.writer.store.url

    def act_on(self, names: Collection[str]) -> bool:
        """Whether data with columns of these names has to be filled or checked."""
        rules = self.rules
        return bool(
            rules.checks or rules.generated or rules.identities or rules.lengths or _lacking(rules.defaults, names)
        )

    def rows(self, data: Any) -> pa.Table:
        """New rows for the table, from anything that `conform.hold` takes.

        Columns that the data lacks get their default or what generates them, and else null. In a list of dicts, each
        row gets the defaults that it lacks.

        Raises SchemaMismatchError for data that does not fit, ConstraintViolationError for a row that breaks a rule,
        UnsupportedFeatureError for an expression that tidelog cannot evaluate, and for an identity column without
        values.
        """
        schema = self.schema
        held = conform.hold(data)
        if isinstance(held, pa.Table):
            return self.of_table(conform.without_index(held, schema))
        python_rows.require_dicts(held)
        held = self.with_defaults(held)
        names = list(dict.fromkeys(str(name) for row in held for name in row))
        return self._ruled(python_rows.to_table(held, self._own(names)), names)

    def of_table(self, rows: pa.Table) -> pa.Table:
        """New rows for the table from an Arrow table. Raises the errors of `rows`."""
        answers, rows = self.split(rows)
        return self.answered(rows, answers)

    def answered(self, rows: pa.Table, answers: pa.Table | None) -> pa.Table:
        """As `of_table`, for rows without Spark's answers, which are given apart."""
        if not self.rules:
            return conform.conform(rows, self.schema)
        own = conform.conform(rows, self._own(rows.column_names))
        return self._ruled(own, rows.column_names, answers)

    def split(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Spark's answers, and the rows without them."""
        return rows.select(self.answers), rows.drop_columns(list(self.answers))

    def require_fits(self, data: pa.Schema) -> None:
        """Raise the errors of `rows` that the names and types of the data already show."""
        rows = data.empty_table()
        self.of_table(rows)
        self._require_identities(rows.column_names)

    def with_defaults(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The dicts; each one with the defaults of the columns that it lacks."""
        if not self.rules.defaults or not rows:
            return rows
        known = {rule.column.lower(): rule for rule in self.rules.defaults}
        # All rows must spell a name in the same way.
        spelled = {str(name).lower(): str(name) for row in rows for name in row}
        values = {
            name: (spelled.get(name, rule.column), self._default(rule).as_py())
            for name, rule in known.items()
            if any(name not in {str(given).lower() for given in row} for row in rows)
        }
        return [_completed(row, values) for row in rows]

    def images(self, rows: pa.Table, changed: Collection[str]) -> pa.Table:
        """The new images of an update, which gave the columns `changed` new values.

        Columns that are generated from these are computed again, unless the update sets them. Raises the errors of
        `rows`, and ConfigurationError for a new value of an identity column.
        """
        if not self.rules:
            return rows
        for identity in self.rules.identities:
            if identity.column in changed:
                raise ConfigurationError(
                    f"the identity column {identity.column!r} of {self.path} cannot be updated",
                    advice="delete the rows, and insert them again",
                )
        given = [rule.column for rule in self.rules.generated if rule.column in changed]
        again = [
            rule
            for rule in self.rules.generated
            if rule.column not in given and expressions.mentions(rule.expression, changed)
        ]
        rows = self._generated(self._stored(rows, changed), again)
        touched = {*changed, *(rule.column for rule in again)}
        rows = self._stored(rows, touched)
        self._require_generated(rows, given)
        self._require_checks(rows, touched)
        return rows

    def _own(self, names: Iterable[str]) -> pa.Schema:
        """The table's columns without those that are to be computed, because the data does not have them."""
        filled = {rule.column for rule in _lacking((*self.rules.defaults, *self.rules.generated), names)}
        filled |= {rule.column for rule in _lacking(self.rules.identities, names)}
        return pa.schema([field for field in self.schema if field.name not in filled])

    def _ruled(self, rows: pa.Table, names: Sequence[str], answers: pa.Table | None = None) -> pa.Table:
        """The rows, filled and checked; `names` are the columns that the data has."""
        if not self.rules:
            return rows
        if rows.num_rows:
            self._require_identities(names)
        rows = self._stored(rows)
        lacking = _lacking(self.rules.generated, names)
        for default in _lacking(self.rules.defaults, names):
            column = repeated(self._default(default), rows.num_rows)
            rows = rows.append_column(self.schema.field(default.column), column)
        rows = self._stored(self._generated(rows, lacking))
        # Missing only if there are no rows: then it does not matter what they hold.
        for identity in _lacking(self.rules.identities, names):
            field = self.schema.field(identity.column)
            rows = rows.append_column(field, pa.nulls(0, field.type))
        rows = pa.table([rows[name] for name in self.schema.names], schema=self.schema)
        self._require_values(rows)
        if self.answers:
            self._require_answers(rows, answers)
        else:
            self._require_generated(rows, [rule.column for rule in self.rules.generated if rule not in lacking])
            self._require_checks(rows)
        return rows

    def _stored(self, rows: pa.Table, touched: Collection[str] | None = None) -> pa.Table:
        """The rows with the values that readers will see; with `touched`, only these columns are new."""
        return self.writer.prepared(fitted(rows, self.rules.lengths, self.path, touched))

    def _generated(self, rows: pa.Table, rules: Iterable[Computed]) -> pa.Table:
        """The rows with columns computed: those that are there are replaced."""
        for rule in rules:
            field = self.schema.field(rule.column)
            what = f"the generated column {rule.column!r}"
            column = expressions.values(rule.expression, rows, field, what, self.path)
            index = rows.schema.get_field_index(rule.column)
            rows = rows.append_column(field, column) if index < 0 else rows.set_column(index, field, column)
        return rows

    def _require_generated(self, rows: pa.Table, columns: Collection[str]) -> None:
        for rule in self.rules.generated:
            if rule.column in columns:
                field, what = self.schema.field(rule.column), f"the generated column {rule.column!r}"
                loose = field.with_nullable(True)  # noqa: FBT003 - pyarrow's signature
                wanted = expressions.values(rule.expression, rows, loose, what, self.path)
                equal = expressions.equal_or_null(rows[rule.column], wanted)
                require_generated(rule.column, rule.expression, equal, rows, wanted, self.path)

    def _require_checks(self, rows: pa.Table, touched: Collection[str] | None = None) -> None:
        """Raise ConstraintViolationError for a row that breaks a condition.

        With `touched`, only these columns are new; conditions over others held before.
        """
        for check in self.rules.checks:
            if touched is None or expressions.mentions(check.expression, touched):
                what = f"the {check.kind} {check.name!r}"
                holds = expressions.outcomes(check.expression, rows, what, self.path)
                require_true(check, holds, rows, self.path)

    def _require_answers(self, rows: pa.Table, answers: pa.Table | None) -> None:
        """Raise ConstraintViolationError for a row for which Spark found that it breaks a rule."""
        assert answers is not None, "rows from Spark come with its answers"
        found = [pc.fill_null(column.combine_chunks(), False) for column in answers.columns]  # noqa: FBT003 - a value
        count = len(self.rules.checks)
        for check, holds in zip(self.rules.checks, found[:count], strict=True):
            require_true(check, holds, rows, self.path)
        for rule, equal in zip(self.rules.generated, found[count:], strict=True):
            require_generated(rule.column, rule.expression, equal, rows, None, self.path)

    def _require_identities(self, names: Collection[str]) -> None:
        """Raise UnsupportedFeatureError if a value of an identity column would have to be generated."""
        for error in refusals.of_identities(self.rules.identities, names, self.path):
            raise error

    def _require_values(self, rows: pa.Table) -> None:
        for identity in self.rules.identities:
            if rows[identity.column].null_count:
                raise refusals.identity_error(
                    f"{rows[identity.column].null_count} of {rows.num_rows} rows have no value in the identity column "
                    f"{identity.column!r} of {self.path}, and tidelog does not generate such values",
                    self.path,
                )

    def _default(self, rule: Computed) -> pa.Scalar:
        what = f"the default of the column {rule.column!r}"
        return expressions.value_of(rule.expression, self.schema.field(rule.column), what, self.path)


def _completed(row: Mapping[str, Any], values: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The dict with the values whose names, in lower case, it does not have."""
    present = {str(name).lower() for name in row}
    return {**row, **dict(entry for name, entry in values.items() if name not in present)}


def _lacking(rules: Iterable[_Rule], names: Iterable[str]) -> list[_Rule]:
    """The rules whose column is not among the names; case does not matter."""
    present = {name.lower() for name in names}
    return [rule for rule in rules if rule.column.lower() not in present]


# --- columns of the types varchar(n) and char(n): no text has more than n characters ----------------------------------
#
# As in Spark, spaces at the end that are too many are cut off, and any other text that is too long is an error. A text
# of a char(n) has n characters: it gets spaces at the end.


def fitted(rows: pa.Table, rules: Iterable[Length], path: str, touched: Collection[str] | None = None) -> pa.Table:
    """The rows without spaces that are too many. Raises ConstraintViolationError for another text that is too long.

    With `touched`, only these columns are looked at. The rows can lack columns.
    """
    for rule in rules:
        if rule.column not in rows.column_names or (touched is not None and rule.column not in touched):
            continue
        texts = rows[rule.column]
        if rule.pads:
            texts = pc.utf8_rpad(texts, rule.limit, " ")
            index = rows.schema.get_field_index(rule.column)
            rows = rows.set_column(index, rows.schema.field(index), texts)
        is_long = pc.fill_null(pc.greater(pc.utf8_length(texts), rule.limit), False)  # noqa: FBT003 - a value
        if not pc.any(is_long).as_py():
            continue
        beyond = pc.fill_null(pc.utf8_rtrim(pc.utf8_slice_codeunits(texts, rule.limit), " "), "")
        require_short(rule, pc.equal(beyond, "").combine_chunks(), rows, path)
        index = rows.schema.get_field_index(rule.column)
        cut = pc.utf8_slice_codeunits(texts, 0, rule.limit)
        rows = rows.set_column(index, rows.schema.field(index), cut)
    return rows


# --- rows that break a rule: the errors, with the values of the first such row ----------------------------------------


# Rows can be secret, so only the columns of the rule are shown, and of a long value only its start.
_MOST_COLUMNS = 8
_LONGEST_VALUE = 40


def require_true(check: Check, holds: pa.BooleanArray, rows: pa.Table, path: str) -> None:
    """Raise ConstraintViolationError if the condition does not hold for a row."""
    if holds.false_count:
        what = f"the {check.kind} {check.name!r}"
        raise ConstraintViolationError(
            f"{_count(holds)} violate {what} of {path}: {clipped(check.expression)}",
            advice="correct these rows, or leave them out; a condition that is null counts as violated",
            path=path,
            constraint=check.name,
            expression=clipped(check.expression),
            row=_first(holds, rows, _columns(check.expression, rows.schema)),
        )


def require_generated(
    column: str, expression: str, equal: pa.BooleanArray, rows: pa.Table, computed: pa.ChunkedArray | None, path: str
) -> None:
    """Raise ConstraintViolationError if the data has another value than the expression of a generated column."""
    if equal.false_count:
        names = [column, *(name for name in _columns(expression, rows.schema) if name != column)]
        wanted = "" if computed is None else f" (it must be {_shown(computed[_place(equal)])})"
        raise ConstraintViolationError(
            f"{_count(equal)} have another value in the generated column {column!r} of {path} than "
            f"{clipped(expression)}{wanted}",
            advice="leave the column out of the data: it is computed then",
            column=column,
            path=path,
            constraint=column,
            expression=clipped(expression),
            row=_first(equal, rows, names),
        )


def require_short(rule: Length, fits: pa.BooleanArray, rows: pa.Table, path: str) -> None:
    """Raise ConstraintViolationError if a text is too long for its column."""
    if fits.false_count:
        kind = rule.kind
        raise ConstraintViolationError(
            f"{_count(fits)} have a text in the column {rule.column!r} of {path} that is too long for {kind}",
            advice="shorten these texts, or leave the rows out",
            column=rule.column,
            path=path,
            constraint=rule.column,
            expression=kind,
            row=_first(fits, rows, [rule.column]),
        )


def _count(holds: pa.BooleanArray) -> str:
    return f"{holds.false_count} of {len(holds)} rows"


def _place(holds: pa.BooleanArray) -> int:
    return int(pc.index(holds, False).as_py())


def _first(holds: pa.BooleanArray, rows: pa.Table, names: Sequence[str]) -> str:
    place = _place(holds)
    return ", ".join(f"{name}={_shown(rows[name][place])}" for name in names[:_MOST_COLUMNS])


def _columns(expression: str, schema: pa.Schema) -> list[str]:
    """The table's columns that the expression reads."""
    try:
        found = frozenset(predicate.columns(predicate.parse(expression, schema)))
    except PredicateError:  # Spark evaluated it
        found = predicate.words(expression) or frozenset()
    return [name for name in schema.names if name in found or name.lower() in found]


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py()) if pa.types.is_nested(value.type) or _is_text(value.type) else str(value)
    except (ValueError, OverflowError):  # Python has no such date or time
        text = str(value)
    if not value.is_valid:
        return "null"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))

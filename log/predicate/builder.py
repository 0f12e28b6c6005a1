"""From sqlglot's tree to ours. What tidelog does not evaluate is refused by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from tidelog.log.errors import PredicateError
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.predicate.casts import coerce
from tidelog.log.predicate.char_columns import char_length
from tidelog.log.predicate.conditions import like_matcher
from tidelog.log.predicate.functions import FUNCTIONS, OPERATORS
from tidelog.log.predicate.tree import (
    CURRENT,
    MAX_CONDITIONS,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Value,
    clipped,
    column_type,
    columns,
    to_sql,
    too_long,
)
from tidelog.log.predicate.types import MAX_DIGITS
from tidelog.log.presentable import did_you_mean

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
}
# Functions with a syntax of their own.
_OWN_SYNTAX = (
    exp.Trim,
    exp.Extract,
    exp.Substring,
    exp.StrPosition,
)
# The arguments of sqlglot's nodes that are evaluated. Ignoring another one would silently change the meaning.
_UNDERSTOOD = {
    "this",
    "expression",
    "expressions",
    "low",
    "high",
    "negate",
    "is_string",
    "table",
    "db",
    "catalog",
    "to",
    "typed",
    "safe",
    "ifs",
    "default",
    "true",
    "false",
    "unit",
    "position",
    "start",
    "length",
    "substr",
}


# Functions that Spark calls without parentheses even if there is a column of that name.
_ALWAYS_CALLED = frozenset({"current_path"})
_FIELD_ADVICE = "only fields of structs can be read in this way, as in place['city']"


class Builder:
    """Convert sqlglot's tree to ours; without a schema every column is taken to exist."""

    def __init__(self, text: str, schema: pa.Schema | None) -> None:
        self._text = text
        self._schema = schema
        self._names = frozenset() if schema is None else frozenset(name.lower() for name in schema.names)
        self._conditions = 0

    def build(self, node: exp.Expr) -> Expression:
        """The tree of `node`. Raises PredicateError for a node, or an argument of it, that is not supported."""
        if any(value for name, value in node.args.items() if name not in _UNDERSTOOD):
            raise _unsupported(node)
        found = self._positive(node)
        self._require_column(found)
        return Not(found) if node.args.get("negate") else found

    def _positive(self, node: exp.Expr) -> Expression:
        if type(node) in _COMPARISONS:
            return Comparison(_COMPARISONS[type(node)], *self._sides(node))
        if type(node) in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[type(node)], self.build(node.this), self.build(node.expression), node)
        method = self._METHODS.get(type(node))
        return method(self, node) if method else Literal(self._constant(node))

    def _inner(self, node: exp.Paren) -> Expression:
        return self.build(node.this)

    def _not(self, node: exp.Not) -> Expression:
        return Not(self.build(node.this))

    def _interval(self, node: exp.Interval) -> Expression:
        return Literal(_interval_of(node))

    def _sides(self, node: exp.Expr) -> tuple[Expression, Expression]:
        """Both sides of a comparison."""
        return self.build(node.this), self.build(node.expression)

    def _require_column(self, found: Expression) -> None:
        """Raise PredicateError for a column name in quotation marks that make it a text."""
        match found:
            case Comparison(_, left, right):
                sides: tuple[Expression, ...] = (left, right)
            case In(left, _) | Like(left, _, _) | IsNull(left):
                sides = (left,)
            case _:
                return
        names = [side.value for side in sides if isinstance(side, Literal) and isinstance(side.value, str)]
        quoted = [name for name in names if name.lower() in self._names]
        if quoted and not columns(found):
            raise PredicateError(
                f"{clipped(to_sql(found))!r} reads no column: {quoted[0]!r} in quotation marks is a text",
                advice=f"quote the column with backquotes: `{quoted[0]}`",
                token=quoted[0],
            )

    def _chain(self, node: exp.And | exp.Or) -> Expression:
        join: Callable[[Expression, Expression], Expression] = And if isinstance(node, exp.And) else Or
        return _balanced(join, [self._condition(part) for part in _parts_of_chain(node)])

    def _condition(self, node: exp.Expr) -> Expression:
        """One part of a chain of AND or OR."""
        self._count()
        return self.build(node)

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise too_long(self._text, f"more than {MAX_CONDITIONS} conditions")

    def _is(self, node: exp.Is) -> Expression:
        match node.expression:
            case exp.Null():
                return IsNull(self.build(node.this))
            case exp.Boolean() as wanted:
                return Call("istrue" if wanted.this else "isfalse", (self.build(node.this),))
            case _:
                raise _unsupported(node)

    def _null_safe(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> Expression:
        same = Call("<=>", self._sides(node))
        return same if isinstance(node, exp.NullSafeEQ) else Not(same)

    def _in(self, node: exp.In) -> Expression:
        if not node.expressions:
            raise _unsupported(node)
        inner = self.build(node.this)
        if all(map(_is_constant, node.expressions)):
            values = [self._in_list(value) for value in node.expressions]
            if all(isinstance(value, Literal) for value in values):
                return In(inner, tuple(value.value for value in values if isinstance(value, Literal)))
        return Call("in", (inner, *(self._condition(value) for value in node.expressions)))

    def _in_list(self, node: exp.Expr) -> Expression:
        return self.build(node) if isinstance(node, exp.Cast) else Literal(self._constant(node))

    def _between(self, node: exp.Between) -> Expression:
        value, low, high = (self.build(node.args[name]) for name in ("this", "low", "high"))
        schema = self._schema
        has_char = schema is not None and any(char_length(side, schema) is not None for side in (value, low, high))
        if isinstance(value, (Column, Literal)) and not has_char:
            return And(Comparison(">=", value, low), Comparison("<=", value, high))
        return Call("between", (value, low, high))

    def _like(self, node: exp.Like | exp.ILike) -> Expression:
        return self._like_with(node, "\\")

    def _escape(self, node: exp.Escape) -> Expression:
        found = node.this
        escape = self._constant(node.expression)
        if not isinstance(found, (exp.Like, exp.ILike)) or not isinstance(escape, str):
            raise _unsupported(node)
        if any(value for name, value in found.args.items() if name not in _UNDERSTOOD):
            raise _unsupported(node)
        like_node = self._like_with(found, escape)
        return Not(like_node) if found.args.get("negate") else like_node

    def _like_with(self, node: exp.Like | exp.ILike, escape: str) -> Expression:
        pattern = self._constant(node.expression) if _is_constant(node.expression) else 0
        if pattern is None:
            return Comparison("=", Literal(None), Literal(None))
        if not isinstance(pattern, str):
            raise _unsupported(node, "a pattern is a constant text")
        inner = self.build(node.this)
        if isinstance(node, exp.ILike):
            inner, pattern = Call("lower", (inner,)), pattern.lower()
        like_matcher(pattern, escape)  # raises for a pattern that is not valid
        return Like(inner, pattern, escape)

    def _column(self, node: exp.Column | exp.Dot) -> Expression:
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier) and node.find(exp.Bracket):
            return self._field_of(node, node.this, node.expression.name)
        if any(not isinstance(part, (exp.Identifier, exp.Column, exp.Dot)) for part in node.walk()):
            raise _unsupported(node)
        names = [identifier.name for identifier in node.find_all(exp.Identifier, bfs=False)]
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else names
        if len(parts) == 1 and not node.this.quoted:
            self._require_name(parts[0].lower(), node)
        return Column(tuple(parts)) if self._schema is None else _resolved(parts, self._schema)

    def _require_name(self, name: str, node: exp.Column | exp.Dot) -> None:
        """Raise PredicateError for a word that is a function, although it has no parentheses."""
        if name in _ALWAYS_CALLED:
            raise _unsupported(node, f"Spark takes the word for a function; a column of that name is `{name}`")
        if self._schema is not None and name not in self._names and CURRENT.get(name, ("", False))[1]:
            raise _timeless(name, node)

    def _field(self, node: exp.Bracket) -> Expression:
        """`place['city']`, which for Spark is `place.city` if `place` is a struct."""
        name = node.expressions[0] if len(node.expressions) == 1 else None
        if not isinstance(name, exp.Literal) or not name.is_string:
            raise _unsupported(node, _FIELD_ADVICE)
        return self._field_of(node, node.this, str(name.this))

    def _field_of(self, node: exp.Expr, struct: exp.Expr, name: str) -> Expression:
        outer = self.build(struct)
        if not isinstance(outer, Column):
            raise _unsupported(node, _FIELD_ADVICE)
        if self._schema is None:
            return Column((*outer.path, name))
        if not pt.is_struct(column_type(outer, self._schema)):
            raise _unsupported(node, _FIELD_ADVICE)
        return _resolved([*outer.path, name], self._schema)

    def _case(self, node: exp.Case) -> Expression:
        operand = None if node.this is None else self.build(node.this)
        branches = []
        for branch in node.args["ifs"]:
            self._count()
            branches.append((self.build(branch.this), self.build(branch.args["true"])))
        default = node.args.get("default")
        return Case(operand, tuple(branches), Literal(None) if default is None else self.build(default))

    def _function(self, node: exp.Anonymous) -> Expression:
        name = str(node.this).lower()
        arguments = list(node.expressions)
        if name in ("ltrim", "rtrim") and len(arguments) > 1:  # Spark takes the characters first
            arguments.reverse()
        return self._call(name, arguments, node)

    def _renamed(self, node: exp.Expr) -> Expression:
        """A function that sqlglot parses by a syntax of its own."""
        name, arguments = _call_of(node)
        return self._call(name, arguments, node)

    def _call(self, name: str, arguments: list[exp.Expr], node: exp.Expr) -> Expression:
        _require_function(name, len(arguments), node)
        return Call(name, tuple(self.build(argument) for argument in arguments))

    def _pipe(self, node: exp.DPipe) -> Expression:
        return Call("||", (self.build(node.this), self.build(node.expression)))

    def _negative(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return Literal(_number(f"-{node.this.this}"))
        inner = self.build(node.this)
        if isinstance(inner, Literal):
            if isinstance(inner.value, Interval):
                return Literal(-inner.value)
            if isinstance(inner.value, (int, float, Decimal)) and not isinstance(inner.value, bool):
                return Literal(-inner.value)
        return Call("negative", (inner,))

    def _cast(self, node: exp.Cast) -> Expression:
        is_typed_literal = not isinstance(node, exp.TryCast) and isinstance(node.this, exp.Literal)
        kind = _type_of(node)
        if is_typed_literal:
            return self._typed_constant(node, kind)
        return Cast(self.build(node.this), kind)

    def _typed_constant(self, node: exp.Cast, kind: pa.DataType) -> Expression:
        """DATE '2013-01-01' and TIMESTAMP '...', which sqlglot parses as casts; one without a Python value is one."""
        value = coerce(str(node.this.this), kind)
        if isinstance(value, str):
            raise _unsupported(node)
        return Cast(Literal(str(node.this.this)), kind) if isinstance(value, pa.Scalar) else Literal(value)

    def _constant(self, node: exp.Expr) -> Value:
        match node:
            case exp.Literal() if node.is_string:
                return str(node.this)
            case exp.RawString():
                return str(node.this)
            case exp.Literal():
                return _number(str(node.this))
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Paren():
                return self._constant(node.this)
            case exp.Neg() | exp.Cast():
                found = self.build(node)
                if isinstance(found, Literal):
                    return found.value
            case _:
                pass
        raise _unsupported(node)

    _METHODS: ClassVar[Mapping[type[exp.Expr], Callable[[Builder, Any], Expression]]] = {
        exp.Paren: _inner,
        exp.And: _chain,
        exp.Or: _chain,
        exp.Not: _not,
        exp.Is: _is,
        exp.In: _in,
        exp.Between: _between,
        exp.Like: _like,
        exp.ILike: _like,
        exp.Escape: _escape,
        exp.NullSafeEQ: _null_safe,
        exp.NullSafeNEQ: _null_safe,
        exp.Column: _column,
        exp.Dot: _column,
        exp.Bracket: _field,
        exp.Case: _case,
        exp.Anonymous: _function,
        exp.DPipe: _pipe,
        exp.Neg: _negative,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Interval: _interval,
        **dict.fromkeys(_OWN_SYNTAX, _renamed),
    }


def _is_constant(node: exp.Expr) -> bool:
    match node:
        case exp.Literal() | exp.RawString() | exp.Boolean() | exp.Null():
            return True
        case exp.Paren() | exp.Neg():
            return _is_constant(node.this)
        case _:
            return isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)


def _arithmetic(symbol: str, left: Expression, right: Expression, node: exp.Expr) -> Expression:
    spans = [side.value for side in (left, right) if isinstance(side, Literal) and isinstance(side.value, Interval)]
    if len(spans) < 2:  # noqa: PLR2004 - both sides
        return Arithmetic(symbol, left, right)
    first, second = spans
    if symbol not in ("+", "-") or bool(first.months) != bool(second.months):
        raise _unsupported(node, "add months and days to a date one after the other")
    second = second if symbol == "+" else -second
    whole_days = first.microseconds is None and second.microseconds is None
    micros = None if whole_days else (first.microseconds or 0) + (second.microseconds or 0)
    return Literal(Interval(first.months + second.months, first.days + second.days, micros))


def _parts_of_chain(node: exp.And | exp.Or) -> Iterator[exp.Expr]:
    """The parts of a chain such as `a AND b AND c`, in order. Its tree leans to the left, as deep as it is long."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node) and not any(value for name, value in left.args.items() if name not in _UNDERSTOOD):
        parts.append(left.args["expression"])
        left = left.this
    return iter([left, *reversed(parts)])


def _balanced(join: Callable[[Expression, Expression], Expression], parts: list[Expression]) -> Expression:
    """The chain as a tree of the least depth. AND and OR are associative, also over null."""
    while len(parts) > 1:
        pairs = [join(*parts[first : first + 2]) for first in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def _resolved(parts: list[str], schema: pa.Schema) -> Column:
    """The column or field as the schema names it."""
    kind: Any = pa.struct(list(schema))
    path: list[str] = []
    for part in parts:
        fields = [kind.field(index) for index in range(kind.num_fields)] if pt.is_struct(kind) else []
        found = [field for field in fields if field.name == part] or [
            field for field in fields if field.name.lower() == part.lower()
        ]
        if not found:
            names = [field.name for field in fields]
            what = f"fields of {'.'.join(path)!r}" if path and names else "columns"
            text = f"; a text needs quotation marks inside of the SQL: '{clipped(part)}'" if len(parts) == 1 else ""
            raise PredicateError(
                f"there is no column {clipped('.'.join(parts))!r}",
                advice=f"{did_you_mean(part, names)}the {what} are {', '.join(names or schema.names)}{text}",
                token=clipped(part),
            )
        path.append(found[0].name)
        kind = found[0].type
    return Column(tuple(path))


# --- names of functions -----------------------------------------------------------------------------------------------


_EXTRACTED = {
    **{name: name.lower() for name in ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "HOUR", "MINUTE")},
    "WEEK": "weekofyear",
    "DOY": "dayofyear",
    "DOW": "dayofweek",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim", "": "trim"}
_PUBLIC = sorted(FUNCTIONS.keys() - OPERATORS)


def _call_of(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """The name and arguments of a function with a syntax of its own. Raises PredicateError."""
    match node:
        case exp.Trim():
            characters = node.args.get("expression")
            name = _TRIMS[str(node.args.get("position") or "").upper()]
            return name, [node.this] if characters is None else [node.this, characters]
        case exp.Extract():
            part = node.this.name.upper()
            if part not in _EXTRACTED:
                raise _unsupported(node, f"extract one of {', '.join(sorted(_EXTRACTED))}")
            return _EXTRACTED[part], [node.expression]
        case exp.Substring():
            given = [node.this, node.args.get("start"), node.args.get("length")]
            return "substring", [each for each in given if each is not None]
        case _:
            return "instr", [node.this, node.args["substr"]]


def _require_function(name: str, arguments: int, node: exp.Expr) -> None:
    """Raise PredicateError unless there is such a function, for so many arguments."""
    if name in CURRENT:
        raise _timeless(name, node)
    found = None if name in OPERATORS else FUNCTIONS.get(name)
    if found is None:
        near = difflib.get_close_matches(name[:100], _PUBLIC, 1)
        known = f"did you mean {near[0]}? " if near else ""
        raise PredicateError(
            f"the function {clipped(name)!r} is not supported in a predicate",
            advice=f"{known}the functions are {', '.join(_PUBLIC)}",
            token=clipped(node.sql(dialect="spark")),
        )
    if not found.least <= arguments <= found.most:
        wanted = str(found.least) if found.least == found.most else f"{found.least} to {found.most}"
        raise PredicateError(
            f"the function {name!r} takes {wanted} arguments, not {arguments}",
            advice="add or leave out arguments",
            token=clipped(node.sql(dialect="spark")),
        )


def _timeless(name: str, node: exp.Expr) -> PredicateError:
    return PredicateError(
        f"{name}() has no value here: the time of the statement is not known",
        advice="write a constant, such as TIMESTAMP '2026-01-31 12:00:00Z'",
        token=clipped(node.sql(dialect="spark")),
    )


# --- numbers and types ------------------------------------------------------------------------------------------------


_BEYOND_INTEGERS = 2**63
# The digits of the widest decimal that Arrow has.
_MAX_DIGITS = 76
_DEFAULT_DECIMAL = (10, 0)
_SIZE = re.compile("[0-9]{1,3}")
_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}


def _number(text: str) -> Value:
    """The value of a number."""
    digits = text.removeprefix("-").lstrip("0")
    if text.removeprefix("-").isdigit():
        # No column holds a number beyond 64 bits, so an approximate value compares correctly.
        whole = int(digits or 0) if len(digits) <= len(str(_BEYOND_INTEGERS)) else 2 * _BEYOND_INTEGERS
        signed = -whole if text.startswith("-") else whole
        return signed if -_BEYOND_INTEGERS <= signed < _BEYOND_INTEGERS else float(text)
    if "e" in text.lower():
        return float(text)
    if len(digits.replace(".", "")) > _MAX_DIGITS:
        raise PredicateError(
            f"the number {clipped(text)} has more than {_MAX_DIGITS} digits",
            advice="no column holds such a number; write fewer digits",
            token=clipped(text),
        )
    return Decimal(text)


def _type_of(node: exp.Cast) -> pa.DataType:
    """The type that a CAST names. Raises PredicateError."""
    name = getattr(node.to.this, "name", "")
    if name == "DECIMAL":
        sizes = [int(part.name) if _SIZE.fullmatch(part.name) else -1 for part in node.to.expressions]
        digits, scale = (*sizes, *_DEFAULT_DECIMAL[len(sizes) :])
        if not 1 <= digits <= MAX_DIGITS or not 0 <= scale <= digits:
            raise _unsupported(node, f"a decimal has up to {MAX_DIGITS} digits")
        return pa.decimal128(digits, scale)
    if name not in _TYPES or node.to.expressions:
        raise _unsupported(node, "cast to a number, STRING, BOOLEAN, DATE, TIMESTAMP or TIMESTAMP_NTZ")
    return _TYPES[name]


def _unsupported(node: exp.Expr, advice: str | None = None) -> PredicateError:
    """The error for SQL that tidelog does not evaluate."""
    text = clipped(node.sql(dialect="spark"))
    return PredicateError(
        f"{text!r} is not supported in a predicate",
        advice=advice or "use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE, CASE, arithmetic and functions",
        token=text,
    )


# --- intervals --------------------------------------------------------------------------------------------------------


_MICROS = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_PART = re.compile(r"\s*([+-]?[0-9]{1,12}(?:\.[0-9]{0,9})?)\s*([a-zA-Z]+)\s*")
_YEAR_TO_MONTH = re.compile(r"\s*([+-]?)([0-9]{1,6})-([0-9]{1,2})\s*")
_ADVICE = "write an interval such as INTERVAL 3 DAYS or INTERVAL '1 day 12 hours'"
# Further than the years 1 to 9999 lie apart, and no overflow of 64 bits.
_LONGEST_DAYS = 10_000_000


def _interval_of(node: exp.Interval) -> Interval:
    """The value of an interval. Raises PredicateError."""
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal):
        raise _unsupported(node, "an interval must be a constant")
    text = str(amount.this)
    if isinstance(unit, exp.IntervalSpan):
        return _spanned(text, unit, node)
    found = _sum(text if unit is None else f"{text} {unit.name}", node)
    if abs(found.days) > _LONGEST_DAYS or abs(found.months) > _LONGEST_DAYS:
        raise _unsupported(node, "use a shorter interval")
    return found


def _sum(text: str, node: exp.Interval) -> Interval:
    """The interval that a text such as "1 day 2 hours" stands for."""
    months = days = 0
    micros: int | None = None
    end, units = 0, set()
    while end < len(text):
        part = _PART.match(text, end)
        if not part:
            raise _unsupported(node, _ADVICE)
        end = part.end()
        number, name = Decimal(part[1]), part[2].lower()
        name = name[:-1] if name.endswith("s") and len(name) > 1 else name
        whole = number == int(number)
        units.add("months" if name in _MONTHS else "time")
        if name == "second" and (number * _MICROS[name]) % 1 == 0:
            micros = (micros or 0) + int(number * _MICROS[name])
        elif name in _MICROS and whole:
            micros = (micros or 0) + int(number) * _MICROS[name]
        elif name in _DAYS and whole:
            days += int(number) * _DAYS[name]
        elif name in _MONTHS and whole:
            months += int(number) * _MONTHS[name]
        else:
            raise _unsupported(node, _ADVICE)
    if len(units) != 1:
        raise _unsupported(node, "add months and days to a date one after the other")
    return Interval(months, days, micros)


def _spanned(text: str, unit: exp.IntervalSpan, node: exp.Interval) -> Interval:
    """INTERVAL '1-6' YEAR TO MONTH."""
    found = _YEAR_TO_MONTH.fullmatch(text)
    if (unit.this.name.upper(), unit.expression.name.upper()) != ("YEAR", "MONTH") or not found:
        raise _unsupported(node, _ADVICE)
    if int(found[3]) >= 12:  # noqa: PLR2004 - the months of a year
        raise _unsupported(node, "the months of such an interval are 0 to 11")
    months = int(found[2]) * 12 + int(found[3])
    return Interval(-months if found[1] == "-" else months)

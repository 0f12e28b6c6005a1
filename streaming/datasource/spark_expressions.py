"""Expressions of Spark's plans, with resolved types, as text for tidelog's predicates.

The plan says what a statement means, whatever the session's settings are. Only what means the same in both is
translated; anything else is refused by name, and nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError

from tidelog.log.errors import PredicateError
from tidelog.log.presentable import brief
from tidelog.streaming.datasource.pushed_filters import COMPARISONS, JOINS
from tidelog.streaming.executors.plain_frame import quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*", "Remainder": "%"}
_ANSI = "ANSI"
# What has no result for the smallest integer.
_SIGNED = {"Abs", "UnaryMinus"}
_FUNCTIONS = {
    "Abs": "abs",
    "Coalesce": "coalesce",
    "Concat": "concat",
    "Contains": "contains",
    "EndsWith": "endswith",
    "If": "if",
    "Length": "length",
    "Lower": "lower",
    "Sqrt": "sqrt",
    "StartsWith": "startswith",
    "StringRPad": "rpad",
    "Substring": "substring",
    "Upper": "upper",
}
_SUBQUERIES = {"Exists", "InSubquery", "ListQuery", "ScalarSubquery"}
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOATS = {"float", "double"}
# Years that Python and both calendars agree on.
_FIRST_DAY, _LAST_DAY = date(1900, 1, 1), date(9999, 12, 31)


def each(seq: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    for place in range(seq.size()):
        yield seq.apply(place)


def node_kind(node: Any) -> str:
    """The name of a node's class."""
    return str(node.getClass().getSimpleName())


def type_name(node: Any) -> str:
    """The name of an expression's type."""
    return str(node.dataType().simpleString())


def is_collated(node: Any) -> bool:
    """Whether texts in it can be equal that are different in the table, as a view can say."""
    return "collate " in type_name(node)


def is_constant(node: Any) -> bool:
    """Whether an expression has one value, for which nothing is read."""
    return bool(node.references().isEmpty() and node.deterministic() and not _has_subquery(node))


def _has_subquery(node: Any) -> bool:
    return node_kind(node) in _SUBQUERIES or any(map(_has_subquery, each(node.children())))


def untranslatable(node: Any) -> PredicateError:
    """The error for an expression that has no translation."""
    if node_kind(node) in _SUBQUERIES or (node_kind(node) == "In" and "listquery" in str(node.sql())):
        return PredicateError(
            "a subquery is not supported here",
            advice="use MERGE INTO ... USING (SELECT ...) AS s ON t.key = s.key WHEN MATCHED THEN DELETE, or UPDATE",
        )
    return PredicateError(
        f"{brief(node.sql())} means something else outside of Spark, or nothing",
        advice="use tidelog.streaming.table(spark, path), whose predicates are tidelog's own",
        token=str(node.sql()),
    )


def computed_columns(table: Any) -> dict[int, Any]:
    """What the columns stand for that Spark has put above the table of a statement, by the number of each.

    It does so for an expression that a statement needs twice, such as that of BETWEEN, and for texts of the type CHAR.
    """
    found: dict[int, Any] = {}
    ahead = [table]
    while ahead:
        node = ahead.pop()
        if node_kind(node) == "Project":
            for column in each(node.projectList()):
                if node_kind(column) == "Alias":
                    found[column.exprId().id()] = column.child()
        ahead += each(node.children())
    return found


_WRITE_CHECKS = {"charTypeWriteSideCheck", "varcharTypeWriteSideCheck"}


class ExpressionText:
    """Turns expressions into text. `name` is how a column is written; by default, by its own name.

    `computed` are expressions of the table behind columns of the plan; see `computed_columns`.
    """

    def __init__(
        self, name: Callable[[Any], str] | None = None, computed: Mapping[int, Any] = MappingProxyType({})
    ) -> None:
        self._name = name or _own_name
        self._computed = computed
        self._kinds: Mapping[str, Callable[[Any], str]] = {
            "AttributeReference": self._column,
            "CaseWhen": self._case,
            "Cast": self._cast,
            "GetStructField": self._field,
            "In": self._in,
            "InSet": self._in_set,
            "IsNotNull": self._null_test("IS NOT NULL"),
            "IsNull": self._null_test("IS NULL"),
            "Literal": _literal,
            "Not": self._not,
            "StaticInvoke": self._padded,
            "UnaryMinus": self._negative,
        }

    def text(self, node: Any) -> str:
        """An expression over columns of a table as text for `tidelog.log.predicate`.

        Raises PredicateError if there is none with the same value for each row.
        """
        kind = node_kind(node)
        if _may_fail_quietly(node):
            raise untranslatable(node)
        own = self._kinds.get(kind)
        if own is not None:
            return own(node)
        if kind in COMPARISONS:
            return self._comparison(node, COMPARISONS[kind])
        symbol = JOINS.get(kind) or (_ARITHMETIC.get(kind) if _is_exact(node) else None)
        if symbol is not None:
            return f"({self.text(node.left())} {symbol} {self.text(node.right())})"
        if kind in _FUNCTIONS and not _has_floats(node):
            return f"{_FUNCTIONS[kind]}({', '.join(self.text(child) for child in each(node.children()))})"
        raise untranslatable(node)

    def new_value(self, node: Any, column: str) -> str:
        """The value that a statement assigns to a column of the type `column`.

        Whether an integer fits the column is left to tidelog, which raises for one that does not.
        """
        if node_kind(node) == "CheckOverflowInTableInsert":
            node = node.child()
        if _may_fail_quietly(node):
            raise untranslatable(node)
        if node_kind(node) == "Cast" and type_name(node) == column and type_name(node.child()) in _INTEGERS:
            is_exact = column in _INTEGERS or column.startswith("decimal")
            if is_exact and _mode(node) != _ANSI and not is_widening(node):
                raise untranslatable(node)
            node = node.child() if is_exact else node
        return self.text(node)

    def _column(self, node: Any) -> str:
        if is_collated(node):
            raise untranslatable(node)
        computed = self._computed.get(node.exprId().id())
        return self._name(node) if computed is None else self.text(computed)

    def _padded(self, node: Any) -> str:
        """A column of the type CHAR, with spaces up to its length: Spark reads it so, and a longer value as it is.

        A new value of one is checked and padded by the table's own rules.
        """
        if node.functionName() in _WRITE_CHECKS:
            return self.text(next(each(node.arguments())))
        if node.functionName() != "readSidePadding":
            raise untranslatable(node)
        column, length = each(node.arguments())
        text, least = self.text(column), int(str(length))
        return f"if(length({text}) < {least}, rpad({text}, {least}, ' '), {text})"

    def _field(self, node: Any) -> str:
        if node_kind(node.child()) not in {"AttributeReference", "GetStructField"}:
            raise untranslatable(node)
        return f"{self.text(node.child())}.{quoted(str(node.extractFieldName()))}"

    def _comparison(self, node: Any, symbol: str) -> str:
        left, right = node.left(), node.right()
        if type_name(left) not in _FLOATS:
            return f"({self.text(left)} {symbol} {self.text(right)})"
        if node_kind(right) != "Literal" and node_kind(left) == "Literal":
            left, right = right, left
            symbol = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(symbol, symbol)
        if node_kind(right) != "Literal" or symbol == "<=>":
            raise untranslatable(node)
        plain = f"({self.text(left)} {symbol} {_literal(right)})"
        # Above all numbers, and equal to itself, in Spark only.
        return f"({plain} OR isnan({self.text(left)}))" if symbol in {">", ">="} else plain

    def _not(self, node: Any) -> str:
        return f"(NOT {self.text(node.child())})"

    def _negative(self, node: Any) -> str:
        if type_name(node) not in {*_INTEGERS, *_FLOATS}:
            raise untranslatable(node)
        return f"(- {self.text(node.child())})"

    def _in(self, node: Any) -> str:
        if type_name(node.value()) in _FLOATS:
            raise untranslatable(node)
        return f"({self.text(node.value())} IN ({', '.join(self.text(item) for item in each(node.list()))}))"

    def _in_set(self, node: Any) -> str:
        name, values, ahead = type_name(node.child()), [], node.hset().iterator()
        while ahead.hasNext():
            item = ahead.next()
            values.append("NULL" if item is None else _python_value(item, name))
        if name in _FLOATS or None in values:
            raise untranslatable(node)
        return f"({self.text(node.child())} IN ({', '.join(map(str, values))}))"

    def _cast(self, node: Any) -> str:
        before, after = type_name(node.child()), type_name(node)
        widens = is_widening(node)
        widens = widens or (_is_number(before) and after == "double")
        widens = widens or (before in _INTEGERS and after == "string")
        widens = widens or (_digits(before) is not None and _holds(after, before))
        if before == after:
            return self.text(node.child())
        if not widens:
            raise untranslatable(node)
        return f"CAST({self.text(node.child())} AS {after})"

    def _case(self, node: Any) -> str:
        pairs = [list(each(pair.productIterator().toSeq())) for pair in each(node.branches())]
        branches = [f"WHEN {self.text(condition)} THEN {self.text(value)}" for condition, value in pairs]
        other = f" ELSE {self.text(node.elseValue().get())}" if node.elseValue().isDefined() else ""
        return f"CASE {' '.join(branches)}{other} END"

    def _null_test(self, word: str) -> Callable[[Any], str]:
        return lambda node: f"({self.text(node.child())} {word})"


def _own_name(node: Any) -> str:
    return quoted(str(node.name()))


def _may_fail_quietly(node: Any) -> bool:
    """Whether Spark has null, or another number, for what fails: in `try_add`, or in a session without ANSI mode.

    Here it is an error of the statement.
    """
    if node_kind(node) in _SIGNED:
        return type_name(node) in _INTEGERS and not node.failOnError()
    if node_kind(node) in _ARITHMETIC:
        return _mode(node) != _ANSI
    return node_kind(node) == "Cast" and _mode(node) == "TRY"


def _mode(node: Any) -> str:
    """How arithmetic or a conversion fails: ANSI, LEGACY or TRY."""
    for name in ("evalMode", "evalContext"):
        try:
            found = getattr(node, name)()
            return str(found if name == "evalMode" else found.evalMode())
        except Py4JError:
            continue
    # A Spark that keeps it elsewhere.
    return "TRY" if str(node.sql()).lower().startswith("try_") else _ANSI


def _is_number(name: str) -> bool:
    return name in _INTEGERS or name in _FLOATS or name.startswith("decimal")


def _is_exact(node: Any) -> bool:
    """Whether the arithmetic has one result: a decimal's digits would depend on both sides."""
    return type_name(node) in _INTEGERS or (type_name(node) in _FLOATS and node_kind(node) != "Remainder")


def _has_floats(node: Any) -> bool:
    # NaN and -0.0 are compared in these.
    return node_kind(node) != "Sqrt" and any(type_name(child) in _FLOATS for child in each(node.children()))


def _python_value(value: Any, name: str) -> str | None:
    """A value of Spark's own, as a constant; None if it has none."""
    if value is None:
        return None
    if name in _INTEGERS:
        return f"CAST({value} AS {name})"
    if name == "boolean":
        return str(bool(value)).lower()
    if name == "string":
        return "'" + str(value.toString()).replace("\\", "\\\\").replace("'", "\\'") + "'"
    if name.startswith("decimal"):
        return f"CAST('{value.toJavaBigDecimal():f}' AS {name})"
    if name in _FLOATS and math.isfinite(value):
        return f"CAST('{value!r}' AS {name})"
    if name == "date":
        day = _FIRST_DAY + timedelta(days=value - (_FIRST_DAY - date(1970, 1, 1)).days) if _is_near(value) else None
        return f"DATE '{day}'" if day is not None and _FIRST_DAY <= day <= _LAST_DAY else None
    if name == "timestamp":
        if not _is_near(value // 86_400_000_000):
            return None
        return f"TIMESTAMP '{(_EPOCH + timedelta(microseconds=value)).isoformat().replace('+00:00', 'Z')}'"
    return None


def _is_near(days: int) -> bool:
    return (_FIRST_DAY - date(1970, 1, 1)).days <= days <= (_LAST_DAY - date(1970, 1, 1)).days


def is_widening(cast: Any) -> bool:
    """Whether a conversion is one of an integer to an integer with at least as many bits."""
    before, after = type_name(cast.child()), type_name(cast)
    return before in _INTEGERS and after in _INTEGERS and _INTEGERS[before] <= _INTEGERS[after]


def _digits(name: str) -> tuple[int, int] | None:
    """How many digits values of a type have before and behind the point."""
    if name in _INTEGERS:
        return {8: 3, 16: 5, 32: 10, 64: 19}[_INTEGERS[name]], 0
    if not name.startswith("decimal("):
        return None
    precision, scale = (int(text) for text in name[len("decimal(") : -1].split(","))
    return precision - scale, scale


def _holds(name: str, other: str) -> bool:
    mine, theirs = _digits(name), _digits(other)
    return bool(name.startswith("decimal") and mine and theirs and mine[0] >= theirs[0] and mine[1] >= theirs[1])


def _literal(node: Any) -> str:
    name = type_name(node)
    value = _python_value(node.value(), name)
    if node.value() is None:
        is_plain = _is_number(name) or name in {"string", "boolean", "date", "timestamp", "timestamp_ntz"}
        return f"CAST(NULL AS {name})" if is_plain else "NULL"
    if value is None:
        raise untranslatable(node)
    return value

"""Conditions: comparisons, AND, OR, IN, BETWEEN and LIKE; and the functions that choose among values, such as CASE.

NaN equals nothing and is neither above nor below a number, unless a comparison asks for Spark's order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.casts import coerce, constant_of, converted
from tidelog.log.predicate.rows import (
    Bound,
    Datum,
    Kernel,
    RowBlock,
    computed,
    constant,
    constant_value,
    folded,
    null_of,
    shared,
)
from tidelog.log.predicate.tree import clipped
from tidelog.log.predicate.types import (
    BOOLEAN,
    MAX_DIGITS,
    MOST_DIGITS,
    TypeMismatch,
    as_decimal,
    common_type,
    is_moment,
    is_number,
)

_KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(symbol: str, left: Bound, right: Bound, *, nan_is_greatest: bool = False) -> Bound:
    """`left symbol right`. Raises TypeMismatch, and pa.ArrowException for decimals with too many digits."""
    left, right = _comparable(left, right)
    if pt.is_null(left.kind) or pt.is_null(right.kind):
        return null_of(BOOLEAN)
    kernel = _KERNELS[symbol]
    kernel(pa.nulls(0, left.kind), pa.nulls(0, right.kind))  # fails for decimals with too many digits
    if nan_is_greatest and pt.is_floating(left.kind):
        kernel = _with_nan_greatest(symbol)
    return computed(BOOLEAN, kernel, [left, right])


def _with_nan_greatest(symbol: str) -> Kernel:
    def kernel(left: Datum, right: Datum) -> Datum:
        left_is_nan, right_is_nan = pc.is_nan(left), pc.is_nan(right)
        if symbol in ("=", "!="):
            equal = pc.or_(pc.equal(left, right), pc.and_(left_is_nan, right_is_nan))
            return equal if symbol == "=" else pc.invert(equal)
        # NaN on the upper side is enough; for < and > the other side must not be NaN, too.
        greater, other = (right_is_nan, left_is_nan) if symbol in ("<", "<=") else (left_is_nan, right_is_nan)
        if symbol in ("<", ">"):
            greater = pc.and_not(greater, other)
        return pc.or_(_KERNELS[symbol](left, right), greater)

    return kernel


def between(arguments: Sequence[Bound]) -> Bound:
    """`value BETWEEN low AND high`."""
    value, low, high = shared(arguments[0]), *arguments[1:]
    return junction(compare(">=", value, low), compare("<=", value, high), stop=False)


def among(arguments: Sequence[Bound]) -> Bound:
    """`value IN (...)`, where the list has more than constants."""
    if _mixes_texts(arguments):
        arguments = unified(arguments)
    value = shared(arguments[0])
    return any_of([compare("=", value, other) for other in arguments[1:]])


def any_of(tests: Sequence[Bound]) -> Bound:
    """Whether one of the conditions is true."""
    return reduce(lambda left, right: junction(left, right, stop=True), tests)


def same_or_both_null(arguments: Sequence[Bound]) -> Bound:
    """`left <=> right`."""
    left, right = map(shared, arguments)
    equal = compare("=", left, right)
    nulls = [computed(BOOLEAN, pc.is_null, [side]) for side in (left, right)]
    return computed(BOOLEAN, lambda same, *null: pc.coalesce(same, pc.and_(*null)), [equal, *nulls], strict=False)


def _comparable(left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Both sides in types that Arrow compares exactly. Raises TypeMismatch."""
    left, right = _moment_of_text(left, right.kind), _moment_of_text(right, left.kind)
    kinds = (left.kind, right.kind)
    if all(map(is_number, kinds)) and any(map(pt.is_decimal, kinds)) and not any(map(pt.is_floating, kinds)):
        kinds = exact = as_decimal(left.kind), as_decimal(right.kind)
        scale = max(kind.scale for kind in exact)
        digits = max(kind.precision - kind.scale for kind in exact) + scale
        if not MAX_DIGITS < digits <= MOST_DIGITS:  # Arrow compares decimals whose common type has up to 38 digits
            return converted(left, exact[0]), converted(right, exact[1])
    kind = common_type(kinds)
    if kind is None or pt.is_nested(kind):
        raise TypeMismatch
    return (left, right) if pt.is_null(kind) else (converted(left, kind), converted(right, kind))


def _moment_of_text(side: Bound, other: pa.DataType) -> Bound:
    """A constant text next to a date or timestamp, in that type."""
    if not (side.constant and pt.is_string(side.kind) and is_moment(other)):
        return side
    return constant(constant_of(coerce(constant_value(side), other), other).cast(other))


# --- AND and OR -------------------------------------------------------------------------------------------------------


def as_condition(bound: Bound) -> Bound:
    """The value as a condition. Raises TypeMismatch if it is neither true nor false."""
    if not pt.is_boolean(bound.kind) and not pt.is_null(bound.kind):
        raise TypeMismatch
    return converted(bound, BOOLEAN)


def junction(left: Bound, right: Bound, *, stop: bool) -> Bound:
    """AND, which `stop`s at false, or OR, which stops at true."""
    left, right = as_condition(left), as_condition(right)
    kernel = pc.or_kleene if stop else pc.and_kleene
    if not right.fallible:
        return computed(BOOLEAN, kernel, [left, right], strict=False)

    def compute(rows: RowBlock) -> Datum:
        first = left.array(rows)
        undecided = pc.fill_null(pc.not_equal(first, stop), True)  # noqa: FBT003 - a value
        second = pc.replace_with_mask(pa.nulls(rows.count, BOOLEAN), undecided, right.array(rows.only(undecided)))
        return kernel(first, second)

    return Bound(BOOLEAN, compute, fallible=True)


# --- LIKE -------------------------------------------------------------------------------------------------------------


# The regular expressions of Arrow take time in proportion to the length of the text times that of the pattern.
MAX_PATTERN = 1_000
_SPECIAL = re.compile(r"[^\w\s]")


def _pattern_parts(pattern: str, escape: str) -> list[str | None]:
    """The pattern as texts, with "" for each `_` and None for each run of `%`. Raises PredicateError.

    Two texts never follow each other.
    """
    if len(escape) != 1:
        raise PredicateError(
            f"ESCAPE needs one character, not {clipped(escape)!r}", advice="write ESCAPE '!'", token=clipped(escape)
        )
    found: list[str | None] = []
    text: list[str] = []

    def flush() -> None:
        if text:
            found.append("".join(text))
            text.clear()

    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                raise _bad_escape(pattern, escape)
            text.append(escaped)
        elif character == "_":
            flush()
            found.append("")
        elif character == "%":
            flush()
            if found[-1:] != [None]:
                found.append(None)
        else:
            text.append(character)
    flush()
    return found


def like_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that each match begins with, and whether anything that begins with it matches."""
    parts = _pattern_parts(pattern, escape)
    first = parts[0] if parts and parts[0] else ""
    return first, parts in ([first, None], [None])


def like_matcher(pattern: str, escape: str) -> Kernel:
    """The kernel that tests texts. Raises PredicateError."""
    parts = _pattern_parts(pattern, escape)
    match parts:
        case []:
            return lambda texts: pc.equal(texts, "")
        case [None]:
            return lambda texts: pc.starts_with(texts, "")
        case [str(text)] if text:
            return lambda texts: pc.equal(texts, text)
        case [str(text), None] if text:
            return lambda texts: pc.starts_with(texts, text)
        case [None, str(text)] if text:
            return lambda texts: pc.ends_with(texts, text)
        case [None, str(text), None] if text:
            return lambda texts: pc.match_substring(texts, text)
    if len(pattern) > MAX_PATTERN:
        raise PredicateError(
            f"the pattern {clipped(pattern)!r} has more than {MAX_PATTERN:,} characters",
            advice="use a shorter pattern, or one with % at its ends only",
            token=clipped(pattern),
        )
    regex = "".join({None: ".*", "": "."}.get(part) or _quoted(part) for part in parts)
    return lambda texts: pc.match_substring_regex(texts, rf"(?s)\A{regex}\z")


def _quoted(text: str | None) -> str:
    # `re.escape` escapes for Python; a NUL in the text ends the expression in RE2.
    return _SPECIAL.sub(lambda found: rf"\x{{{ord(found[0]):x}}}", text or "").replace("\0", r"\x00")


def _bad_escape(pattern: str, escape: str) -> PredicateError:
    return PredicateError(
        f"in the pattern {clipped(pattern)!r}, {escape!r} must be followed by %, _ or itself",
        advice=f"write {escape * 2!r} for {escape!r}, or choose another character with ESCAPE",
        token=clipped(pattern),
    )


# --- choices ----------------------------------------------------------------------------------------------------------


def _mixes_texts(values: Sequence[Bound]) -> bool:
    """Whether texts stand beside values of other types."""
    return len({pt.is_string(value.kind) for value in values if not pt.is_null(value.kind)}) > 1


def unified(values: Sequence[Bound]) -> list[Bound]:
    """The values in one type. Raises TypeMismatch if they have none in common."""
    kind = common_type(value.kind for value in values)
    if kind is None:
        raise TypeMismatch
    return [converted(value, kind) for value in values]


def choose(tests: Sequence[Bound], results: Sequence[Bound], otherwise: Bound) -> Bound:
    """The result of the first test that is true. Each part is computed only for the rows that get to it."""
    *results, otherwise = unified([*results, otherwise])
    kind = otherwise.kind

    def compute(rows: RowBlock) -> Datum:
        left = np.arange(rows.count)
        places, found = [], []
        for test, result in zip(tests, results, strict=True):
            hit = pc.fill_null(test.array(rows), False)  # noqa: FBT003 - a value
            if hit.true_count:
                places.append(left[np.asarray(hit)])
                found.append(result.array(rows.only(hit)))
                miss = pc.invert(hit)
                left, rows = left[np.asarray(miss)], rows.only(miss)
            if not rows.count:
                break
        places.append(left)
        found.append(otherwise.array(rows))
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(found).take(pa.array(order))

    parts = [*tests, *results, otherwise]
    bound = Bound(kind, compute, fallible=any(part.fallible for part in parts))
    return folded(bound) if all(part.constant for part in parts) else bound


def if_(arguments: Sequence[Bound]) -> Bound:
    """The second value if the first is true, else the third."""
    return choose([as_condition(arguments[0])], [arguments[1]], arguments[2])


def coalesce(arguments: Sequence[Bound]) -> Bound:
    """The first value that is not null."""
    values = unified(arguments)
    if not any(value.fallible for value in values[1:]):
        return computed(values[0].kind, pc.coalesce, values, strict=False)
    *first, last = [shared(value) for value in values]
    return choose([_is_valid(value) for value in first], first, last)


def nvl2(arguments: Sequence[Bound]) -> Bound:
    """The second value if the first is not null, else the third."""
    return choose([_is_valid(arguments[0])], [arguments[1]], arguments[2])


def greatest(arguments: Sequence[Bound]) -> Bound:
    """The greatest value that is not null. NaN is greater than all numbers."""
    return _extreme(arguments, greatest=True)


def least(arguments: Sequence[Bound]) -> Bound:
    """The least value that is not null."""
    return _extreme(arguments, greatest=False)


def _extreme(arguments: Sequence[Bound], *, greatest: bool) -> Bound:
    values = unified(arguments)
    kind = values[0].kind
    if pt.is_nested(kind) or _mixes_texts(arguments):
        raise TypeMismatch
    if pt.is_null(kind):
        return values[0]

    def kernel(found: Datum, *others: Datum) -> Datum:
        for other in others:
            better = pc.greater(other, found) if greatest else pc.less(other, found)
            if pt.is_floating(kind):  # NaN is above all numbers
                above, below = (other, found) if greatest else (found, other)
                better = pc.or_(better, pc.and_not(pc.is_nan(above), pc.is_nan(below)))
            better = pc.coalesce(better, pc.is_null(found))
            found = pc.if_else(better, other, found)
        return found

    return computed(kind, kernel, values, strict=False)


def _is_valid(value: Bound) -> Bound:
    return computed(BOOLEAN, pc.is_valid, [value])

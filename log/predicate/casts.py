"""CAST, and the conversions that Spark makes by itself. A value that does not fit is an error, as in ANSI mode."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate import text_casts
from tidelog.log.predicate.rows import Bound, Datum, Kernel, computed, per_value
from tidelog.log.predicate.types import LONG, TEXT, as_decimal, is_moment, is_number

_MICROS = 1_000_000
# The widest decimal of 128 bits. A 64-bit integer has up to 19 digits.
_WIDE = 38
_LONG_DIGITS = 19


def cast_to(inner: Bound, kind: pa.DataType) -> Bound | None:
    """The value in another type; None if Spark or tidelog has no such cast."""
    if inner.kind.equals(kind):
        return inner
    found = _kernel(inner.kind, kind)
    if found is None:
        return None
    kernel, fallible = found
    return computed(kind, kernel, [inner], fallible=fallible)


def converted(inner: Bound, kind: pa.DataType) -> Bound:
    """The value in a type that `common_type` found."""
    found = cast_to(inner, kind)
    if found is None:
        raise AssertionError(inner.kind, kind)
    return found


def _kernel(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    """How values are cast, and whether that can fail."""
    if pt.is_null(source):
        return _nulls(target), False
    if pt.is_string(source):
        read = text_casts.reader(target)
        return None if read is None else (per_value(target, read), True)
    if pt.is_string(target):
        return _to_text(source)
    if pt.is_boolean(source) and is_number(target):
        return _from_boolean(target)
    if pt.is_boolean(target) and is_number(source):
        return (lambda values: pc.not_equal(values, pa.scalar(0, pa.int8()))), False
    if is_number(source) and is_number(target):
        return _number(source, target)
    if is_moment(source) and is_moment(target):
        return (lambda values: values.cast(target, safe=False)), False
    if pt.is_timestamp(source) and source.tz and pt.is_integer(target):
        return (lambda values: _seconds(values).cast(target)), True
    if pt.is_integer(source) and pt.is_timestamp(target) and target.tz:
        return (lambda values: pc.multiply_checked(values.cast(LONG), _MICROS).cast(target)), True
    return None


def _nulls(target: pa.DataType) -> Kernel:
    def kernel(values: Datum) -> Datum:
        return pa.scalar(None, target) if isinstance(values, pa.Scalar) else pa.nulls(len(values), target)

    return kernel


def _to_text(source: pa.DataType) -> tuple[Kernel, bool] | None:
    if pt.is_integer(source) or pt.is_boolean(source):
        return (lambda values: values.cast(TEXT)), False
    if pt.is_decimal(source):
        return per_value(TEXT, text_casts.from_decimal), False
    if pt.is_timestamp(source):
        write = per_value(TEXT, text_casts.from_micros)
        return (lambda values: write(values.cast(LONG))), True
    if pt.is_date(source):
        write = per_value(TEXT, lambda days: text_casts.from_micros(days * 86_400 * _MICROS)[:10])
        return (lambda values: write(values.cast(pa.int32()))), True
    return None


def _from_boolean(target: pa.DataType) -> tuple[Kernel, bool] | None:
    step = _number(pa.int8(), target)
    if step is None:
        return None
    kernel, fallible = step
    return (lambda values: kernel(values.cast(pa.int8()))), fallible


def _number(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    if source.equals(target):
        return (lambda values: values), False
    if pt.is_decimal(target):
        return _to_decimal(source, target)
    if pt.is_integer(target):
        if pt.is_integer(source):
            return (lambda values: values.cast(target)), target.bit_width < source.bit_width
        if pt.is_floating(source):
            return (lambda values: pc.trunc(values).cast(target)), True
        whole = pc.CastOptions(target, allow_decimal_truncate=True)
        return (lambda values: values.cast(options=whole)), True
    return (lambda values: values.cast(target, safe=False)), False


def _to_decimal(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool]:
    if pt.is_floating(source):
        return per_value(target, text_casts.to_decimal(target)), True
    exact = as_decimal(source)
    fallible = exact.precision - exact.scale > target.precision - target.scale
    if pt.is_integer(source):
        if target.scale > _WIDE - _LONG_DIGITS:
            return per_value(target, text_casts.to_decimal(target)), fallible
        wide = pa.decimal128(_WIDE, target.scale)
        return (lambda values: values.cast(wide).cast(target)), fallible
    if source.scale <= target.scale:
        return (lambda values: values.cast(target)), fallible
    return per_value(target, text_casts.to_decimal(target)), True


def _seconds(values: Datum) -> Datum:
    """Whole seconds since 1970, rounded down."""
    return pc.divide(pc.floor_temporal(values, 1, "second").cast(LONG), _MICROS)

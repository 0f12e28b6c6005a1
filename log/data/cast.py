"""Cast columns to a table's types, but only if every value keeps its digits and its meaning.

An integer becomes a wider number if each value fits exactly. A string never becomes a number, a timestamp without a
zone never one with a zone, and a struct's field that the table lacks is never dropped. Nested types follow the same
rules, field by field.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.presentable import did_you_mean


def cast(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    """Cast `values` to the type of `field` and check for nulls.

    `where` is the column's path, for the SchemaMismatchError if they do not fit.
    """
    if pt.is_dictionary(values.type):
        values = _decoded(values)
    if not field.nullable and values.null_count:
        raise SchemaMismatchError(
            f"column {where!r} cannot be null, but {values.null_count} rows of the data have no value",
            advice="fill or drop those rows",
            column=where,
        )
    if pt.is_null(values.type):
        return pa.nulls(len(values), field.type)
    if pt.is_nested(field.type) or pt.is_nested(values.type):
        return _cast_nested(values, field, where)
    if values.type.equals(field.type):
        return values
    if not _same_meaning(values.type, field.type):
        raise misfit(where, field, values.type)
    try:
        result = values.cast(field.type, safe=True)
    except pa.ArrowException as error:
        raise misfit(where, field, values.type, error) from error
    # Even a safe cast in Arrow rounds a float64 to a float32.
    if pt.is_floating(values.type) and not _same_numbers(values, result):
        raise misfit(where, field, values.type)
    return result


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    """The values behind a dictionary. Arrow's `take` does not support string views, which Polars' categoricals use."""
    known = values.dictionary
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(known.type, known.type)
    return known.cast(plain).take(values.indices)


def misfit(where: str, field: pa.Field, found: object, error: Exception | None = None) -> SchemaMismatchError:
    """The error for data of type `found` that does not fit the table's `field`."""
    detail = f": {error}" if error else ""
    return SchemaMismatchError(
        f"column {where!r} is {field.type} in the table but {found} in the data{detail}",
        advice="cast it in the data if that loses nothing",
        column=where,
    )


def match_names(names: list[str], wanted: list[str], where: str = "") -> dict[str, str]:
    """Map the names in `wanted` to the `names` that fill them: the same name, or one that differs in case only.

    That is Spark's rule. Raises SchemaMismatchError for a name that is not wanted or that occurs twice.
    """
    by_lower = {name.lower(): name for name in wanted}
    exact = set(wanted)
    chosen: dict[str, str] = {}
    for name in names:
        target = name if name in exact else by_lower.get(name.lower())
        full = f"{where}.{name}" if where else name
        if target is None:
            raise SchemaMismatchError(
                f"the data has a column {full!r} that the table does not have",
                advice=f"{_meant(name, names, wanted)}drop the column from the data, or add it to the table first",
                column=full,
            )
        if target in chosen:
            raise SchemaMismatchError(
                f"the data has the column {full!r} twice",
                advice="rename or drop one of them; names that differ in case only count as the same",
                column=full,
            )
        chosen[target] = name
    return chosen


def _meant(name: str, names: list[str], wanted: list[str]) -> str:
    """The question whether `name` is one of the wanted columns that the data lacks."""
    given = {other.lower() for other in names}
    return did_you_mean(name, (other for other in wanted if other.lower() not in given))


def missing(count: int, field: pa.Field, where: str) -> pa.Array:
    """The nulls for a field that the data lacks. Raises SchemaMismatchError if the field cannot be null."""
    if not field.nullable:
        raise SchemaMismatchError(
            f"the data lacks the column {where!r}, which cannot be null",
            advice="add the column to the data",
            column=where,
        )
    return pa.nulls(count, field.type)


def offsets_with_nulls(offsets: pa.Array, valid: pa.Array) -> pa.Array:
    """A list's offsets, null where the list is null: Arrow's `from_arrays` takes validity in this form."""
    present = pa.concat_arrays([valid, pa.array([True])])
    return pc.if_else(present, offsets.cast(pa.int32()), pa.scalar(None, pa.int32()))


def _cast_nested(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    if values.offset:
        values = pa.concat_arrays([values])
    if pt.is_struct(kind) and pt.is_struct(values.type):
        return _cast_struct(values, field, where)
    if pt.is_map(kind) and pt.is_map(values.type):
        keys = cast(_used(values, values.keys), kind.key_field, f"{where}.key")
        items = cast(_used(values, values.items), kind.item_field, f"{where}.value")
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind)
    if pt.is_list(kind) and (pt.is_list(values.type) or pt.is_large_list(values.type)):
        elements = cast(_used(values, values.values), kind.value_field, f"{where}.element")
        return pa.ListArray.from_arrays(_offsets(values), elements, type=kind)
    if pt.is_list(kind) and pt.is_fixed_size_list(values.type):
        return _cast_nested(values.cast(pa.list_(values.type.value_field)), field, where)
    raise misfit(where, field, values.type)


def _cast_struct(values: pa.StructArray, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    names = [child.name for child in values.type]
    sources = match_names(names, [child.name for child in kind], where)
    # Values below a null parent mean nothing, and libraries leave anything there: ignore them.
    present = values.filter(values.is_valid()) if values.null_count else values
    children = []
    for child in kind:
        full = f"{where}.{child.name}"
        if child.name in sources:
            children.append(cast(present.field(names.index(sources[child.name])), child, full))
        else:
            children.append(missing(len(present), child if len(present) else _loose(child), full))
    return spread_struct(children, kind, values.is_valid())


def spread_struct(children: list[pa.Array], kind: pa.StructType, valid: pa.Array) -> pa.Array:
    """A struct array that is null where `valid` is false; `children` have the fields of the other rows only.

    Below a null parent a child repeats another row's value. No reader sees it, and a child that cannot be null has
    none.
    """
    count = pc.sum(valid.cast(pa.int64())).as_py() or 0
    if count == len(valid):
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if count == 0:
        return pa.array([None] * len(valid), kind)
    places = pc.max_element_wise(pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), 0)
    spread = [child.take(places) for child in children]
    return pa.StructArray.from_arrays(spread, fields=list(kind), mask=pc.invert(valid))


def _used(values: pa.Array, inner: pa.Array) -> pa.Array:
    """The elements that the lists refer to; the array may have unused ones before and after them."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return inner.slice(first, last - first)


def _offsets(values: pa.Array) -> pa.Array:
    offsets = pc.subtract(values.offsets, values.offsets[0]).cast(pa.int32())
    return offsets_with_nulls(offsets, values.is_valid()) if values.null_count else offsets


def _loose(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)  # noqa: FBT003 - pyarrow's signature


def _same_meaning(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast between the types can keep the meaning; the cast itself checks each value."""
    if pt.is_integer(source):
        return bool(pt.is_integer(target) or pt.is_floating(target) or pt.is_decimal(target))
    if pt.is_timestamp(source):
        return bool(pt.is_timestamp(target) and (source.tz is None) == (target.tz is None))
    kinds = (_is_text, _is_binary, pt.is_boolean, pt.is_floating, pt.is_decimal, pt.is_date)
    return any(kind(source) and kind(target) for kind in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    fixed = pt.is_fixed_size_binary(kind)
    return bool(fixed or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind))


def _same_numbers(before: pa.Array, after: pa.Array) -> bool:
    wide = before.cast(pa.float64())
    same = pc.equal(wide, after.cast(pa.float64()))
    return bool(pc.all(pc.or_(same, pc.is_nan(wide))).as_py() is not False)

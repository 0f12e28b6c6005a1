"""The columns of a table that is made of files with different columns.

A column that a file lacks is null in its rows. Where files disagree about a type, the wider one holds the values of
both: a longer integer, or a double for a float. No other two types are joined: not every engine reads a decimal in
another one's digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.type_widening import wider


class SchemaUnion:
    """Collects the columns of files, in the order in which they first occur.

    All schemas have a table's types (`tidelog.log.format.schema`), and so has the result, in which every column, field
    and element is nullable.
    """

    def __init__(self) -> None:
        self._fields: list[pa.Field] = []
        # The file that decided the type of a column or field, by its path.
        self._files: dict[str, str] = {}
        # The schemas taken in, which files share; kept, so that no other one gets the same id.
        self._known: dict[int, pa.Schema] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns so far."""
        return pa.schema(self._fields)

    def add(self, schema: pa.Schema, file: str) -> None:
        """Take in the columns of a file. Raises SchemaMismatchError, which names two files, if they do not fit."""
        if id(schema) in self._known:
            return
        self._fields = self._joined(self._fields, list(schema), "", file)
        self._known[id(schema)] = schema

    def _joined(self, old: Sequence[pa.Field], new: Sequence[pa.Field], above: str, file: str) -> list[pa.Field]:
        """The fields of one level in both, and those that one of them lacks."""
        joined = {field.name: field for field in old}
        spelled = {name.lower(): name for name in joined}
        for field in new:
            where = above + field.name
            name = spelled.setdefault(field.name.lower(), field.name)
            if name != field.name:
                raise self._conflict(
                    f"column {above + name!r} is spelled {field.name!r}", above + name, file, "rename one of them"
                )
            found = joined.get(name)
            kind = self._first(field.type, where, file) if found is None else self._wider(found, field, where, file)
            joined[name] = _nullable(name, kind)
        return list(joined.values())

    def _first(self, kind: pa.DataType, where: str, file: str) -> pa.DataType:
        """A type that no file had under this path before, nullable at every level."""
        self._files[where] = file
        if pt.is_struct(kind):
            return pa.struct(self._joined([], list(kind), f"{where}.", file))
        if pt.is_list(kind):
            return pa.list_(_nullable("element", self._first(kind.value_type, f"{where}.element", file)))
        if pt.is_map(kind):
            key = self._first(kind.key_type, f"{where}.key", file)
            return pa.map_(key, _nullable("value", self._first(kind.item_type, f"{where}.value", file)))
        return kind

    def _wider(self, old: pa.Field, new: pa.Field, where: str, file: str) -> pa.DataType:
        left, right = old.type, new.type
        if pt.is_struct(left) and pt.is_struct(right):
            return pa.struct(self._joined(list(left), list(right), f"{where}.", file))
        if pt.is_list(left) and pt.is_list(right):
            element = self._wider(left.value_field, right.value_field, f"{where}.element", file)
            return pa.list_(_nullable("element", element))
        if pt.is_map(left) and pt.is_map(right):
            key = self._wider(left.key_field, right.key_field, f"{where}.key", file)
            return pa.map_(
                key, _nullable("value", self._wider(left.item_field, right.item_field, f"{where}.value", file))
            )
        wider = _wider_plain(left, right)
        if wider is None:
            message = f"column {where!r} is {left} and {right}"
            raise self._conflict(message, where, file, "rewrite the files of one of the two types")
        if wider != left:
            self._files[where] = file
        return wider

    def _conflict(self, what: str, where: str, file: str, advice: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{what} in the files {self._files[where]} and {file}",
            advice=f"{advice}, or move them to another folder; no file was changed",
            column=where,
        )


def _nullable(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


def _wider_plain(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of these two, neither of them nested, that holds the values of both; None if there is none."""
    if left == right:
        return left
    return None if pt.is_decimal(left) else wider(left, right) or wider(right, left)

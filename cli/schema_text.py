"""Columns as SQL writes them, such as `id bigint not null, name string`, read into an Arrow schema.

A type is one of the table's types under its name in Spark SQL, or an array, a map or a struct of them:
`array<string>`, `map<string, int>`, `struct<x: double, y: double>`. A name that is not a plain word is in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from tidelog.log.errors import ConfigurationError

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[(),<>:])")
_TYPES: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "tinyint": pa.int8(),
}
_OTHER_NAMES = {
    "byte": "tinyint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "short": "smallint",
    "timestamp_ltz": "timestamp",
}
_ADVICE = 'write columns such as "id bigint, name string"'
_MAX_PRECISION = 38
_MOST_DIGITS = 9
# Spark's decimal without a precision.
_PLAIN_DECIMAL = (10, 0)


def parse_schema(text: str) -> pa.Schema:
    """The columns that `text` declares. Raises ConfigurationError saying what cannot be read."""
    reader = _Reader(text)
    try:
        fields = reader.fields("")
    except RecursionError as error:
        raise ConfigurationError("the schema is nested too deeply", advice=_ADVICE) from error
    if reader.next:
        raise reader.unexpected("',' or the end")
    _require_distinct(fields)
    return pa.schema(fields)


def _require_distinct(fields: Sequence[pa.Field]) -> None:
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise ConfigurationError(
                f"the schema has two columns {field.name!r}; case does not count", advice="rename one"
            )
        seen.add(field.name.lower())


class _Reader:
    """The tokens of a schema, read one after the other; `next` is the one to read, empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._position = 0
        self.next = ""
        self._advance()

    def fields(self, parent: str) -> list[pa.Field]:
        """Fields with commas between them; `parent` is the name of the struct that they belong to, for errors."""
        found = [self._field(parent)]
        while self.next == ",":
            self._advance()
            found.append(self._field(parent))
        return found

    def unexpected(self, wanted: str) -> ConfigurationError:
        found = f"{self.next!r}" if self.next else "the end"
        return ConfigurationError(f"cannot read the schema: expected {wanted} but found {found}", advice=_ADVICE)

    def _field(self, parent: str) -> pa.Field:
        name = self._name()
        if self.next == ":":
            self._advance()
        kind = self._type(f"{parent}.{name}" if parent else name)
        nullable = self.next.lower() != "not"
        if not nullable:
            self._advance()
            self._take("null")
        return pa.field(name, kind, nullable=nullable)

    def _type(self, column: str) -> pa.DataType:
        name = self._word(f"a type for column {column!r}").lower()
        if name in {"decimal", "dec", "numeric"}:
            return self._decimal(column)
        if name == "array":
            self._take("<")
            kind = pa.list_(self._type(column))
        elif name == "map":
            self._take("<")
            key = self._type(column)
            self._take(",")
            kind = pa.map_(key, self._type(column))
        elif name == "struct":
            self._take("<")
            fields = self.fields(column)
            _require_distinct(fields)
            kind = pa.struct(fields)
        else:
            return self._primitive(name, column)
        self._take(">")
        return kind

    def _primitive(self, name: str, column: str) -> pa.DataType:
        kind = _TYPES.get(_OTHER_NAMES.get(name, name))
        if kind is None:
            known = ", ".join(sorted([*_TYPES, "decimal(p, s)", "array<...>", "map<..., ...>", "struct<...>"]))
            raise ConfigurationError(f"column {column!r} has the unknown type {name!r}", advice=f"use one of {known}")
        return kind

    def _decimal(self, column: str) -> pa.DataType:
        precision, scale = _PLAIN_DECIMAL
        if self.next == "(":
            self._advance()
            precision, scale = self._number(), 0
            if self.next == ",":
                self._advance()
                scale = self._number()
            self._take(")")
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise ConfigurationError(
                f"column {column!r} cannot be decimal({precision}, {scale})",
                advice=f"give a precision from 1 to {_MAX_PRECISION} and a scale up to the precision",
            )
        return pa.decimal128(precision, scale)

    def _name(self) -> str:
        if self.next.startswith("`"):
            name = self.next[1:-1].replace("``", "`")
            self._advance()
            return name
        return self._word("a column name")

    def _word(self, wanted: str) -> str:
        word = self.next
        if not re.fullmatch(r"\w+", word):
            raise self.unexpected(wanted)
        self._advance()
        return word

    def _number(self) -> int:
        if not self.next.isdecimal():
            raise self.unexpected("a whole number")
        word = self._word("a whole number")
        return int(word) if len(word) <= _MOST_DIGITS else 10**_MOST_DIGITS

    def _take(self, token: str) -> None:
        if self.next.lower() != token:
            raise self.unexpected(f"{token!r}")
        self._advance()

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._position)
        if found:
            self._position = found.end()
            self.next = found[1]
        elif self._position < len(self._text):
            self.next = self._text[self._position :].lstrip()[0]
            raise self.unexpected("a name, a type or one of ( ) < > , :")
        else:
            self.next = ""

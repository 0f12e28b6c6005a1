"""Columns as SQL writes them, read into an Arrow schema."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.schema_text import parse_schema
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.schema import from_schema_string, table_schema, to_schema_string


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bigint", pa.int64()),
        ("LONG", pa.int64()),
        ("int", pa.int32()),
        ("Integer", pa.int32()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(7)", pa.decimal128(7, 0)),
        ("dec( 38 , 38 )", pa.decimal128(38, 38)),
        ("numeric(10,2)", pa.decimal128(10, 2)),
        ("array<string>", pa.list_(pa.string())),
        ("array<array<decimal(5,1)>>", pa.list_(pa.list_(pa.decimal128(5, 1)))),
        ("map<string,int>", pa.map_(pa.string(), pa.int32())),
        ("struct<a: int, `b c` string>", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
        ("struct<a int not null>", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        ("map<int, struct<x: array<date>>>", pa.map_(pa.int32(), pa.struct([("x", pa.list_(pa.date32()))]))),
    ],
)
def test_types(text: str, kind: pa.DataType) -> None:
    schema = parse_schema(f"c {text}")
    assert schema == pa.schema([("c", kind)])
    assert from_schema_string(to_schema_string(schema)) == table_schema(schema), "the table can hold it"


def test_names_and_nullability() -> None:
    schema = parse_schema(" id: bigint NOT NULL ,`a``b, c` string,order int,date date, größe double\n")
    assert schema.names == ["id", "a`b, c", "order", "date", "größe"]
    assert [field.nullable for field in schema] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected a column name but found the end"),
        ("id", "expected a type for column 'id' but found the end"),
        ("id bigint,", "expected a column name but found the end"),
        ("id bigint name string", "expected ',' or the end but found 'name'"),
        ("id bigint null", "expected ',' or the end but found 'null'"),
        ("id bigint not", "expected 'null' but found the end"),
        ("id bigint default 1", "expected ',' or the end but found 'default'"),
        ("id bigint)", "expected ',' or the end but found ')'"),
        ("id bigint; x", "but found ';'"),
        ("'id' bigint", 'but found "\'"'),
        ("`id bigint", "but found '`'"),
        ("id varchar(10)", "column 'id' has the unknown type 'varchar'"),
        ("a struct<b: nope>", "column 'a.b' has the unknown type 'nope'"),
        ("a array<int", "expected '>' but found the end"),
        ("a array", "expected '<' but found the end"),
        ("a map<int>", "expected ',' but found '>'"),
        ("a decimal(x)", "expected a whole number but found 'x'"),
        ("a decimal(39, 1)", "column 'a' cannot be decimal(39, 1)"),
        ("a decimal(3, 4)", "column 'a' cannot be decimal(3, 4)"),
        ("a decimal(0)", "column 'a' cannot be decimal(0, 0)"),
        ("a int, A int", "two columns 'A'"),
        ("s struct<a: int, a: int>", "two columns 'a'"),
        ("a " + "array<" * 5000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_schema(text)
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text(alphabet="ab `<>(),:1", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert parse_schema(text).names

"""Hypothesis strategies for actions, schemas and values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tidelog.log.format import actions
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ

# JSON and parquet can hold any text except lone surrogates.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
_TEXT_MAPS = st.dictionaries(NAMES, st.none() | TEXTS, max_size=3)

VECTORS = st.builds(
    actions.DeletionVectorDescriptor,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=TEXTS,
    size_in_bytes=st.integers(0, 2**31 - 1),
    cardinality=st.integers(0, 2**63 - 1),
    offset=st.none() | st.integers(0, 2**31 - 1),
)
ADDS = st.builds(
    actions.AddFile,
    path=TEXTS,
    partition_values=_TEXT_MAPS,
    size=LONGS,
    modification_time=LONGS,
    data_change=st.booleans(),
    stats=st.none() | TEXTS,
    tags=st.none() | _TEXT_MAPS,
    deletion_vector=st.none() | VECTORS,
    base_row_id=st.none() | LONGS,
    default_row_commit_version=st.none() | LONGS,
    clustering_provider=st.none() | TEXTS,
)
REMOVES = st.builds(
    actions.RemoveFile,
    path=TEXTS,
    data_change=st.booleans(),
    deletion_timestamp=st.none() | LONGS,
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | _TEXT_MAPS,
    size=st.none() | LONGS,
    stats=st.none() | TEXTS,
    tags=st.none() | _TEXT_MAPS,
    deletion_vector=st.none() | VECTORS,
    base_row_id=st.none() | LONGS,
    default_row_commit_version=st.none() | LONGS,
)
CHANGE_FILES = st.builds(
    actions.AddCDCFile, path=TEXTS, partition_values=_TEXT_MAPS, size=LONGS, tags=st.none() | _TEXT_MAPS
)
TRANSACTIONS = st.builds(actions.SetTransaction, app_id=TEXTS, version=LONGS, last_updated=st.none() | LONGS)
DOMAINS = st.builds(actions.DomainMetadata, domain=TEXTS, configuration=TEXTS, removed=st.booleans())
PROTOCOLS = st.builds(
    actions.Protocol,
    min_reader_version=st.integers(1, 3),
    min_writer_version=st.integers(1, 7),
    reader_features=st.none() | st.lists(NAMES, max_size=3).map(tuple),
    writer_features=st.none() | st.lists(NAMES, max_size=3).map(tuple),
)
METADATA = st.builds(
    actions.Metadata,
    id=TEXTS,
    format=st.builds(actions.Format, options=st.dictionaries(NAMES, TEXTS, max_size=2)),
    schema_string=TEXTS,
    partition_columns=st.lists(NAMES, max_size=3).map(tuple),
    configuration=st.dictionaries(NAMES, TEXTS, max_size=3),
    name=st.none() | TEXTS,
    description=st.none() | TEXTS,
    created_time=st.none() | LONGS,
)
ACTIONS = st.one_of(ADDS, REMOVES, CHANGE_FILES, TRANSACTIONS, DOMAINS, PROTOCOLS, METADATA)

_UTC_MOMENTS = st.datetimes(timezones=st.just(dt.UTC))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    return st.integers(-bound, bound).map(
        lambda digits: Decimal(digits).scaleb(-scale).quantize(Decimal(1).scaleb(-scale))
    )


# Every primitive type with its values.
PRIMITIVES: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=10),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): LONGS,
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): _decimals(9, 2),
    pa.decimal128(18, 0): _decimals(18, 0),
    TIMESTAMP: _UTC_MOMENTS,
    TIMESTAMP_NTZ: st.datetimes(),
}


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(NAMES, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda field: field[0])
    return st.one_of(
        fields.map(lambda found: pa.struct([pa.field(name, kind, nullable) for name, kind, nullable in found])),
        st.tuples(inner, st.booleans()).map(lambda found: pa.list_(pa.field("element", *found))),
        st.tuples(inner, inner, st.booleans()).map(lambda found: pa.map_(found[0], pa.field("value", *found[1:]))),
    )


_LEAVES = st.sampled_from(list(PRIMITIVES)) | st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
# Any type that a column can have.
TYPES = st.recursive(_LEAVES, _nested, max_leaves=5)
SCHEMAS = st.lists(st.tuples(NAMES, TYPES, st.booleans()), min_size=1, max_size=4, unique_by=lambda f: f[0]).map(
    lambda found: pa.schema([pa.field(name, kind, nullable) for name, kind, nullable in found])
)

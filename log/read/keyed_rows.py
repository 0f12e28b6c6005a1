"""`get`: the rows that have one of some keys.

Files are left out by their statistics and partitions. Of the others the key columns are read, unless the table has an
index of the key, and the other columns only where a row has one of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.data import conform, python_rows
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.reader import DataFile, read_batches, read_numbered_batches
from tidelog.log.errors import ConfigurationError
from tidelog.log.pruning.file_pruning import prune_state
from tidelog.log.read.key_index import Located, index_of
from tidelog.log.read.keys import Keys, key_columns
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.read.scan import Selection
from tidelog.log.state.files import to_adds
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store


def rows_of_keys(
    store: Store, state: LogState, schema: pa.Schema, keys: Any, columns: Sequence[str] | None
) -> pa.Table:
    """The live rows of a version that have one of `keys`, in the order of the keys; see `Snapshot.get`."""
    chosen = Selection(schema, None, columns).schema
    asked = _distinct(_asked(keys, schema))
    if not asked.num_rows:
        return chosen.empty_table()
    wanted = Keys(asked, asked.column_names, store.url)
    metadata = state.head.metadata
    files = prune_state(state, wanted.predicate(), schema, metadata).files
    readings: list[Callable[[], Iterator[pa.RecordBatch]]] = []
    index = index_of(store, IndexedKey.of(metadata, schema), wanted.names)
    if index is not None:
        located, is_left = index.locate(files, wanted.table)
        readings += (partial(_at, store, found, chosen) for found in located)
        files = files.filter(pa.array(is_left))
    readings += (partial(_matching, store, DataFile.of(add), wanted, chosen) for add in to_adds(files))
    batches = list(read_ahead(readings, store.reads_at_once))
    if not batches:
        return chosen.empty_table()
    # The last column has the number of each row's key.
    table = pa.Table.from_batches(batches)
    order = np.argsort(table.column(len(chosen)).to_numpy(), kind="stable")
    return table.take(pa.array(order)).select(range(len(chosen)))


def _asked(keys: Any, schema: pa.Schema) -> pa.Table:
    """The keys as a table with columns of the table's types."""
    if isinstance(keys, Mapping):
        raise ConfigurationError("keys must be a list of dicts, not a dict", advice="pass [{...}]")
    held = conform.hold(keys)
    if isinstance(held, pa.Table):
        held = conform.without_index(held, schema)
        given = held.column_names
    else:
        python_rows.require_dicts(held)
        given = list(dict.fromkeys(str(name) for row in held for name in row))
        if not held:
            return pa.table({})
    if not given:
        raise ConfigurationError("the keys have no columns", advice="pass keys such as [{'id': 7}]")
    names = key_columns(list(conform.match_names(given, schema.names)), schema, {})
    own = pa.schema([schema.field(name).with_nullable(True) for name in names])  # noqa: FBT003 - pyarrow's signature
    return conform.conform(held, own) if isinstance(held, pa.Table) else python_rows.to_table(held, own)


def _distinct(keys: pa.Table) -> pa.Table:
    """Each key once, where it comes first."""
    if not keys.num_rows:
        return keys
    numbers = np.asarray(group_numbers(keys, keys.column_names))
    first = np.sort(np.unique(numbers, return_index=True)[1])
    return keys if len(first) == len(numbers) else keys.take(pa.array(first))


def _matching(store: Store, file: DataFile, keys: Keys, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file that have one of the keys, with the numbers of their keys as the last column."""
    positions: list[Int64Array] = []
    places: list[Int64Array] = []
    for numbers, batch in read_numbered_batches(store, file, keys.table.schema):
        found = keys.places(pa.Table.from_batches([batch]))
        positions.append(numbers[found >= 0])
        places.append(found[found >= 0])
    wanted = BitMap64(np.concatenate(positions)) if positions else BitMap64()
    if not wanted:
        return
    yield from _numbered(store, file, chosen, wanted, np.concatenate(places))


def _at(store: Store, found: Located, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same for rows that the key index has found."""
    return _numbered(store, DataFile.of(found.add), chosen, BitMap64(found.positions), found.places)


def _numbered(
    store: Store, file: DataFile, chosen: pa.Schema, wanted: BitMap64, rest: Int64Array
) -> Iterator[pa.RecordBatch]:
    """The rows at some positions, with the numbers of their keys."""
    for batch in read_batches(store, file, chosen, only=wanted):
        own, rest = rest[: batch.num_rows], rest[batch.num_rows :]
        fields = [*chosen, pa.field("", pa.int64())]
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(own, pa.int64())], schema=pa.schema(fields))

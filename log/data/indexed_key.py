"""The key of a table whose keys are indexed, and the codes of its values.

An integer or a time is its own code. Other keys have a hash of 128 bits, which begins with a number of the table's, so
that nobody outside prepares two keys with one code.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.arrays import Int64Array
from tidelog.log.data.packed_order import NO_COLUMNS, PackedColumns
from tidelog.log.data.row_hashes import HASH_NAME, Seeds, row_hashes
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import physical_name

_FIXED_WIDTH = (pt.is_signed_integer, pt.is_date32, pt.is_timestamp)
_HASHED = (pt.is_string, pt.is_binary, pt.is_decimal, pt.is_boolean)


def has_own_codes(kinds: Sequence[pa.DataType]) -> bool:
    """Whether the values of a key with these types are its codes."""
    return len(kinds) == 1 and any(is_kind(kinds[0]) for is_kind in _FIXED_WIDTH)


def own_codes(column: pa.Array) -> Int64Array:
    """The values of such a key as codes."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_date32(column.type):
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()))


@dataclass(frozen=True, slots=True)
class IndexedKey:
    """The key of a table whose keys are indexed: its columns, and what a run of the table says of them.

    `order` are the columns of the table's order, if runs have them as well; `stored` names all columns of a run.
    """

    table_id: str
    names: tuple[str, ...]
    columns: str
    words: int
    order: PackedColumns = NO_COLUMNS
    stored: tuple[str, ...] = ()

    @staticmethod
    def of(metadata: Metadata, schema: pa.Schema) -> IndexedKey | None:
        """The indexed key of a table with these columns; None without an index.

        Nested columns, and those of floating point, which have values that are equal and look different, have none.
        """
        spelled = {name.lower(): name for name in schema.names}
        names = tuple(spelled.get(name.lower(), "") for name in properties.indexed_key(metadata.configuration))
        if not names or "" in names:
            return None
        kinds = [schema.field(name).type for name in names]
        if not all(any(is_kind(kind) for is_kind in (*_FIXED_WIDTH, *_HASHED)) for kind in kinds):
            return None
        described = [[physical_name(schema.field(name)), str(kind)] for name, kind in zip(names, kinds, strict=True)]
        has_order = properties.ORDER_BY in metadata.configuration
        order = PackedColumns.of(metadata.configuration, schema) if has_order else NO_COLUMNS
        columns, words = (described, 1) if has_own_codes(kinds) else ([*described, HASH_NAME], 2)
        text = msgspec.json.encode(columns).decode()
        return IndexedKey(metadata.id, names, text, words, order, tuple(dict.fromkeys((*names, *order.names))))

    def codes(self, rows: pa.Table) -> Int64Array:
        """The codes of rows without nulls in the key: an array of `words` lines with a number for each row."""
        # One by one: all texts together can be more than one array holds.
        batches = rows.select(self.names).to_batches()
        none = np.zeros((self.words, 0), dtype=np.int64)
        return (
            np.concatenate([none, *map(self._codes, batches)], axis=1) if len(batches) != 1 else self._codes(batches[0])
        )

    def _codes(self, rows: pa.RecordBatch) -> Int64Array:
        if self.words == 1:
            return own_codes(rows.column(0)).reshape(1, -1)
        return row_hashes(rows.columns, rows.num_rows, seeds=self._seeds).view(np.int64)

    @property
    def _seeds(self) -> Seeds:
        first, second = struct.unpack("<QQ", hashlib.blake2b(self.table_id.encode(), digest_size=16).digest())
        return np.uint64(first), np.uint64(second)

"""Which rows of a file count, by their positions in it: the live rows, or the rows in which two vectors differ.

Spark's scan gives each row its position. The positions of deletion vectors become bitmaps of 4,096 rows each, keyed by
the number of the file and of the block. They are broadcast, so that looking up a row is one look into a hash table,
however large the files are. Blocks without a position have no bitmap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.format.statistics import num_records
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.storage import Store
from tidelog.streaming.executors.tasks import in_tasks

_BLOCK_BITS = 12
_BLOCK_ROWS = 1 << _BLOCK_BITS
_WORDS = _BLOCK_ROWS // 64
# The key of a block is its file's number, and in the lower bits its own; a file has fewer than 2^44 rows.
_FILE_SHIFT = 32
MAX_BLOCKS = 2**17
"""About 80 MB of bitmaps, which the driver and each executor hold."""
# Up to this number of files, the driver reads the vectors; beyond it, the executors do.
_FEW_FILES = 64
_READERS = 8
_FILES_PER_TASK = 256

# The number of the row of the constants, whether the positions are of rows that count (1) or that do not (0), and the
# position of the row in its file.
FILE_NUMBER = "file"
COUNTS_LISTED = "listed"
ROW_POSITION = "position"
# The bitmaps are joined to rows of a table, which can have columns of any plain name.
_BLOCK, _BITS = "tidelog: block", "tidelog: bits"
_BITMAPS = pa.schema([(_BLOCK, pa.int64()), (_BITS, pa.list_(pa.int64()))])


def has_positions(change: ChangeFile) -> bool:
    """Whether the positions of rows decide which rows of the file count."""
    return change.difference is not None or change.file.deletion_vector is not None


def max_blocks(change: ChangeFile) -> int:
    """The most bitmaps that the positions of a file can have."""
    vector = change.difference.dead if change.difference is not None else change.file.deletion_vector
    if vector is None:
        return 0
    physical = num_records(change.stats)
    return vector.cardinality if physical is None else min(vector.cardinality, math.ceil(physical / _BLOCK_ROWS))


def bitmaps(spark: SparkSession, store: Store, changes: Sequence[tuple[int, ChangeFile]]) -> DataFrame:
    """The bitmaps of numbered files, which all have positions.

    Raises DataFileMissingError and CorruptLogError, for many files when the frame is computed.
    """
    if len(changes) > _FEW_FILES:
        parts = [changes[start : start + _FILES_PER_TASK] for start in range(0, len(changes), _FILES_PER_TASK)]
        return in_tasks(spark, parts, partial(_bitmaps_of, store), _BITMAPS)
    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(lambda change: [*_bitmaps_of(store, [change])], changes)
        batches = [batch for of_file in found for batch in of_file]
    return spark.createDataFrame(pa.Table.from_batches(batches, _BITMAPS))


def counting(rows: DataFrame, bitmaps: DataFrame, number: Column, listed: Column, position: Column) -> DataFrame:
    """Those of the rows that count. The columns of `bitmaps` are added."""
    block = F.shiftleft(number.cast("long"), _FILE_SHIFT).bitwiseOR(F.shiftright(position, _BLOCK_BITS))
    place = position.bitwiseAND(F.lit(_BLOCK_ROWS - 1)).cast("int")
    joined = rows.join(F.broadcast(bitmaps), block == bitmaps[_BLOCK], "left")
    bit = F.getbit(F.get(bitmaps[_BITS], F.shiftright(place, 6)), place.bitwiseAND(F.lit(63)))
    return joined.where(F.coalesce(bit, F.lit(0).cast("tinyint")) == listed)


def _bitmaps_of(store: Store, changes: Sequence[tuple[int, ChangeFile]]) -> Iterator[pa.RecordBatch]:
    for number, change in changes:
        positions = _positions(store, change)
        if positions:
            yield _blocks(number, np.frombuffer(positions.to_array(), dtype=np.uint64).astype(np.int64))


def _positions(store: Store, change: ChangeFile) -> BitMap64:
    if change.difference is not None:
        return change.difference.positions(store)
    assert change.file.deletion_vector is not None
    return read_dead_rows(store, change.file.deletion_vector)


def _blocks(number: int, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
    blocks, places = np.unique(positions >> _BLOCK_BITS, return_inverse=True)
    flags = np.zeros(len(blocks) * _BLOCK_ROWS, dtype=bool)
    flags[(places << _BLOCK_BITS) + (positions & (_BLOCK_ROWS - 1))] = True
    words = np.packbits(flags, bitorder="little").view("<i8")
    offsets = pa.array(np.arange(len(blocks) + 1, dtype=np.int32) * _WORDS)
    keys = pa.array(blocks + (number << _FILE_SHIFT))
    return pa.RecordBatch.from_arrays([keys, pa.ListArray.from_arrays(offsets, pa.array(words))], schema=_BITMAPS)

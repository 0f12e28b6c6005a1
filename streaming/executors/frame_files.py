"""Write the rows of a DataFrame as data files, on the executors: with Spark's own writer, or with Python in its tasks.

Either way Spark counts the rows in the job that writes them, and the files must have the same number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.data.reader import DataFile, read_footer
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import TidelogError, WriteVerificationError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.statistics import num_records
from tidelog.log.rules import RowRules
from tidelog.streaming.executors import jvm_files
from tidelog.streaming.executors.plain_frame import arrow_schema, plain_rows, quoted
from tidelog.streaming.executors.ruled_frame import ruled
from tidelog.streaming.executors.session import FITTED_SHUFFLES, session_settings
from tidelog.streaming.executors.tasks import cleared, delete_written, file_size, pieces, run_on_rows

# So many values of a column show whether they repeat. A few look as if they did not.
_TELLING_VALUES = 100_000
_DICTIONARIES = frozenset(("PLAIN_DICTIONARY", "RLE_DICTIONARY"))
# Those of levels, and of booleans.
_NO_MATTER = frozenset(("RLE", "BIT_PACKED"))
# After so many batches dictionaries are tried again: values may repeat by now.
_TRIED_AGAIN = 32


class DictionaryUse:
    """The columns of a stream's batches whose values do not repeat, as one of them showed."""

    def __init__(self) -> None:
        self._plain: frozenset[str] = frozenset()
        self._batches = 0

    def plain(self) -> frozenset[str]:
        """The columns to write without a dictionary in the next batch."""
        self._batches += 1
        return self._plain if self._batches % _TRIED_AGAIN else frozenset()

    def learn(self, plain: frozenset[str]) -> None:
        """Note the columns for which a dictionary was in vain."""
        self._plain = plain


def write_frame(
    frame: DataFrame,
    writer: DataWriter,
    *,
    by_jvm: bool = True,
    max_tasks: int | None = None,
    rows_per_file: int | None = None,
    dictionaries: DictionaryUse | None = None,
) -> tuple[list[AddFile], int]:
    """Write the frame's rows to durable files of the table, and return the files and the number of rows.

    `by_jvm`: whether Spark's own writer can be used, because it reaches the store. For `max_tasks` and `rows_per_file`
    see `jvm_files.write_by_jvm`. `dictionaries` is what the batches before showed, for Spark's own writer. Rows that
    the table's rules fill or check are always written in Python, and so are those for partition folders in an object
    store. Raises SchemaMismatchError, UnsupportedFeatureError and WriteVerificationError, after deleting the files.
    """
    frame, rules = ruled(frame, writer)
    is_ruled = rules.act_on(frame.columns)
    if is_ruled:
        rules.require_fits(arrow_schema(frame))
    rows = plain_rows(frame, writer) if by_jvm and not is_ruled and jvm_files.fits_layout(writer) else None
    if rows is not None:
        plain = dictionaries.plain() if dictionaries else ()
        limits = {"max_tasks": max_tasks, "rows_per_file": rows_per_file}
        adds, count = jvm_files.write_by_jvm(rows, writer, **limits, plain=plain)
        if dictionaries and adds and not plain and count >= _TELLING_VALUES * len(adds):
            # The batch is written. If its footer cannot be read now, the footer of the next batch is.
            with suppress(TidelogError, OSError):
                dictionaries.learn(_columns_in_vain(read_footer(writer.store, DataFile.of(adds[0]))))
    else:
        adds, count = _write_in_tasks(frame, rules, max_tasks)
    try:
        require_counted(writer, adds, count, count)
    except WriteVerificationError:
        delete_written(writer, adds)
        raise
    return adds, count


def _columns_in_vain(footer: pq.FileMetaData) -> frozenset[str]:
    """The columns of a file of Spark's writer whose dictionaries became too large, or saved nothing."""
    group = footer.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return frozenset(column.path_in_schema for column in columns if _is_in_vain(column))


def _is_in_vain(column: pq.ColumnChunkMetaData) -> bool:
    """Whether data pages have another encoding than that of a dictionary, although there are many values.

    With `parquet.writer.version=v2` the dictionary's own page is PLAIN. So are the pages of floating numbers whose
    dictionary was given up, and the two look the same: such columns keep their dictionary.
    """
    found = column.statistics
    if found is None or not found.has_null_count or column.num_values - found.null_count < _TELLING_VALUES:
        return False
    encodings = set(column.encodings) - _NO_MATTER
    of_dictionary = {*_DICTIONARIES, "PLAIN"} if "RLE_DICTIONARY" in encodings else _DICTIONARIES
    return not encodings <= of_dictionary


def require_counted(writer: DataWriter, adds: Sequence[AddFile], reported: int, counted: int) -> None:
    """Raise WriteVerificationError unless the files have the number of rows that the tasks and Spark counted."""
    written = sum(num_records(add.stats) or 0 for add in adds)
    if not written == reported == counted:
        raise WriteVerificationError(
            f"the files written for {writer.store.url} have {written} rows, but Spark counted {counted}",
            advice="run it again; nothing was committed",
            path=writer.store.url,
        )


def _write_in_tasks(frame: DataFrame, rules: RowRules, max_tasks: int | None) -> tuple[list[AddFile], int]:
    writer = rules.writer
    if writer.metadata.partition_columns:
        names = {name.lower() for name in writer.metadata.partition_columns}
        present = [F.col(quoted(name)) for name in frame.columns if name.lower() in names]
        frame = frame.hint("rebalance", *present) if present else frame
    elif max_tasks is not None:
        frame = frame.coalesce(max_tasks)
    observation = Observation()
    counted = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    with session_settings(frame.sparkSession, FITTED_SHUFFLES):
        parts = run_on_rows(counted, partial(_write_part, rules), partial(delete_written, writer))
    return [add for part in parts for add in part], int(observation.get["rows"])


def _write_part(rules: RowRules, batches: Iterator[pa.RecordBatch]) -> Iterator[list[AddFile]]:
    writer = rules.writer
    for rows in pieces(batches, file_size(writer)):
        with cleared(writer):
            adds = writer.write(rules.of_table(rows))
        yield adds

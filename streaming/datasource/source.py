"""The Python data source behind `format("tidelog")` on Spark Connect: snapshots and changes for `spark.read`, the feed
for `readStream`, the writer for `df.write`. In a classic session `jvm_source` takes its place.

The columns are the table's; with the option `changes` each row also has the feed's own columns.
Only options can decide this, because Spark asks a Python source for its columns before it says whether the read is a
stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.log.errors import ConfigurationError
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.file_partitions import read_columns, snapshot_to_read, table_to_read
from tidelog.streaming.datasource.read_options import parse_read, split_names
from tidelog.streaming.feed_planning.query_columns import LoadedColumns

if TYPE_CHECKING:
    from tidelog.streaming.datasource.feed_reader import FeedReader


class TidelogDataSource(DataSource):
    """`format("tidelog")` for `spark.read`, `spark.readStream` and `df.write`.

    `tidelog.streaming.register(spark)` registers it on Spark Connect; in a classic session a class of the JVM takes the
    same options. Its columns are the table's. Spark cannot use this one for a table of its catalog (`CREATE TABLE ...
    USING tidelog`); in SQL use `CREATE TEMPORARY VIEW name USING tidelog OPTIONS (path '/path/to/table')`, which reads
    the version that is the newest when it is first queried, and takes `INSERT`.

    Args:
        options: The options below, by name; upper and lower case are the same.

    | option | read | readStream | meaning |
    |---|---|---|---|
    | `path` | yes | yes | the table |
    | `versionAsOf`, `timestampAsOf` | yes | | a snapshot |
    | `after` | yes | yes | the changes after this version or time, which is not included |
    | `startingVersion`, `startingTimestamp` | yes | yes | the changes from this point on, included as in Delta |
    | `endingVersion`, `endingTimestamp` | yes | | the changes up to and including this point |
    | `changes` | yes | yes | `append`, `cdc` or `net` (`read` only) |
    | `keys` | yes | | for `net`: comma-separated key columns |
    | `initialSnapshot` | | yes | `true`: first the table as it is, then what follows |
    | `skipChangeCommits` | | yes | `true`, with `append`: leave out commits that removed or changed rows |
    | `consumer` | | yes | a name under which the stream holds back clean-up |
    | `maxFilesPerTrigger`, `maxBytesPerTrigger`, `maxRowsPerTrigger` | | yes | the most in one micro-batch |
    | `columns`, `where` | yes | yes | comma-separated columns; an SQL predicate |
    | `storageOption.<name>` | yes | yes | credentials and endpoints of the store |

    `after` and `startingVersion` also take `earliest`, the default of a stream, and `latest`. A timestamp is ISO-8601;
    without a time zone it is read in the session's, as `spark.sql.session.timeZone` was at `register(spark)`. If the
    session has another zone when the query runs, the query fails with an error that says so.

    `df.write` takes `path`, `partitionBy`, `where`, `partitionOverwriteMode`, `mergeSchema`, `overwriteSchema`,
    `txnAppId`, `txnVersion` and `storageOption.<name>`.

    Example:
        register(spark)
        spark.read.format("tidelog").option("versionAsOf", 3).load("/data/events")
        spark.readStream.format("tidelog").option("after", "latest").load("/data/events")
        df.write.format("tidelog").mode("append").save("/data/events")
    """

    session_zone: str | None = None

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._raw = dict(options)
        # Spark keeps this object from the load of the table to the start of the query.
        self._loaded: LoadedColumns | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format, `tidelog`."""
        return "tidelog"

    @error_first
    def schema(self) -> StructType:
        """The columns of the read.

        Raises:
            ConfigurationError: An option is unknown or malformed.
            TableNotFoundError: There is no table at the path.
            PredicateError: `columns` or `where` do not fit the table.
        """
        options = parse_read(self._raw, session_zone=self.session_zone)
        table = table_to_read(options)
        self._loaded = LoadedColumns(table.version, table.schema)
        snapshot = snapshot_to_read(table, options)
        return spark_versions.columns_from_arrow(read_columns(snapshot.schema, options.query_columns))

    @error_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for `spark.read`.

        Raises:
            ConfigurationError: An option is unknown, malformed, or for streams only.
        """
        from tidelog.streaming.datasource.batch_reader import BatchReader  # noqa: PLC0415 - a process needs one of them

        return BatchReader(parse_read(self._raw, streaming=False, session_zone=self.session_zone), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for `spark.readStream`.

        It checks its options on its first call, since Spark hides an error raised here.
        """
        from tidelog.streaming.datasource.feed_reader import FeedReader  # noqa: PLC0415 - as above

        return stream_reader(FeedReader(self._raw, schema, self.session_zone, self._loaded))

    @error_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """The writer for `df.write`. It checks the options and the frame's columns before any task runs.

        Raises:
            ConfigurationError: An option is unknown, malformed or misplaced.
            SchemaMismatchError: The frame's columns do not fit the table's.
            PredicateError: `where` does not describe whole partitions.
            AppendOnlyError: An overwrite of a table that only takes appends.
        """
        from tidelog.streaming.datasource.batch_writer import BatchWriter  # noqa: PLC0415 - as above
        from tidelog.streaming.datasource.write_options import parse_write  # noqa: PLC0415 - as above

        return BatchWriter(parse_write(self._raw, overwrite=overwrite), schema)

    @error_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """Refuse: Spark gives a Python stream writer no query id, so a replayed batch could not be recognized.

        Raises:
            ConfigurationError: Always; it shows the line with a Sink to use instead.
        """
        options, _ = split_names(self._raw)
        path, checkpoint = options.get("path", "/path"), options.get("checkpointlocation", "/cp")
        sink = f'Sink("{path}", checkpoint="{checkpoint}")'
        raise ConfigurationError(
            'writeStream.format("tidelog") is not supported here: it could not write each batch exactly once',
            advice=f'use df.writeStream.foreachBatch({sink}).option("checkpointLocation", "{checkpoint}").start(), or '
            "a server of Spark Connect that has called register(spark)",
        )


def stream_reader(feed: FeedReader) -> DataSourceStreamReader:
    """The feed as a reader with the methods that this Spark calls."""
    if spark_versions.SOURCES_TAKE_LIMITS:
        from tidelog.streaming.datasource.admitted_reader import AdmittedReader  # noqa: PLC0415 - older ones lack it

        return AdmittedReader(feed)
    from tidelog.streaming.datasource.self_limited_reader import SelfLimitedReader  # noqa: PLC0415 - newer ones do not

    return SelfLimitedReader(feed)

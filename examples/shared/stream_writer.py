"""A program that a demo starts: a stream that writes each file of a folder to a table, one per micro-batch.

python -m examples.shared.stream_writer INCOMING TABLE CHECKPOINT SCRATCH
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.pandas.types import from_arrow_schema

from examples.shared.small_spark import small_spark
from tidelog.log import Table
from tidelog.streaming import Sink

_INTERVAL = "200 milliseconds"


def main(incoming: str, table: str, checkpoint: str, scratch: str) -> None:
    spark = small_spark(Path(scratch), "writer")
    schema = from_arrow_schema(Table.open(table).schema)
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(incoming)
    query = rows.writeStream.foreachBatch(Sink(table)).option("checkpointLocation", checkpoint)
    query.trigger(processingTime=_INTERVAL).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

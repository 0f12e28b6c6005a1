"""Work on Spark's executors: writing files, row changes and compactions of tables too large for one machine.

| module | contents |
|---|---|
| `prerequisites` | checks for Java, a running JVM and a recent Spark |
| `session` | the Spark session: its context, its queries, its Python workers, settings for the length of a block |
| `tasks` | split work into Spark's tasks, run a function in them, and collect small results or use their rows |
| `frame_files` | write the rows of a DataFrame as data files |
| `jvm_files` | the same through Spark's own parquet writer |
| `collected` | a frame's rows in the driver |
| `computed_once` | a frame that several jobs read |
| `plain_frame` | which DataFrames that writer can take as they are |
| `ruled_frame` | what Spark computes for a table whose rules tidelog cannot evaluate |
| `hadoop` | the table's store as Hadoop sees it: URLs, settings, connectors |
| `spark_table` | `table(spark, path)`: DELETE, UPDATE, UPSERT, OVERWRITE and compactions on the executors |
| `spark_executor` | `SparkExecutor`: the calls of a compaction as Spark tasks |
| `spark_upsert` | the steps of an UPSERT |
| `upsert_by_range` | an UPSERT with too many keys for the driver |
| `changed_rows` | UPDATE, DELETE and MERGE whose rows a query of Spark's has |
| `lookup` | the rows of a frame with those of a table that have the same keys |
"""

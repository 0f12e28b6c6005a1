"""The data source behind `format("tidelog")`.

| module | contents |
|---|---|
| `register` | `register(spark)` |
| `jvm_source` | the format in a classic session: a class of the JVM (`DefaultSource.java`), and what answers it |
| `jvm_classes` | the classes of this folder in the JVM: compiled once, and kept in a cache |
| `frames` | what the class gives to Spark: frames of batch reads and of micro-batches, and writes |
| `sql_catalog` | the SQL catalog `tidelog` (`Catalog.java`): tables by their path, or below a folder |
| `sql_tables` | CREATE, REPLACE, DROP and TRUNCATE of its tables |
| `stream_sinks` | the sinks of `writeStream.format("tidelog")` and `toTable` (`Streams.java`) |
| `sink_options` | their options |
| `sql_columns` | the columns of its tables, from Spark's form; partitions and clusters |
| `sql_namespaces` | its schemas (`Namespaces.java`) |
| `sql_alterations` | its ALTER TABLE and COMMENT ON (`TableChanges.java`) |
| `procedures` | its procedures, `CALL tidelog.system...` (`Procedures.java`) |
| `procedure_texts` | OPTIMIZE, VACUUM and others that Spark's parser does not know, as procedures |
| `rewritten` | UPDATE, DELETE and MERGE in `spark.sql` as Spark's analyzer rewrites them (`Rewritten.java`) |
| `row_changes` | those of them that have a translation, from Spark's plan (`RowChanges.java`) |
| `sql_changes` | CHANGES, `read.changes` and `readStream.changes` of its tables on Spark 4.2 (`ChangesCatalog.java`) |
| `spark_expressions` | Spark's resolved expressions as text for a predicate |
| `sql_statements` | `sql(spark, text)`: these statements with a result, and by their text on Spark Connect |
| `pushed_filters` | Spark's filters as a predicate |
| `source` | `TidelogDataSource`, the Python source of Spark Connect |
| `batch_reader` | `spark.read`: a snapshot, or the changes of an interval |
| `feed_reader` | `spark.readStream`: the change feed |
| `admitted_reader` | the feed for a Spark that says how far a micro-batch may go: 4.2 and later |
| `self_limited_reader` | the feed for one that does not |
| `file_partitions` | the files of a read, grouped into tasks |
| `read_options` | the options of a read, parsed and checked, and the session's time zone for timestamps without one |
| `feed_references` | the stream behind `Feed` on Spark Connect: references to files instead of rows |
| `table_functions` | `tidelog_read`, `tidelog_changes`, `tidelog_history` for SQL, of names by `NamedFunctions.java` |
| `write_options` | the options of `df.write`, parsed and checked |
| `errors_first` | errors as Spark shows them: tidelog's line first, without its internals |
| `batch_writer` | `df.write`: tasks write files, the driver commits them |
"""

"""A table's rows and changes as DataFrames: Spark's own parquet reader reads the files, without Python.

| module | contents |
|---|---|
| `tables` | `read(spark, path)` and `changes(spark, path)`, with the change mode `net` |
| `jvm_rows` | the rows of change files as one frame; which files go to Spark's reader and which to tidelog's |
| `addressed_rows` | rows with their addresses, for a statement that changes some of them |
| `file_scan` | a scan of listed files with constants for each, made of Spark's parts and of `ListedFiles.java` |
| `dead_rows` | which rows of a file count, by their positions |
| `spark_conditions` | predicates as conditions for Spark |
"""

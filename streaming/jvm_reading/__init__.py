"""A table's rows and changes as DataFrames: Spark's own parquet reader reads the files, without Python.

| module | contents |
|---|---|
| `tables` | `read(spark, path)` and `changes(spark, path)` |
| `rows` | `jvm_rows`: the rows of change files as one frame; which files go to which reader |
| `readable` | what Spark's reader reads with the same result as tidelog's |
| `file_scan` | a scan of listed files with constants for each, made of Spark's parts and of `ListedFiles.java` |
| `constants` | what the log says of all rows of a file: partition values and change columns |
| `dead_rows` | which rows of a file count, by their positions |
| `conditions` | predicates as conditions for Spark |
| `net` | the change mode `net` |
| `tidelog_reader` | rows that tidelog's own reader reads on the executors: all that Spark's does not |
| `tidelog_tasks` | frames whose rows come from tidelog's code in tasks |
"""

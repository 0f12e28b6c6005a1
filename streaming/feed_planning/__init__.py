"""Plan the change feed of a stream: how far the next micro-batch goes, and what it reads. Knows the log but not Spark.

| module | contents |
|---|---|
| `offsets` | a stream's position in the table's history, as Spark's offset log stores it |
| `limits` | how much one micro-batch may read |
| `feed_units` | what the feed reads as a whole: the files of each commit, and of the snapshot it begins with |
| `query_columns` | the columns of a read, and what happens when the table's change |
| `stream_consumer` | the registered consumer of a stream |
| `feed_planner` | from one offset to the next, and what lies between two of them |
"""

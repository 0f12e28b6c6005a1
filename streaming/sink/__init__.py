"""The sink: a `foreachBatch` function that commits each micro-batch exactly once.

How a micro-batch is processed:

1. `sink`: the public class. Its arguments are checked once, in `settings`; Spark calls it for each batch.
2. `batch`: the one object for one batch. Its phases are identify, throttle, collect, write, commit.
3. identify: `identity` finds out which batch of which query this is (a `micro_batch`), with `java_query` and
   `streaming_checkpoint`. `target` opens the table and asks the `ledger` whether the batch is committed already, and
   whether the query may write to this table under this name. `claims` refuses a second call for the same batch.
4. throttle: `throttle` makes the batch wait if the table has too many small files, while `query_state` says that the
   query runs.
5. collect: `writer_choice` decides whether the driver or Spark writes the rows; for the driver, `batch_rows` collects
   them.
6. write: `batch_rows` stages the rows by the sink's mode. `deduplication` keeps the newest row of each key, and
   `advice` adds what a Sink can do about an error.
7. commit: the ledger's entries go into the same commit as the rows. A first batch without rows commits only the claim
   of the sink's name. `background_checkpoint` then writes a checkpoint of the log if one is due.
"""

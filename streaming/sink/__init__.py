"""The sink: a `foreachBatch` function that commits each micro-batch exactly once.

How a micro-batch is processed:

1. `sink`: the public class. Its arguments are checked once, in `settings`; Spark calls it for each batch.
2. `batch`: the one object for one batch. Its phases are identify, throttle, collect, write, commit. It refuses a second
   call for the same batch.
3. identify: `batch_identity` finds out which batch of which query this is (a `micro_batch`), from Spark or from the
   files of the streaming checkpoint. `target` opens the table. The `ledger` says whether the batch is committed
   already, and whether the query may write to this table under this name.
4. throttle: `throttle` makes the batch wait if the table has too many small files.
5. dead letters: `dead_letters` separates the rows that an upsert cannot apply, if there is a sink for them.
   A batch of change records of databases goes through `captured` first, which knows the columns of `control`, and finds
   what a source has left out by `left_out`.
6. collect and write: `batch_rows` decides whether the driver or Spark writes the rows, and stages them by the sink's
   mode.
7. commit: the ledger's entries go into the same commit as the rows. A first batch without rows commits only the claim
   of the sink's name. As any writer, the table then writes a checkpoint of the log in the background if one is due.

`sinks` gives the rows of one stream to many sinks, and keeps what a table refuses in the table of `parking`. A reader
of several of these tables waits by `progress`.
"""

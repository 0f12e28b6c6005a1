"""What a stream reports about itself.

Each micro-batch of a sink passes through these modules in this order:

1. `batch_report` measures how long each phase of the batch takes, and holds the result: the BatchReport, which
   `Sink.last` also returns.
2. `batch_log` logs the report, or the error that the batch failed with, and passes the report to subscribers, such as
   `tidelog.streaming.prometheus`.

`observed` is separate: it adds figures about the rows themselves to Spark's own progress events.
"""

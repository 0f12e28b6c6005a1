"""Change data capture: the records that a database's changes are sent as, as rows for a sink.

from tidelog.streaming import capture

rows = capture.debezium(records, schema="id BIGINT, name STRING", keys=["id"])
sink = capture.sink("/data/customers", keys=["id"], dead_letters="/data/customers-dead")
query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", "/data/_cp").start()

`debezium`, `maxwell` and `canal` read formats, and `operations` rows with a column that says what happened. `changes`
makes rows of the changes in records, `values` the values of their columns, `order` the text by which they are compared;
`declared` reads what a record's own schema says, `column_names` gives each column its place in the rows, `schemas`
knows what a schema can be given as, and `captured_sink` is the sink.

The other way, a table's changes out again: `to_debezium` makes envelopes of them, with the values of `json_values`, and
`postgres_sink` brings them into a table of PostgreSQL.
"""

from tidelog.streaming.capture.canal import canal
from tidelog.streaming.capture.captured_sink import sink
from tidelog.streaming.capture.debezium import debezium
from tidelog.streaming.capture.maxwell import maxwell
from tidelog.streaming.capture.operations import operations
from tidelog.streaming.capture.postgres_sink import PostgresReport, PostgresSink
from tidelog.streaming.capture.to_debezium import to_debezium

__all__ = [
    "PostgresReport",
    "PostgresSink",
    "canal",
    "debezium",
    "maxwell",
    "operations",
    "sink",
    "to_debezium",
]

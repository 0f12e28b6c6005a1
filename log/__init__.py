"""tidelog.log: the transaction log and the table. Needs no Spark and is useful alone.

table = Table.create("/data/events", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]))
table.insert([{"id": 1, "at": now}])
table.scan("id > 0").to_arrow()
table.changes(after=yesterday).to_arrow()
"""

from tidelog.log.changes import Changes
from tidelog.log.conflict.classes import OperationClass
from tidelog.log.debt import Debt
from tidelog.log.outcome import CommitRecord, Committed, Superseded
from tidelog.log.scan import Scan
from tidelog.log.snapshot import Snapshot
from tidelog.log.table import Table
from tidelog.log.transaction import Transaction

__all__ = [
    "Changes",
    "CommitRecord",
    "Committed",
    "Debt",
    "OperationClass",
    "Scan",
    "Snapshot",
    "Superseded",
    "Table",
    "Transaction",
]

"""The transaction log and the table. Works without Spark.

Example:
    >>> table = Table.create("/data/events", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]))
    >>> table.insert([{"id": 1, "at": now}])
    >>> table.scan("id > 0").to_arrow()
    >>> table.changes(after=yesterday).to_arrow()  # commits after this time; `after` is exclusive

A `table` is opened at a version and has `statements`, which write, and `upkeep`, which keeps it small. A statement
stages one operation (`operations/`) in a `transaction`, which commits it (`commit/`); if other writers committed first,
`conflict/` decides whether it can still commit. `rules/` are the table's rules for new rows. Reading is in `read/`,
with `pruning/` and `predicate/`; `commit_records` lists the commits. `data/` reads and writes data files, `state/`
builds the state of a version from the files of the log, `format/` is what these files hold, and `storage/` is where
they are. `cleanup/` deletes what no retained version needs. `numbered_files` are records of which the newest counts,
for `consumers/` and leases. `errors` is the tree of errors; `presentable` makes text fit for terminals and logs, and
`log_records` lines of a log; `adoption` judges tables of other engines; `system` is the clock, sleep and randomness;
`arrays` names NumPy types. `layers.toml` says which of them may import which, and which are open to other packages.

Names are imported when they are first used: Spark's Python processes load only what they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.log.cleanup.expire import ExpiryReport
    from tidelog.log.cleanup.vacuum import VacuumReport
    from tidelog.log.commit.result import Committed, Superseded
    from tidelog.log.commit_records import CommitRecord
    from tidelog.log.conflict.operation_class import OperationClass
    from tidelog.log.read.changes import Changes
    from tidelog.log.read.debt import Debt
    from tidelog.log.read.scan import Scan
    from tidelog.log.read.snapshot import Snapshot
    from tidelog.log.table import Table
    from tidelog.log.transaction import Transaction

__all__ = [
    "Changes",
    "CommitRecord",
    "Committed",
    "Debt",
    "ExpiryReport",
    "OperationClass",
    "Scan",
    "Snapshot",
    "Superseded",
    "Table",
    "Transaction",
    "VacuumReport",
]

_HOMES = {
    "Changes": "read.changes",
    "CommitRecord": "commit_records",
    "Committed": "commit.result",
    "Debt": "read.debt",
    "ExpiryReport": "cleanup.expire",
    "OperationClass": "conflict.operation_class",
    "Scan": "read.scan",
    "Snapshot": "read.snapshot",
    "Superseded": "commit.result",
    "Table": "table",
    "Transaction": "transaction",
    "VacuumReport": "cleanup.vacuum",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

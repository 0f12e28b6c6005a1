"""A table to drop."""

from __future__ import annotations

from tests.log.support import new_table, numbers
from tidelog.log import Table
from tidelog.log.storage import Store


def old_table(store: Store) -> Table:
    """Five versions, with a checkpoint, deletion vectors and an application's progress."""
    table = new_table(store)
    table.insert(numbers(range(5)), idempotency_key=("app", 7))
    table.delete("n = 1")
    table.checkpoint()
    table.insert(numbers([9]))
    return table

"""Tables with everything that a page can show, and statuses of a daemon."""

from __future__ import annotations

import itertools
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tidelog.compaction_daemon import (
    DaemonStatus,
    DebtSample,
    TableState,
    TableStatus,
    UpkeepError,
    WorkTotals,
    compact,
    stage,
)
from tidelog.compaction_daemon.rewriting.digests import Sums
from tidelog.compaction_daemon.rewriting.refused_rewrites import REFUSED_FOLDER, Refusal, RefusedFile
from tidelog.compaction_daemon.upkeep.due import Chore
from tidelog.log import Debt, Table
from tidelog.log.consumers.claims import claim
from tidelog.log.errors import ConflictError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.system import REAL_SYSTEM

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("price", pa.float64())])
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def busy_table(place: Path | None = None, *, rounds: int = 4) -> Table:
    """A table with inserts, row changes, compactions of both levels, a rebase, a conflict and two consumers."""
    table = Table.create(str(place or f"memory://{uuid.uuid4()}"), SCHEMA, partition_by=["day"])
    claim(table.store, table.head, "billing", owner="stream-1", position=table.version, system=REAL_SYSTEM)
    numbers = itertools.count()
    for number in range(rounds):
        for _ in range(6):
            put_rows(table, next(numbers))
        table.delete(f"id = {number}")
        if number % 2:
            compact(table)
        else:
            rebased(table, number)
    lost(table)
    compact(table, "major")
    claim(table.store, table.refresh().head, "search", owner="stream-2", position=table.version, system=REAL_SYSTEM)
    put_rows(table, next(numbers))
    return table.refresh()


def put_rows(table: Table, number: int, rows: int = 50) -> None:
    ids = list(range(number * rows, (number + 1) * rows))
    table.insert(pa.table({"id": ids, "day": [f"2026-01-0{number % 3 + 1}"] * rows, "price": [1.5] * rows}))


QUERY, OTHER_QUERY = "886b9b76-4f3c-4a56-87f1-ef26a9ec576e", "c0ffee00-4f3c-4a56-87f1-ef26a9ec576e"


def streamed(
    table: Table,
    batch_id: int,
    *,
    query_id: str = QUERY,
    sink: str = "orders",
    rows: int = 40,
    ms: object = 200,
    name: str | None = None,
) -> None:
    """A micro-batch, committed as a sink commits it."""
    values = pa.table({"id": list(range(rows)), "day": ["2026-01-01"] * rows, "price": [1.5] * rows})
    app_id = f"tidelog/{query_id}/{sink}"
    entries = [SetTransaction(app_id, batch_id), SetTransaction(f"{app_id}/offsets", 7_203_685_477_580 + batch_id)]
    record = {"queryId": query_id, "runId": "run", "batchId": batch_id, "sink": sink, "fingerprint": 1, "ms": ms}
    if name is not None:
        record["queryName"] = name
    transaction = table.refresh().begin().insert(values)
    transaction.note(operation="STREAMING UPDATE", transactions=entries, record={"batch": record})
    transaction.commit()


def rebased(table: Table, number: int) -> None:
    """A compaction that another operation overtakes."""
    staged = stage(table)
    Table.open(table.path).delete(f"id = {100 + number}")
    staged.commit()


def lost(table: Table) -> None:
    """An update that loses against another one."""
    table.refresh()
    mine = table.begin().update("id = 60", {"price": "2.5"})
    Table.open(table.path).update("id = 60", {"price": "3.5"})
    with pytest.raises(ConflictError):
        mine.commit(metadata_retry=False)


def refused(table: Table, text: str = "") -> None:
    """The record of a rewrite that the verification refused, with a text in each of its texts."""
    files = (RefusedFile(f"a.parquet{text}", 500), RefusedFile(f"b.parquet{text}", 700, f"vector{text}"))
    record = Refusal(
        time_ms=1_790_000_000_000,
        table_id=table.id,
        version=7,
        partition_values={f"day{text}": f"2026-01-01{text}"},
        cluster_by=(f"id{text}",),
        cluster_order="hilbert",
        inputs=files,
        outputs=(RefusedFile(f"c.parquet{text}", 900),),
        differences=(f"the output has 3 rows instead of 4{text}",),
        read=Sums(4, "aa"),
        written=Sums(3, "cc"),
    )
    table.store.put_if_absent(f"{REFUSED_FOLDER}/{uuid.uuid4()}.json", msgspec.json.encode(record))


NO_VACUUM = UpkeepError(
    Chore.VACUUM, "a.parquet could not be deleted", "TIDELOG_STORE_UNAVAILABLE", NOW, NOW + timedelta(hours=6), False
)


def daemon_status(*tables: TableStatus, **changes: object) -> DaemonStatus:
    values: dict[str, object] = {
        "at": NOW,
        "started": NOW - timedelta(hours=5),
        "owner": "host-a:31:abc",
        "steps": 18_322,
        "last_step": NOW - timedelta(seconds=1),
        "last_step_seconds": 0.25,
        "stalled": False,
        "bytes_last_hour": 300_000_000,
        "bytes_per_hour": 10_000_000_000,
        "tables": tables,
    }
    return DaemonStatus(**{**values, **changes})  # type: ignore[arg-type]


def table_status(path: str, state: TableState = TableState.WATCHED, **changes: object) -> TableStatus:
    """A status with an hour of debt, the same for the same path."""
    chance = random.Random(path)
    small = list(itertools.accumulate(chance.choices([1, 1, 1, -4], k=60), lambda sum_, more: max(0, sum_ + more)))
    samples = tuple(
        DebtSample(
            NOW - timedelta(minutes=59 - minute), 100 + minute, Debt(count + 20, count, count * 100_000, 7, 2, minute)
        )
        for minute, count in enumerate(small)
    )
    values: dict[str, object] = {
        "table_id": "id",
        "version": 160,
        "debt": samples,
        "last_compaction": NOW - timedelta(minutes=chance.randrange(50)),
        "totals": WorkTotals(
            compactions={"minor": 5, "major": 1}, files_removed=40, files_added=6, bytes_read=5_000_000
        ),
    }
    return TableStatus(path, state, NOW - timedelta(minutes=3), **{**values, **changes})  # type: ignore[arg-type]

"""A table whose writer wants to take over the browser of whoever looks at it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa

from tests.compaction_daemon.observing.tables import refused
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.system import REAL_SYSTEM

# Runs if it gets into the page as markup, as a script, as an attribute, as an address or as a template.
MARKUP = (
    "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>\"'><svg onload=window.owned=1>"
    "<!--{{constructor.constructor('window.owned=1')()}}${window.owned=1}&lt;\u202ejavascript:window.owned=1\u2028\x1b[2J"
)
# What a consumer may be called.
PRINTABLE = "".join(filter(str.isprintable, MARKUP))
SECRET = "https://user:hunter2@host/x?X-Amz-Signature=hunter2"


def hostile_table(folder: Path) -> Table:
    """Names of columns, partitions, applications and consumers, texts of commits and conflicts: all of them hostile."""
    path = folder / MARKUP.replace("/", "|").replace(".", ":")
    schema = pa.schema([("id", pa.int64()), (f"column {MARKUP}", pa.string()), (f"part {MARKUP}", pa.string())])
    table = Table.create(
        str(path), schema, partition_by=[schema.names[2]], properties={"delta.checkpointInterval": 100}
    )
    rows = pa.table([pa.array([1]), pa.array([MARKUP]), pa.array([f"value {MARKUP}"])], schema=schema)
    for number in range(4):
        table.insert(rows, idempotency_key=(f"stream {MARKUP}", number))
    compact(table)
    table.insert(rows)
    _commit(table)
    _loss(table)
    refused(table, f" {MARKUP} {SECRET}")
    claim(table.store, table.refresh().head, "consumer", owner=PRINTABLE, position=1, system=REAL_SYSTEM)
    return table


def _commit(table: Table) -> None:
    version = table.refresh().version + 1
    info = {
        "inCommitTimestamp": table.head.timestamp_ms + 1,
        "operation": f"WRITE {MARKUP}",
        "engineInfo": f"engine {MARKUP} {SECRET}",
        "userMetadata": f"user {MARKUP} {SECRET}",
        "tidelog": {"rebase": {"over": [1, 2], "rules": [MARKUP]}},
    }
    table.store.put_if_absent(f"_delta_log/{version:020d}.json", json.dumps({"commitInfo": info}).encode())


def _loss(table: Table) -> None:
    texts = ("policy", "earlier", "later", "operation", "error", "evidence", "loser")
    entry = {"whenMs": 1_700_000_000_000, "baseVersion": 0, "winningVersion": 1, "outcome": "conflict"}
    entry |= {name: f"{name} {MARKUP} {SECRET}" for name in texts}
    name = "_tidelog/conflicts/1700000000000-11111111-2222-3333-4444-555555555555.json"
    table.store.put_if_absent(name, msgspec.json.encode(entry))

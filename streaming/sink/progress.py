"""How far a query has come, for a reader who waits until all of its tables have something."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM, System
from tidelog.streaming.sink.parking import BATCH, QUERY

_PAUSE_S = 0.2


def wait_for(
    checkpoint: str,
    *,
    batch: int | None = None,
    offsets: Mapping[str, Mapping[int, int]] | None = None,
    parked: str | None = None,
    timeout_s: float = 60.0,
    storage_options: Mapping[str, str] | None = None,
    system: System = REAL_SYSTEM,
) -> bool:
    """Wait until all tables of a query have a batch, or all records up to some offsets of Kafka.

    A batch commits to one table after the other, so a reader of two tables can see it in one of them only. Spark
    completes the batch when its function has returned: then every table has it, except those whose records are parked.
    This looks at the files of the checkpoint, and can be called in any process.

    Args:
        checkpoint: The query's `checkpointLocation`: a local path or a URL.
        batch: The number of a batch.
        offsets: For each topic and partition the offset that comes after the last record, as a Kafka client gives the
            end of a partition. A topic that the query reads by two sources counts as far as both have come.
        parked: The table of parked records of the query's `Sinks`: waits for those of these batches, too.
        timeout_s: How long to wait, in seconds. 0 only looks.
        storage_options: Credentials and endpoint of the store of both. They are never logged.
        system: The clock; only tests pass one.

    Returns:
        Whether the tables have it. False if the time is over.

    Raises:
        ConfigurationError: Not exactly one of `batch` and `offsets` was given.

    Example:
        wait_for("/data/_cp", offsets={"shop.public.orders": {0: 1200}}, parked="/data/_parked")
    """
    if (batch is None) == (offsets is None):
        raise ConfigurationError("wait_for needs a batch or offsets", advice="pass one of batch= and offsets=")
    store = open_store(checkpoint, storage_options)
    end_s = system.monotonic_s() + timeout_s
    while True:
        newest = _newest_completed(store)
        is_there = newest is not None and _has(store, newest, batch, offsets)
        if is_there and not _is_parked(store, parked, storage_options, newest if batch is None else batch):
            return True
        if system.monotonic_s() >= end_s:
            return False
        system.sleep_s(_PAUSE_S)


def _newest_completed(store: Store) -> int | None:
    return max((int(name) for name in store.names("commits") if name.isdecimal()), default=None)


def _has(store: Store, newest: int, batch: int | None, offsets: Mapping[str, Mapping[int, int]] | None) -> bool:
    if batch is not None:
        return newest >= batch
    found: dict[tuple[str, str], int] = {}
    for line in store.read(f"offsets/{newest}").decode().splitlines()[2:]:
        try:
            source = json.loads(line[line.index("{") :])
        except ValueError:  # a source that is not Kafka
            continue
        for topic, ends in source.items():
            for partition, end in (ends if isinstance(ends, dict) else {}).items():
                # Of two sources with one topic, the tables have what both have read.
                found[topic, partition] = min(end, found.get((topic, partition), end))
    return all(
        found.get((topic, str(partition)), -1) >= end
        for topic, ends in (offsets or {}).items()
        for partition, end in ends.items()
    )


def _is_parked(store: Store, path: str | None, storage_options: Mapping[str, str] | None, batch: int | None) -> bool:
    if path is None:
        return False
    try:
        table = Table.open(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    query = json.loads(store.read("metadata"))["id"]
    return any(
        rows.num_rows for rows in table.scan(f"{QUERY} = '{query}' AND {BATCH} <= {batch}", [BATCH]).to_batches()
    )

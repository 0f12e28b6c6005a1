"""Record what the real Debezium sends for the SQL files beside this one, and what the database holds in the end.

    python -m tests.capture.record

It writes the folder `recorded/`. `types.json` is the database after `types_before.sql` and `types_after.sql`, and each
of its configurations of Debezium has a file of JSON lines: topic, partition, offset, timestamp, key, value and headers
of each record; key, value and headers are the exact bytes, as text. The same for `hand_over`. It needs PostgreSQL.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from kafka import KafkaConsumer, TopicPartition

from examples.cdc.connector import Connector
from examples.cdc.postgres import Postgres, postgres
from examples.kafka.broker import broker

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
# Name of the recording: whether with the JSON schema, and Debezium's options.
CONFIGURATIONS: dict[str, tuple[bool, dict[str, str]]] = {
    "precise": (True, {"decimal.handling.mode": "precise"}),
    "precise-plain": (False, {"decimal.handling.mode": "precise"}),
    "string": (True, {"decimal.handling.mode": "string"}),
    "string-plain": (False, {"decimal.handling.mode": "string"}),
    "double": (True, {"decimal.handling.mode": "double"}),
    "double-plain": (False, {"decimal.handling.mode": "double"}),
    "connect-times": (True, {"decimal.handling.mode": "string", "time.precision.mode": "connect"}),
}
# One connector alone: the first changes after its snapshot have the same log position as the snapshot's rows.
HAND_OVER: dict[str, tuple[bool, dict[str, str]]] = {"hand-over": (True, {})}
_OPTIONS = {
    "provide.transaction.metadata": "true",
    "heartbeat.interval.ms": "1000",
    "skipped.operations": "none",  # by default it skips TRUNCATE
    "hstore.handling.mode": "map",
}
_HEARTBEATS = 3
_WAIT_S = 120.0


def statements(name: str) -> Iterator[str]:
    """The statements of a file, of which each ends with a semicolon at the end of a line."""
    text = "\n".join(line for line in (HERE / name).read_text().splitlines() if not line.startswith("--"))
    yield from (each.strip() for each in text.split(";\n") if each.strip(";\n "))


def main() -> None:
    RECORDED.mkdir(exist_ok=True)
    _run("hand_over", HAND_OVER, during_snapshot=True)
    positions: dict[bool, set[int]] = {True: set(), False: set()}
    for record in recorded("hand-over"):
        payload = json.loads(record["value"] or '{"payload": {}}')["payload"]
        if "op" in payload:
            positions[payload["op"] == "r"].add(payload["source"]["lsn"])
    assert positions[True] & positions[False], "the snapshot ended before the first change; record again"
    _run("types", CONFIGURATIONS)


def recorded(name: str) -> list[dict[str, Any]]:
    """The records of a recording, topic by topic."""
    with gzip.open(RECORDED / f"{name}.jsonl.gz") as file:
        return [json.loads(line) for line in file]


def _run(
    what: str, configurations: Mapping[str, tuple[bool, dict[str, str]]], *, during_snapshot: bool = False
) -> None:
    """Record what one connector for each configuration sends for the same database.

    The changes begin when all connectors stream, or while the snapshot is read.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        database = stack.enter_context(postgres(root / "postgres"))
        running = stack.enter_context(broker(root / "broker"))
        with database.connect() as connection:
            for statement in statements(f"{what}_before.sql"):
                connection.execute(statement)
        for name, (with_schema, options) in configurations.items():
            made = Connector(
                root / "connectors",
                running.address,
                database,
                prefix=name,
                name=name,
                with_schema=with_schema,
                options={**_OPTIONS, **options},
            )
            stack.callback(made.end)
            made.start()
        if not during_snapshot:
            _wait_for_topics(running.address, {f"__debezium-heartbeat.{name}" for name in configurations})
        with database.connect() as connection:
            if during_snapshot:
                _wait_for_slot(connection)
            for statement in statements(f"{what}_after.sql"):
                connection.execute(statement)
        for name in configurations:
            records = _read(running.address, name)
            with gzip.GzipFile(RECORDED / f"{name}.jsonl.gz", "wb", mtime=0) as file:
                file.writelines(json.dumps(each).encode() + b"\n" for each in records)
            print(f"{name}: {len(records)} records")
        tables = [f"{json.dumps(table)}: {json.dumps(rows)}" for table, rows in _contents(database).items()]
        (RECORDED / f"{what}.json").write_text("{" + ",\n".join(tables) + "}\n")


def _wait_for_slot(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Until the connector has made its replication slot: the snapshot begins there."""
    deadline_s = time.monotonic() + _WAIT_S
    made = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL"
    while not connection.execute(made).fetchall():
        assert time.monotonic() < deadline_s, "no replication slot"


def _wait_for_topics(address: str, wanted: Collection[str]) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    consumer = KafkaConsumer(bootstrap_servers=address)
    try:
        while not set(wanted) <= consumer.topics():
            assert time.monotonic() < deadline_s, f"missing: {set(wanted) - consumer.topics()}"
            time.sleep(0.2)
    finally:
        consumer.close()


def _read(address: str, name: str) -> list[dict[str, Any]]:
    """All records of a connector, topic by topic, up to the last change."""
    _wait_for_topics(address, {f"{name}.public.done"})
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest")
    try:
        deadline_s = time.monotonic() + _WAIT_S
        time.sleep(3.0)  # for the end of its transaction, which is a record as well
        heartbeats = f"__debezium-heartbeat.{name}"
        topics = [each for each in consumer.topics() if each == heartbeats or each.startswith(f"{name}.")]
        places = [TopicPartition(topic, 0) for topic in sorted(topics)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        records: list[dict[str, Any]] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < deadline_s, f"{name}: not all records could be read"
            for batch in consumer.poll(timeout_ms=200).values():
                records += [_record(each) for each in batch]
    finally:
        consumer.close()
    kept = [each for each in records if not each["topic"].startswith("__") or each["offset"] < _HEARTBEATS]
    return sorted(kept, key=lambda each: (each["topic"], each["partition"], each["offset"]))


def _record(record: Any) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.decode(),
        "value": None if record.value is None else record.value.decode(),
        "headers": [[key, value.decode()] for key, value in record.headers],
    }


def _contents(database: Postgres) -> dict[str, Any]:
    """Each table's columns with PostgreSQL's own names of their types, its primary key, and its rows as text.

    An array is a list of the texts of its elements.
    """
    tables = {}
    with database.connect() as connection:
        connection.execute("SET extra_float_digits = 1; SET lc_monetary = 'C'; SET intervalstyle = 'iso_8601'")
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
        for (name,) in names:
            quoted = '"' + name + '"'
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attndims FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                [quoted],
            ).fetchall()
            key = connection.execute(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
                "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY a.attnum",
                [quoted],
            ).fetchall()
            texts = ", ".join(
                f'to_json("{column}"::text[])' if dimensions else f'"{column}"::text'
                for column, _, _, dimensions in columns
            )
            rows = connection.execute(f"SELECT {texts} FROM {quoted}".encode())
            tables[name] = {
                "columns": [
                    {"name": column, "type": kind, "not_null": required} for column, kind, required, _ in columns
                ],
                "key": [column for (column,) in key],
                "rows": sorted((list(row) for row in rows), key=str),
            }
    return tables


if __name__ == "__main__":
    main()

"""Tables from somebody who wants to write to the terminal of whoever looks at them.

Run as a program, it runs every command on such tables: `python -m tests.cli.hostile FOLDER [OPTION...]`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.support import START_MS
from tidelog import cli
from tidelog.cli import spinner

# Clear the screen, set the title, ring, colour by a C1 control, reverse the direction, isolate, next line, return.
NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\x85\u2028\r."
NAME = f"column{NASTY}"
PART = f"part{NASTY}"
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": NAME, "type": "string", "nullable": True, "metadata": {"comment": NASTY}},
        {
            "name": "inner",
            "type": {"type": "struct", "fields": [{"name": NAME, "type": "long", "nullable": True, "metadata": {}}]},
            "nullable": True,
            "metadata": {},
        },
        {"name": PART, "type": "string", "nullable": True, "metadata": {}},
    ],
}
_FEATURES = ["appendOnly", "deletionVectors", "inCommitTimestamp", "invariants"]
_PROTOCOL: dict[str, Any] = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": _FEATURES,
}


def make_table(folder: Path, *, features: tuple[str, ...] = (), missing_file: bool = False, files: int = 2) -> Path:
    """A table in which every text that its writer could choose is hostile; at a hostile path."""
    path = folder / f"table{NASTY}"
    (path / "_delta_log").mkdir(parents=True)
    protocol = {**_PROTOCOL, "writerFeatures": [*_FEATURES, *features]}
    metadata = {
        "id": f"id{NASTY}",
        "name": NASTY,
        "description": NASTY,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [PART],
        "configuration": {
            f"key{NASTY}": f"value{NASTY}",
            "proxy": "https://user:hunter2@proxy",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
        },
    }
    _commit(path, 0, {"protocol": protocol}, {"metaData": metadata})
    adds = [_add(path, number, write=not missing_file) for number in range(files)]
    transaction = {"appId": f"app{NASTY}", "version": 1, "lastUpdated": START_MS}
    _commit(path, 1, {"txn": transaction}, *adds)
    _lost_race(path)
    _consumer(path)
    unneeded = path / f"unneeded{NASTY}.parquet"
    unneeded.touch()
    os.utime(unneeded, (0, 0))
    return path


def _commit(path: Path, version: int, *actions: dict[str, Any]) -> None:
    info = {
        "inCommitTimestamp": START_MS + version,
        "timestamp": START_MS + version,
        "operation": f"WRITE{NASTY}",
        "engineInfo": f"engine{NASTY}",
        "userMetadata": f"user{NASTY}",
        "txnId": f"txn{NASTY}",
        "operationParameters": {NASTY: NASTY},
        "operationMetrics": {f"metric{NASTY}": NASTY, "numOutputRows": NASTY},
    }
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
    (path / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))


def _add(path: Path, number: int, *, write: bool) -> dict[str, Any]:
    name = f"file{NASTY}{number}.parquet"
    inner = pa.struct([(NAME, pa.int64())])
    rows = pa.table({NAME: [NASTY], "inner": pa.array([{NAME: number}], inner)})
    if write:
        pq.write_table(rows, path / name)
    size = (path / name).stat().st_size if write else 100
    bound = {NAME: NASTY}
    return {
        "add": {
            "path": quote(name),
            "partitionValues": {PART: f"value{NASTY}"},
            "size": size,
            "modificationTime": START_MS,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1, "minValues": bound, "maxValues": bound, "nullCount": {NAME: 0}}),
            "tags": {NASTY: NASTY},
        }
    }


def _lost_race(path: Path) -> None:
    names = ("policy", "earlier", "later", "operation", "error", "evidence", "loser")
    entry = {"whenMs": START_MS, "baseVersion": 0, "winningVersion": 1, "outcome": "conflict"}
    ledger = path / "_tidelog" / "conflicts"
    ledger.mkdir(parents=True)
    name = f"{START_MS:013d}-11111111-2222-3333-4444-555555555555.json"
    (ledger / name).write_text(json.dumps({**entry, **{name: f"{name}{NASTY}" for name in names}}))


def _consumer(path: Path) -> None:
    record = {
        "format": 1,
        "id": NASTY,
        "table": f"id{NASTY}",
        "name": "c",
        "state": "registered",
        "owner": NASTY,
        "confirmed": True,
        "started": True,
        "position": 1,
        "positionTime": None,
        "heartbeat": "2026-01-31T12:00:00Z",
    }
    folder = path / "_tidelog" / "consumers" / "c"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.json").write_text(json.dumps(record))


def commands(folder: Path) -> Iterator[list[str]]:
    """Each command with what makes it print as much as it can, and ways in which it fails."""
    table = str(make_table(folder / "good"))
    for name in ("adopt", "describe", "history", "scan", "changes", "conflicts", "plan"):
        yield [name, table]
    yield ["doctor", table, "--writers", "2", "--rounds", "1"]
    for name in ("scan", "changes"):
        yield [name, table, "--format", "csv"]
        yield [name, table, "--where", f"`{NAME}` = "]
        yield [name, table, "--where", f"{NASTY} = 1"]
        yield [name, table, "--columns", NASTY]
    yield ["changes", table, "--mode", NASTY]
    yield ["changes", table, "--mode", "net"]
    yield ["plan", table, "--level", "major", "--purge", "--cluster-by", NAME]
    yield ["plan", table, "--level", NASTY]
    yield ["plan", table, "--where", f"`{PART}` > 'a'"]
    yield ["report", table, "-o", str(folder / f"report{NASTY}.html")]
    yield ["report", table, "--json"]
    yield ["status", table]
    yield ["consumers", "list", table]
    yield ["consumers", NASTY, table]
    yield ["consumers", "remove", table, NASTY]
    yield ["consumers", "reset", table, "c", "--to", NASTY]
    yield ["changes", table, "--follow", "--consumer", NASTY]
    yield ["changes", table, "--follow", "--consumer", "c"]
    yield ["vacuum", table, "--dry-run"]
    yield ["expire", table, "--dry-run", "--older-than", "0d"]
    yield ["expire", table]
    yield ["vacuum", table]
    yield ["compact", table, "--level", "major", "--cluster-by", NAME]
    yield ["compact", table, "--where", NASTY]
    yield ["daemon", table, "--once"]
    yield ["add-columns", table, f"`new{NASTY}` bigint"]
    yield ["add-columns", table, f"new {NASTY}"]
    yield ["set-properties", table, f"user{NASTY}=value{NASTY}"]
    yield ["set-properties", table, f"tidelog.{NASTY}=1"]
    yield ["set-properties", table, "--unset", f"key{NASTY}"]
    yield ["restore", table, "--version", "1"]
    yield ["restore", table, "--timestamp", NASTY]
    yield ["create", table, "--schema", f"`{NAME}` bigint"]
    yield ["create", f"{table}-other", "--schema", f"`{NAME}` bigint", "--property", f"user{NASTY}=value{NASTY}"]
    yield ["create", f"{table}-third", "--schema", f"{NASTY} bigint"]
    yield ["drop", table]
    yield ["drop", table, "--yes"]
    for path in _broken(folder).values():
        for command in ("adopt", "describe", "scan", "vacuum", "expire", "history", "changes", "plan"):
            yield [command, str(path)]
        yield ["compact", str(path), "--level", "major", "--cluster-by", NAME]
        yield ["daemon", str(path), "--once"]
    yield from ([NASTY], ["scan"], ["scan", NASTY, NASTY], ["scan", f"--{NASTY}"], ["scan", "t", "--limit", NASTY])
    yield ["scan", f"s3://key:hunter2@{NASTY}/t"]
    yield ["scan", "t", "https://key:hunter2@host/t"]
    yield ["describe", "https://key:hunter2@host/t"]


def _broken(folder: Path) -> dict[str, Path]:
    found = {
        "absent": folder / f"absent{NASTY}",
        "missing": make_table(folder / "missing", missing_file=True),
        "features": make_table(folder / "features", features=(f"feature{NASTY}",)),
        "unreadable": make_table(folder / "unreadable"),
        "wrong types": make_table(folder / "types"),
    }
    log = found["unreadable"] / "_delta_log"
    (log / f"{2:020d}.json").write_text(f'{{"add":{{"{NASTY}')
    log = found["wrong types"] / "_delta_log"
    (log / f"{2:020d}.json").write_text(json.dumps({"txn": {"appId": {NASTY: NASTY}, "version": 1}}))
    return found


def main() -> None:
    """Run all commands, each with the options from the command line, as the program would."""
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    spinner.DELAY_S = 600
    for arguments in commands(folder):
        if options and "--format" in arguments:
            continue
        sys.argv = ["tidelog", *arguments, *(options if Path(arguments[-1]).is_absolute() else [])]
        try:
            cli.main()
        except SystemExit as ended:
            sys.stdout.write(f"exit code {ended.code} of {arguments[0]!a}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

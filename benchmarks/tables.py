"""Synthetic tables, made once per machine and cached. Most are only logs, without the data files that these name.

An engine is imported only when it is used: a process that measures one must not load the others.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

CACHE = Path.home() / ".cache" / "tidelog-benchmarks"
# Part of each table's name. Raise it when this module writes other tables.
FORMAT = 5
START_MS = 1_700_000_000_000
# The time between two commits of a long log, and the number of commits after its checkpoint.
SPACING_MS = 1000
TAIL = 10
# No table has files with numbers from here on when it is made.
_BEYOND = 10**9

# The files that exist of a table of many, and the rows of each.
_REAL_FILES, _REAL_ROWS = 10, 20_000
_STATEMENT_FILES = 16

_FIELDS = (("id", "long"), ("ts", "timestamp"), ("v", "double"), ("name", "string"), ("p", "string"))
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _FIELDS],
    }
)


def many_files(files: int, commits: int) -> Path:
    """A table with protocol (1, 2) and `files` live files, added by `commits` JSON commits; no checkpoint."""
    return _cached(f"files-{files}-{commits}", lambda path: _write_many_files(path, files, commits))


def many_partitions(files: int, partitions: int) -> Path:
    """A table of small files in so many partitions, in one commit, with a checkpoint."""

    def make(path: Path) -> None:
        _put(path, 0, _first_commit({}, None))
        lines = ({"add": add_values(number, partitions) | {"stats": stats_text(number)}} for number in range(files))
        texts = (json.dumps(line, separators=(",", ":")) for line in [_info(1, None), *lines])
        _put(path, 1, "".join(f"{text}\n" for text in texts))
        _checkpoint(path)

    return _cached(f"files-{files}-partitions-{partitions}", make)


def one_real_partition(files: int, partitions: int) -> Path:
    """The table of `many_partitions`, in which tidelog wrote ten more files, the only real ones, in a partition `real`.

    They are larger than the others, so that Spark reads them first. There is a checkpoint of the newest version.
    """

    def make(path: Path) -> None:
        import numpy as np
        import pyarrow as pa

        from tidelog.log import Table

        clone(many_partitions(files, partitions), path)
        table, randomness = Table.open(str(path)), np.random.default_rng(1)
        for number in range(_REAL_FILES):
            ids = pa.array(np.arange(number * _REAL_ROWS, (number + 1) * _REAL_ROWS))
            times = pa.array(np.full(_REAL_ROWS, START_MS * 1000)).cast(pa.timestamp("us", "UTC"))
            names, real = pa.array(["name"] * _REAL_ROWS), pa.array(["real"] * _REAL_ROWS)
            columns = [ids, times, pa.array(randomness.random(_REAL_ROWS)), names, real]
            table.insert(pa.table(columns, names=[name for name, _ in _FIELDS]))
        _checkpoint(path)

    return _cached(f"files-{files}-partitions-{partitions}-real", make)


def checkpointed(files: int, commits: int, writer: str) -> Path:
    """The same table with a classic checkpoint of its newest version, written by `writer`."""

    def make(path: Path) -> None:
        clone(many_files(files, commits), path)
        if writer == "tidelog":
            _checkpoint(path)
        else:
            from deltalake import DeltaTable

            DeltaTable(str(path)).create_checkpoint()

    return _cached(f"files-{files}-{commits}-checkpoint-{writer}", make)


def long_log(commits: int, *, in_commit_timestamps: bool, checkpoint: bool) -> Path:
    """A table of `commits` commits, one second apart and of one file each.

    The checkpoint is TAIL commits before the end.
    With in-commit timestamps it looks as if tidelog wrote it, with a checksum for each commit. Without, it looks like
    deltalake's, and the commit times are the modification times of the files.
    """
    # Without in-commit timestamps, a checkpoint holds anchors.
    ending = ("-checkpoint" if in_commit_timestamps else "-checkpoint-anchors") if checkpoint else ""
    name = f"long-{commits}{'-ict' * in_commit_timestamps}{ending}"
    return _cached(name, lambda path: _write_long_log(path, commits, in_commit_timestamps, checkpoint))


def with_rows(rows: int, files: int, kind: str) -> Path:
    """A table with data files, written by tidelog. `kind` is `numbers`, `text`, or `deleted`: with deletion vectors."""
    return _cached(f"rows-{rows}-{files}-{kind}", lambda path: _write_rows(path, rows, files, kind))


# The rows of each file of `keyed`.
KEYED_FILE_ROWS = 1_000_000


def keyed(rows: int) -> Path:
    """A table with the primary key `id` in random order, and an index of it, whose runs are merged."""

    def make(path: Path) -> None:
        from tidelog.log import Table
        from tidelog.log.cleanup.pieces import finished
        from tidelog.log.operations.tend_index import tend_index
        from tidelog.log.state.loader import load
        from tidelog.log.system import REAL_SYSTEM

        shutil.rmtree(path)  # `Table.create` makes it
        write_keyed(path, rows, max(1, rows // KEYED_FILE_ROWS), is_indexed=True)
        table = Table.open(str(path))
        finished(tend_index(table.store, load(table.store), REAL_SYSTEM))

    return _cached(f"keyed-{rows}", make)


def keyed_in_runs(rows: int, runs: int) -> Path:
    """The same in so many inserts, of which each has its own run of the index: nobody merged them."""

    def make(path: Path) -> None:
        shutil.rmtree(path)  # `Table.create` makes it
        write_keyed(path, rows, runs, is_indexed=True)

    return _cached(f"keyed-{rows}-runs-{runs}", make)


def keyed_for_peers(rows: int) -> Path:
    """The same rows in a table of the protocol (1, 2), into which every engine can merge."""
    older = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}

    def make(path: Path) -> None:
        shutil.rmtree(path)  # `Table.create` makes it
        write_keyed(path, rows, max(1, rows // KEYED_FILE_ROWS), is_indexed=False, properties=older)

    return _cached(f"keyed-{rows}-peers", make)


def write_keyed(
    path: Path, rows: int, files: int, *, is_indexed: bool, properties: Mapping[str, object] | None = None
) -> None:
    """Write the table of `keyed`, in so many inserts, with an index or without."""
    import numpy as np
    import pyarrow as pa

    from tidelog.log import Table

    randomness = np.random.default_rng(1)
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("k", pa.int64())])
    own = {"tidelog.primaryKey": "id", "tidelog.keyIndex": is_indexed, **(properties or {})}
    table = Table.create(str(path), schema, properties=own)
    for ids in np.array_split(randomness.permutation(rows), files):
        values = {"id": ids, "v": randomness.random(len(ids)), "k": randomness.integers(0, 1000, len(ids))}
        table.insert(pa.table(values))


def for_statements(rows: int) -> Path:
    """A table that both tidelog and delta-spark can change, with deletion vectors and 16 files in the order of `id`."""

    def make(path: Path) -> None:
        import numpy as np
        import pyarrow as pa

        from tidelog.log import Table

        shutil.rmtree(path)  # `Table.create` makes it
        kinds = {"id": pa.int64(), "k": pa.int32(), "v": pa.float64(), "name": pa.string(), "day": pa.date32()}
        table = Table.create(str(path), pa.schema(list(kinds.items())))
        for ids in np.array_split(np.arange(rows), _STATEMENT_FILES):
            names = pa.array([f"row {hashlib.md5(str(number).encode()).hexdigest()}" for number in ids])
            days = pa.array((19_723 + ids % 365).astype("int32")).cast(pa.date32())
            columns = [pa.array(ids), pa.array((ids % 1000).astype("int32")), pa.array(ids * 1.5), names, days]
            table.insert(pa.table(columns, names=list(kinds)))

    return _cached(f"statements-{rows}", make)


def small_files(rows: int, files: int) -> Path:
    """A table of small files in one partition, which deltalake wrote, so that each engine can compact it.

    Its columns are a sequence, an integer below 1000, a random double, and one of 10,000 names.
    """
    return _cached(f"small-{rows}-{files}", lambda path: _write_small_files(path, rows, files))


def large_group(files: int, rows: int) -> Path:
    """A table whose files, of `rows` rows each, tidelog wrote: about 100 bytes on disk for each row.

    Its columns are two random integers, a time, a random double, one of 1,000 names, and a random text.
    """
    return _cached(f"large-{files}-{rows}", lambda path: _write_large_group(path, files, rows))


def idle_tables(count: int) -> Path:
    """A folder of tables with one file each."""
    return _cached(f"idle-{count}", lambda path: _write_idle_tables(path, count))


def clone(source: Path, target: Path) -> Path:
    """A writable copy of a table, made of hard links: no writer changes a file in place."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)
    return target


def append_commit(table: Path, version: int) -> None:
    """Add one commit of one new file, as another writer would."""
    number = _BEYOND + version
    (table / "_delta_log" / f"{version:020d}.json").write_text(_commit(version, None, range(number, number + 1)))


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}-f{FORMAT}"
    if path.is_dir():
        return path
    partial = path.with_name(f"{path.name}.partial")
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            (partial / "_delta_log").mkdir(parents=True)
            make(partial)
            partial.rename(path)
    return path


def _write_many_files(path: Path, files: int, commits: int) -> None:
    _put(path, 0, _first_commit({}, None))
    for version in range(1, commits + 1):
        numbers = range(files * (version - 1) // commits, files * version // commits)
        _put(path, version, _commit(version, None, numbers))


def _write_long_log(path: Path, commits: int, in_commit_timestamps: bool, checkpoint: bool) -> None:  # noqa: FBT001
    properties = {"delta.checkpointInterval": "1000000"}
    if in_commit_timestamps:
        properties |= {"delta.enableInCommitTimestamps": "true"}
    total = 0
    for version in range(commits + 1):
        stamp = START_MS + version * SPACING_MS if in_commit_timestamps else None
        text = _commit(version, stamp, range(version, version + 1)) if version else _first_commit(properties, stamp)
        _put(path, version, text)
        total += _size(version) if version else 0
        if in_commit_timestamps:
            _put_checksum(path, version, total, properties)
        if checkpoint and version == commits - TAIL:
            _checkpoint(path)


def _write_rows(path: Path, rows: int, files: int, kind: str) -> None:
    import numpy as np

    from tidelog.log import Table

    shutil.rmtree(path)  # `Table.create` makes it
    randomness = np.random.default_rng(1)
    table: Table | None = None
    for number in range(files):
        ids = np.arange(rows * number // files, rows * (number + 1) // files)
        data = _rows(ids, randomness, text=kind == "text")
        table = table or Table.create(str(path), data.schema)
        table.insert(data)
    assert table is not None
    if kind == "deleted":
        table.delete("k IN (3, 500, 999)")


def _rows(ids: Any, randomness: Any, *, text: bool) -> Any:
    import numpy as np
    import pyarrow as pa

    columns: dict[str, Any] = {
        "id": ids,
        "k": randomness.integers(0, 1000, len(ids)),
        "v": randomness.random(len(ids)),
    }
    if text:
        columns["name"] = np.char.add("name-", randomness.integers(0, 10_000, len(ids)).astype(str))
    return pa.table(columns)


def _write_small_files(path: Path, rows: int, files: int) -> None:
    import numpy as np
    from deltalake import write_deltalake

    shutil.rmtree(path)
    randomness = np.random.default_rng(1)
    for number in range(files):
        ids = np.arange(rows * number // files, rows * (number + 1) // files)
        write_deltalake(path, _rows(ids, randomness, text=True), mode="append")


def _checkpoint(path: Path) -> None:
    from tidelog.log import Table

    Table.open(str(path)).checkpoint()


def _write_large_group(path: Path, files: int, rows: int) -> None:
    from tidelog.log import Table

    (path / "_delta_log").rmdir()
    table = Table.create(str(path), _large_rows(0, 0).schema)
    for number in range(files):
        table.insert(_large_rows(number, rows))


def _write_idle_tables(path: Path, count: int) -> None:
    import pyarrow as pa

    from tidelog.log import Table

    shutil.rmtree(path)
    rows = pa.table({"number": list(range(100))})
    for number in range(count):
        Table.create(str(path / f"table-{number:04}"), rows.schema).insert(rows)


def _large_rows(number: int, rows: int) -> Any:  # an Arrow table
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(number)
    names = pa.array([f"device-{name:04}" for name in range(1000)])
    digits = chance.integers(0, 16, rows * 64)
    text = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[digits]
    ends = np.arange(rows + 1, dtype=np.int32) * 64
    times = START_MS * 1000 + number * rows * 1000 + np.sort(chance.integers(0, rows * 1000, rows))
    return pa.table(
        {
            "x": chance.integers(0, 2**62, rows),
            "y": chance.integers(0, 2**62, rows),
            "time": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "value": chance.normal(size=rows),
            "name": names.take(pa.array(chance.integers(0, 1000, rows))),
            "text": pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text)),
        }
    )


def _put(path: Path, version: int, text: str) -> None:
    file = path / "_delta_log" / f"{version:020d}.json"
    file.write_text(text)
    os.utime(file, ns=((START_MS + version * SPACING_MS) * 1_000_000,) * 2)


def _put_checksum(path: Path, version: int, total_bytes: int, properties: dict[str, str]) -> None:
    content = {
        "tableSizeBytes": total_bytes,
        "numFiles": version,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": _metadata(properties),
        "protocol": _protocol(properties),
        "inCommitTimestampOpt": START_MS + version * SPACING_MS,
        "setTransactions": [],
        "domainMetadata": [],
    }
    (path / "_delta_log" / f"{version:020d}.crc").write_text(json.dumps(content))


def _first_commit(properties: dict[str, str], stamp: int | None) -> str:
    actions = [_info(0, stamp), {"protocol": _protocol(properties)}, {"metaData": _metadata(properties)}]
    return "".join(json.dumps(action) + "\n" for action in actions)


def _commit(version: int, stamp: int | None, numbers: range) -> str:
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in _lines(version, stamp, numbers))


def _lines(version: int, stamp: int | None, numbers: range) -> Iterator[dict[str, Any]]:
    yield _info(version, stamp)
    for number in numbers:
        yield {"add": add_values(number) | {"stats": stats_text(number)}}


def _info(version: int, stamp: int | None) -> dict[str, Any]:
    info = {
        "timestamp": START_MS + version * SPACING_MS,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
    }
    return {"commitInfo": info if stamp is None else {"inCommitTimestamp": stamp, **info}}


def _protocol(properties: dict[str, str]) -> dict[str, Any]:
    if "delta.enableInCommitTimestamps" in properties:
        features = ["appendOnly", "inCommitTimestamp", "invariants"]
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    return {"minReaderVersion": 1, "minWriterVersion": 2}


def _metadata(properties: dict[str, str]) -> dict[str, Any]:
    return {
        "id": "5f0c8a52-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _SCHEMA,
        "partitionColumns": ["p"],
        "configuration": properties,
        "createdTime": START_MS,
    }


def add_values(number: int, partitions: int = 10) -> dict[str, Any]:
    """An add action without its statistics. Its data file does not exist."""
    # Seeded, so that all machines measure the same table. Random, because a counter would compress too well.
    unique = uuid.UUID(int=random.Random(number).getrandbits(128), version=4)
    return {
        "path": f"p={number % partitions}/part-{number % 10_000:05d}-{unique}-c000.snappy.parquet",
        "partitionValues": {"p": str(number % partitions)},
        "size": _size(number),
        "modificationTime": START_MS + number,
        "dataChange": True,
    }


def _size(number: int) -> int:
    return 100_000 + number % 1000


def stats_text(number: int) -> str:
    """The statistics of the file with this number."""
    first = number * 1000
    content = {
        "numRecords": 1000,
        "minValues": {"id": first, "ts": "2024-01-01T00:00:00.000Z", "v": 0.25, "name": f"aaaa{number}"},
        "maxValues": {"id": first + 999, "ts": "2024-01-01T01:00:00.000Z", "v": 99.5, "name": f"zzzz{number}"},
        "nullCount": {"id": 0, "ts": 0, "v": 0, "name": 0},
    }
    return json.dumps(content, separators=(",", ":"))

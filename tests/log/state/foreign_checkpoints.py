"""Checkpoints as other writers leave them: multi-part, and V2 with or without sidecars, as parquet or JSON."""

from __future__ import annotations

import io
import itertools
import json
import uuid
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.log.support import START_MS
from tidelog.log.format import filenames
from tidelog.log.state import checkpoint_writer
from tidelog.log.state.loader import load
from tidelog.log.storage import Store


def classic_rows(store: Store, version: int) -> pa.Table:
    """The rows of tidelog's own checkpoint of `version`, which is deleted again."""
    state = load(store, version)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    content = store.read(filenames.checkpoint_path(version))
    store.delete(filenames.checkpoint_path(version))
    store.delete(filenames.LAST_CHECKPOINT)
    return pq.read_table(io.BytesIO(content))


def parquet(rows: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    return buffer.getvalue()


def put_parts(store: Store, version: int, parts: int, *, without: Collection[int] = ()) -> None:
    """A multi-part checkpoint, of which the parts `without` (from 1) are missing."""
    for part, rows in enumerate(_divided(classic_rows(store, version), parts), start=1):
        if part not in without:
            store.put_if_absent(f"_delta_log/{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet", parquet(rows))


def put_v2_parquet(store: Store, version: int, name: str) -> None:
    file_rows, others = split(classic_rows(store, version))
    sidecars = [{"sidecar": entry} for entry in _put_sidecars(store, file_rows)]
    extra = pa.Table.from_pylist([*sidecars, {"checkpointMetadata": {"version": version}}])
    store.put_if_absent(f"_delta_log/{name}", parquet(pa.concat_tables([others, extra], promote_options="default")))


def put_v2_json(store: Store, version: int, name: str) -> None:
    file_rows, others = split(classic_rows(store, version))
    lines = json_lines(others)
    lines += [{"sidecar": entry} for entry in _put_sidecars(store, file_rows)]
    lines.append({"checkpointMetadata": {"version": version}})
    store.put_if_absent(f"_delta_log/{name}", _encoded(lines))


def put_v2_json_without_sidecars(store: Store, version: int, name: str) -> None:
    store.put_if_absent(f"_delta_log/{name}", _encoded(json_lines(classic_rows(store, version))))


_UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
KINDS: dict[str, Callable[[Store, int], None]] = {
    "one part": lambda store, version: put_parts(store, version, 1),
    "three parts": lambda store, version: put_parts(store, version, 3),
    "v2 parquet": lambda store, version: put_v2_parquet(store, version, f"{version:020d}.checkpoint.{_UUID}.parquet"),
    "v2 parquet with a classic name": lambda store, version: put_v2_parquet(
        store, version, f"{version:020d}.checkpoint.parquet"
    ),
    "v2 json": lambda store, version: put_v2_json(store, version, f"{version:020d}.checkpoint.{_UUID}.json"),
    "v2 json without sidecars": lambda store, version: put_v2_json_without_sidecars(
        store, version, f"{version:020d}.checkpoint.{_UUID}.json"
    ),
}


def _divided(rows: pa.Table, parts: int) -> list[pa.Table]:
    """The rows in `parts` consecutive tables of about the same length."""
    edges = [rows.num_rows * part // parts for part in range(parts + 1)]
    return [rows.slice(start, end - start) for start, end in itertools.pairwise(edges)]


def split(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The file actions, and all other actions."""
    pairs = rows.select(["add", "remove"]).to_pylist()
    is_file = pa.array([row["add"] is not None or row["remove"] is not None for row in pairs])
    return rows.filter(is_file), rows.filter(pc.invert(is_file)).drop_columns(["add", "remove"])


def _put_sidecars(store: Store, rows: pa.Table) -> list[dict[str, Any]]:
    """Write the file actions to two sidecars; returns the actions that refer to them."""
    entries = []
    for half in _divided(rows, 2):
        name, content = f"{uuid.uuid4()}.parquet", parquet(half.select(["add", "remove"]))
        store.put_if_absent(f"_delta_log/_sidecars/{name}", content)
        entries.append({"path": name, "sizeInBytes": len(content), "modificationTime": START_MS})
    return entries


def json_lines(rows: pa.Table) -> list[dict[str, Any]]:
    """Each row as a JSON action."""
    lines = []
    for row in rows.to_pylist():
        ((name, action),) = ((name, action) for name, action in row.items() if action is not None)
        lines.append({name: _plain(action)})
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_key(key, inner) for key, inner in value.items() if inner is not None}
    return value


def _plain_key(key: str, value: Any) -> Any:
    """Arrow returns a map as a list of pairs."""
    is_map = key in ("partitionValues", "tags", "configuration", "options") and isinstance(value, list)
    return dict(value) if is_map else _plain(value)


def _encoded(lines: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines)

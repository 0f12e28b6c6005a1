"""An independent, simple reader: actions from the JSON, dead rows from the bytes of vectors, rows from the files.

It follows each row through the recorded lineage back to the address at which it was inserted. It uses none of tidelog's
code, so a fault goes unnoticed only if both are wrong in the same way.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
from base64 import b85decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests.log.oracle.model import Address, Moment, Row, Tombstone, Tombstones

Line: TypeAlias = dict[str, Any]
Stored: TypeAlias = Mapping[str, tuple[bytes, int]]
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)
_UUID_CHARACTERS = 20


class BrokenLogError(AssertionError):
    """The log, or a file that it names, does not follow the protocol."""


class LiveFile(NamedTuple):
    """A live logical file: its dead positions, and the action that added it."""

    vector: str | None
    dead: frozenset[int]
    add: Mapping[str, Any]


@dataclass(frozen=True)
class View:
    """The table at a version. `rows` are its live rows by the address at which each was inserted."""

    version: int
    timestamp_ms: int
    table_id: str
    schema: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    protocol: Mapping[str, Any]
    files: Mapping[str, LiveFile] = field(default_factory=dict)
    origins: Mapping[Address, Address] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[Address, Row] = field(default_factory=dict)
    addresses: Mapping[Address, Address] = field(default_factory=dict)
    """The current address of each of `rows`."""
    removed: frozenset[str] = frozenset()
    """Every path that was ever removed from the table."""
    graves: Sequence[Mapping[str, Any]] = ()
    """The rows of the files of tombstones that the log names, by the key `k` and the order `v`."""

    def moment(self, restorable: Mapping[Address, Row]) -> Moment:
        is_ordered = {"tidelog.primaryKey", "tidelog.orderBy"} <= self.configuration.keys()
        tombstones = self.tombstones
        if self.forgets:
            expired_ms = self.timestamp_ms + 1 - 2
            tombstones = greatest(grave for grave in self.graves if grave["written_ms"] >= expired_ms)
        return Moment(self.rows, restorable, self.transactions, tombstones, is_ordered)

    @property
    def tombstones(self) -> Tombstones:
        """The greatest order of each deleted key, and whether it wins ties, however old it is."""
        return greatest(self.graves)

    @property
    def forgets(self) -> bool:
        """Whether tombstones count for two commits only."""
        return self.configuration.get("tidelog.tombstoneRetention") == "2 milliseconds"


class Reader:
    """Reads a store's files, each once."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._rows: dict[str, list[dict[str, int]]] = {}
        self._vectors: dict[str, frozenset[int]] = {}

    def share(self, other: Reader | None) -> None:
        """Know what another reader has read of the same files."""
        if other is not None and other is not self:
            self._rows.update(other._rows)
            self._vectors.update(other._vectors)

    def lines(self, version: int) -> list[Line]:
        content = self._stored[f"_delta_log/{version:020d}.json"][0]
        return [json.loads(line) for line in content.splitlines()]

    def rows(self, path: str) -> list[dict[str, int]]:
        """All rows of a data file, including dead ones."""
        if path not in self._rows:
            if path not in self._stored:
                raise BrokenLogError(f"the data file {path} does not exist")
            with pq.ParquetFile(io.BytesIO(self._stored[path][0])) as file:
                self._rows[path] = file.read(use_threads=False).to_pylist()
        return self._rows[path]

    def row(self, path: str, position: int, partition_values: Mapping[str, str | None]) -> Row:
        values = self.rows(path)[position]
        p = partition_values.get("p")
        return Row(values["k"], int(p) if p is not None else values["p"], values["v"])

    def vector(self, unique_id: str | None, cardinality: int | None = None) -> frozenset[int]:
        """The dead positions of the vector with this id (type, name and offset, as the protocol joins them)."""
        if unique_id is None:
            return frozenset()
        if unique_id not in self._vectors:
            self._vectors[unique_id] = self._read_vector(unique_id)
        found = self._vectors[unique_id]
        if cardinality is not None and len(found) != cardinality:
            raise BrokenLogError(f"the vector {unique_id} holds {len(found)} rows, its action says {cardinality}")
        return found

    def row_map(self, path: str) -> list[dict[str, int]]:
        if path not in self._stored:
            raise BrokenLogError(f"the row map {path} does not exist")
        with pa.ipc.open_file(pa.BufferReader(self._stored[path][0])) as file:
            found: list[dict[str, int]] = file.read_all().to_pylist()
        return found

    def _read_vector(self, unique_id: str) -> frozenset[int]:
        path, offset_text = vector_path(unique_id), unique_id.rpartition("@")[2]
        if path not in self._stored:
            raise BrokenLogError(f"the deletion vector file {path} does not exist")
        content, offset = self._stored[path][0], int(offset_text)
        (size,) = struct.unpack_from(">i", content, offset)
        return frozenset(BitMap64.deserialize(content[offset + 8 : offset + 4 + size]))


def greatest(graves: Iterable[Mapping[str, Any]]) -> dict[int, Tombstone]:
    """The greatest tombstone of each key."""
    found: dict[int, Tombstone] = {}
    for row in graves:
        own = (row["order.v"], bool(row["wins_ties"]))
        found[row["key.k"]] = max(own, found.get(row["key.k"], own))
    return found


def vector_id(action: Mapping[str, Any]) -> str | None:
    """The vector id that, together with the path, identifies the logical file of an action."""
    vector = action.get("deletionVector")
    if vector is None:
        return None
    offset = vector.get("offset")
    name: str = vector["storageType"] + vector["pathOrInlineDv"]
    return name if offset is None else f"{name}@{offset}"


def vector_path(unique_id: str) -> str:
    """The file that holds the vector with this id."""
    kind, name = unique_id[0], unique_id[1:].rpartition("@")[0]
    if kind != "u":
        raise BrokenLogError(f"the vector {unique_id} has a kind that these histories do not write")
    prefix, encoded = name[:-_UUID_CHARACTERS], name[-_UUID_CHARACTERS:]
    file_id = uuid.UUID(bytes=b85decode(encoded.translate(_TO_B85)))
    return "/".join(part for part in (prefix, f"deletion_vector_{file_id}.bin") if part)


def actions(lines: Sequence[Line], kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in lines if kind in line]


def lineage_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The groups of the lineage that a commit records."""
    groups: list[dict[str, Any]] = (_own(lines).get("lineage") or {}).get("groups") or []
    return groups


def _own(lines: Sequence[Line]) -> dict[str, Any]:
    """What tidelog recorded about a commit."""
    found: dict[str, Any] = lines[0].get("commitInfo", {}).get("tidelog") or {}
    return found


def initial(reader: Reader, version: int = 0) -> View:
    """The table at its first version."""
    lines = reader.lines(version)
    (metadata,), (protocol,) = actions(lines, "metaData"), actions(lines, "protocol")
    return View(
        version,
        lines[0]["commitInfo"]["inCommitTimestamp"],
        metadata["id"],
        metadata["schemaString"],
        tuple(metadata["partitionColumns"]),
        metadata["configuration"],
        protocol,
    )


def follow(before: View, lines: Sequence[Line], reader: Reader) -> View:
    """The table after one more commit. Raises BrokenLogError for a commit that cannot be read."""
    files = dict(before.files)
    removes, adds = actions(lines, "remove"), actions(lines, "add")
    for remove in removes:
        files.pop(remove["path"], None)
    for add in adds:
        vector = vector_id(add)
        cardinality = add["deletionVector"]["cardinality"] if vector else None
        files[add["path"]] = LiveFile(vector, reader.vector(vector, cardinality), add)
    metadata, protocol = actions(lines, "metaData"), actions(lines, "protocol")
    listed = _own(lines).get("tombstones")
    changed = replace(
        before,
        version=before.version + 1,
        timestamp_ms=lines[0].get("commitInfo", {}).get("inCommitTimestamp", before.timestamp_ms),
        files=files,
        protocol=protocol[-1] if protocol else before.protocol,
        origins=_origins(before, lines, reader),
        transactions={**before.transactions, **{txn["appId"]: txn["version"] for txn in actions(lines, "txn")}},
        removed=before.removed | {remove["path"] for remove in removes},
        graves=[row for file in listed["files"] for row in reader.rows(file["path"])] if listed else before.graves,
    )
    if metadata:
        changed = replace(changed, schema=metadata[-1]["schemaString"], configuration=metadata[-1]["configuration"])
    return _with_rows(changed, reader)


def live_addresses(file: LiveFile, reader: Reader) -> list[Address]:
    path = file.add["path"]
    return [(path, position) for position in range(len(reader.rows(path))) if position not in file.dead]


def _origins(before: View, lines: Sequence[Line], reader: Reader) -> Mapping[Address, Address]:
    """The insertion address of each row of a compacted file."""
    groups = lineage_of(lines)
    if not groups:
        return before.origins
    origins = dict(before.origins)
    for group in groups:
        for old, new in moves(group, reader):
            origins[new] = before.origins.get(old, old)
    return origins


def moves(group: Mapping[str, Any], reader: Reader) -> list[tuple[Address, Address]]:
    """The old and the new address of each row of a compaction group, according to the lineage."""
    inputs, outputs = group["inputs"], group["outputs"]
    if group.get("rowMap"):
        return [
            (
                (inputs[entry["input"]]["path"], entry["position"]),
                (outputs[entry["output"]]["path"], entry["output_position"]),
            )
            for entry in reader.row_map(group["rowMap"])
        ]
    sources = [
        (entry["path"], position)
        for entry in inputs
        for position in range(entry["rows"])
        if position not in reader.vector(entry["dvId"])
    ]
    targets = [(entry["path"], position) for entry in outputs for position in range(entry["rows"])]
    if len(sources) != len(targets):
        raise BrokenLogError(f"the lineage of a compaction moves {len(sources)} rows to {len(targets)} places")
    return list(zip(sources, targets, strict=True))


def _with_rows(view: View, reader: Reader) -> View:
    rows: dict[Address, Row] = {}
    addresses: dict[Address, Address] = {}
    for path, file in view.files.items():
        values = file.add["partitionValues"]
        for address in live_addresses(file, reader):
            origin = view.origins.get(address, address)
            if origin in rows:
                raise BrokenLogError(f"one row is live twice: {origin} at {addresses[origin]} and {address}")
            rows[origin] = reader.row(path, address[1], values)
            addresses[origin] = address
    return replace(view, rows=rows, addresses=addresses)

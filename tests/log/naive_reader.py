"""The simplest possible Delta reader: commits only, JSON from the standard library, rows as Python lists.

The fuzzer compares tidelog's reader with it if damage left another valid log.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from base64 import b85decode
from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq
from pyroaring import BitMap64

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


class InvalidLogError(Exception):
    """The commits are not a valid log."""


def actions(files: dict[str, bytes]) -> list[list[dict[str, Any]]]:
    """The lines of every commit, starting at 0. Raises InvalidLogError."""
    names = sorted(name for name in files if name.startswith("_delta_log/") and name.endswith(".json"))
    commits = {name: files[name] for name in names if len(name) == len("_delta_log/") + 25}
    if list(commits) != [f"_delta_log/{version:020d}.json" for version in range(len(commits))]:
        raise InvalidLogError("a commit is missing")
    return [lines(content) for content in commits.values()]


def lines(content: bytes) -> list[dict[str, Any]]:
    try:
        texts = [text for text in content.decode().split("\n") if text.strip(" \t\r")]
        found = [json.loads(text, parse_constant=_refuse, object_pairs_hook=_object) for text in texts]
    except (ValueError, RecursionError) as error:
        raise InvalidLogError(str(error)) from error
    if not found or not all(isinstance(line, dict) for line in found):
        raise InvalidLogError("a line is not an action")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last value of a repeated key counts, but the object must differ from one without the repetition."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else found | {"\0twice": len(pairs)}


def _refuse(text: str) -> None:
    raise ValueError(text)


def rows(files: dict[str, bytes]) -> Counter[str]:
    """The live rows of the newest version, each as text. An invalid log can raise any error."""
    metadata: dict[str, Any] | None = None
    live: dict[tuple[str, str], dict[str, Any]] = {}
    for commit in actions(files):
        for line in sorted(commit, key=lambda line: "add" in line):  # a commit can remove and add the same path
            if "metaData" in line:
                metadata = line["metaData"]
            for kind in ("remove", "add"):
                if kind in line:
                    action = line[kind]
                    live.pop(_key(action), None)
                    if kind == "add":
                        live[_key(action)] = action
    assert metadata is not None
    schema = json.loads(metadata["schemaString"])["fields"]
    found: Counter[str] = Counter()
    for add in live.values():
        found.update(_file_rows(files, add, schema))
    return found


def _key(action: dict[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector")
    names = ("storageType", "pathOrInlineDv", "offset")
    return action["path"], "" if vector is None else repr([vector.get(name) for name in names])


def _file_rows(files: dict[str, bytes], add: dict[str, Any], schema: list[dict[str, Any]]) -> list[str]:
    dead = _dead(files, add.get("deletionVector"))
    found = []
    for position, stored in enumerate(_stored(files[add["path"]])):
        if position in dead:
            continue
        values = stored | {name: value or None for name, value in add["partitionValues"].items()}
        found.append(repr([_value(values, field) for field in schema]))
    return found


def _value(values: dict[str, Any], field: dict[str, Any]) -> Any:
    """A column's value, looked up by its physical name; nested fields likewise."""
    value = values.get(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))
    if isinstance(field["type"], dict) and value is not None:
        return {child["name"]: _value(value, child) for child in field["type"]["fields"]}
    return value


@lru_cache(maxsize=200)
def _stored(content: bytes) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.ParquetFile(io.BytesIO(content)).read().to_pylist()
    return table


def _dead(files: dict[str, bytes], vector: dict[str, Any] | None) -> set[int]:
    if vector is None:
        return set()
    text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
    if vector["storageType"] == "i":
        blob = _z85(text)[:size]
    else:
        name = f"deletion_vector_{uuid.UUID(bytes=_z85(text[-20:]))}.bin"
        path = text if vector["storageType"] == "p" else "/".join(part for part in (text[:-20], name) if part)
        offset = vector["offset"]
        blob = files[path][offset + 4 : offset + 4 + size]
        assert struct.unpack_from(">iI", files[path][offset : offset + 4] + files[path][offset + 4 + size :]) == (
            size,
            zlib.crc32(blob),
        )
    dead = set(BitMap64.deserialize(blob[4:]))
    assert len(dead) == vector["cardinality"]
    return dead


def _z85(text: str) -> bytes:
    """The standard library has the same encoding with another alphabet."""
    return b85decode(text.translate(str.maketrans(_Z85, _B85)))

"""The log of Spark's streaming file sink: the folder `_spark_metadata`, which says which files of its folder count.

Each batch is a file, `<batch>`, and every tenth (by default) holds all batches up to it, `<batch>.compact`. Its lines
are `v1` and an object for each file that the batch added or deleted. Files that no batch names are from attempts that
failed, and readers have to ignore them: reading the folder without the log can give rows twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.storage import FileStatus, Store

SINK_FOLDER = "_spark_metadata"
_NAME = re.compile(r"(?P<batch>[0-9]{1,18})(?P<compact>\.compact)?")


class _Entry(msgspec.Struct):
    path: str
    size: int
    action: str = "add"


@dataclass(frozen=True, slots=True)
class SinkLog:
    """What the sink has committed: its newest batch, and the size of each file by its URI."""

    newest_batch: int
    sizes: Mapping[str, int]

    def committed(self, store: Store, found: Mapping[str, FileStatus]) -> dict[str, FileStatus]:
        """Those of the files `found` that the log names.

        A folder may have been moved since, so only the end of each URI counts: the name and the partition folders above
        it. Raises DataFileMissingError if a file is gone, or has another size.
        """
        chosen = {}
        for uri, size in self.sizes.items():
            path = next((path for path in _ends(uri) if path in found), None)
            if path is None or found[path].size_bytes != size:
                what = "is missing" if path is None else f"has {found[path].size_bytes} bytes instead of {size}"
                raise DataFileMissingError(
                    f"a file that the log of Spark's file sink, {store.url}/{SINK_FOLDER}, names {what}: {uri}",
                    advice="restore the file; or, to convert all files that are there, move the log out of the folder",
                    path=store.url,
                )
            chosen[path] = found[path]
        return chosen


def _ends(uri: str) -> Iterator[str]:
    """The paths below a folder that a URI can mean, the longest first."""
    parts = unquote(uri).split("/")
    start = len(parts) - 1
    while start > 0 and "=" in parts[start - 1]:
        start -= 1
    for first in range(start, len(parts)):
        yield "/".join(parts[first:])


def read_sink_log(store: Store) -> SinkLog | None:
    """The log of the file sink that wrote to this folder; None if none did.

    Raises CorruptLogError if a batch is missing or cannot be read.
    """
    batches: dict[int, str] = {}
    compacted: list[int] = []
    for name in store.names(SINK_FOLDER):
        match = _NAME.fullmatch(name)
        if match:
            number = int(match["batch"])
            if match["compact"]:
                compacted.append(number)
            if match["compact"] or number not in batches:
                batches[number] = name
    if not batches:
        return None
    start, newest = max(compacted, default=0), max(batches)
    sizes: dict[str, int] = {}
    for number in range(start, newest + 1):
        if number not in batches:
            raise _corrupt(store, f"batch {number} is missing, and batch {newest} exists")
        for entry in _entries(store, batches[number]):
            if entry.action == "delete":
                sizes.pop(entry.path, None)
            else:
                sizes[entry.path] = entry.size
    return SinkLog(newest, sizes)


def _entries(store: Store, name: str) -> list[_Entry]:
    try:
        version, *lines = store.read(f"{SINK_FOLDER}/{name}").decode().splitlines()
        if version == "v1":
            return [msgspec.json.decode(line, type=_Entry) for line in lines if line]
    except (OSError, *MALFORMED_JSON) as error:
        raise _corrupt(store, f"{name} cannot be read: {error}") from error
    raise _corrupt(store, f"{name} has version {version!r}, not v1")


def _corrupt(store: Store, fault: str) -> CorruptLogError:
    return CorruptLogError(
        f"the log of Spark's file sink, {store.url}/{SINK_FOLDER}, is damaged: {fault}",
        advice="restore it; or, to convert all files that are there, move it out of the folder",
        path=store.url,
    )

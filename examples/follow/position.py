"""How far the follower is: from its streaming checkpoint, whose offsets are small JSON, and from its notes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.follow.folder import Folder


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of the follower.

    Attributes:
        number: Its number.
        version: The version of the table up to which it reads.
        time_version: That version's time, as text; empty if it read no commit.
        copy_version: The copy's version after it.
        keys: How many rows were written or deleted in the copy.
        replays: How often Spark ran it again although the copy already had it.
    """

    number: int
    version: int
    time_version: str
    copy_version: int
    keys: int
    replays: int


def followed_version(folder: Folder) -> int:
    """The version up to which the follower has read, as its checkpoint says; -1 before the first batch."""
    committed = [int(path.name) for path in (folder.follower / "commits").glob("[0-9]*")]
    return int(_offset(folder.follower, max(committed))["version"]) if committed else -1


def batches(folder: Folder) -> list[Batch]:
    """The micro-batches that the follower has applied, in order."""
    notes: dict[int, list[dict[str, Any]]] = {}
    if folder.batches.exists():
        for line in folder.batches.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            notes.setdefault(note["batch"], []).append(note)
    return [_batch(folder, number, noted) for number, noted in sorted(notes.items())]


def _batch(folder: Folder, number: int, noted: list[dict[str, Any]]) -> Batch:
    offset = _offset(folder.follower, number)
    return Batch(
        number,
        int(offset["version"]),
        offset.get("completeUntil", ""),
        noted[-1]["copy_version"],
        max(note["keys"] for note in noted),
        sum(note["skipped"] for note in noted),
    )


def _offset(checkpoint: Path, number: int) -> dict[str, Any]:
    """The end of a batch: the last line of the file that Spark writes before it runs the batch."""
    lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    offset: dict[str, Any] = json.loads(lines[-1])
    return offset

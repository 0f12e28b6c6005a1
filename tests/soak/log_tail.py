"""The commits of the table, read from the JSON of its log while it is there, and not by the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DAEMON = "tidelog.daemon/"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit did.

    Attributes:
        version: Its version.
        at_s: Its time, in seconds since the epoch.
        operation: Its operation, such as WRITE or VACUUM.
        kind: Its class, such as INSERT or MINOR.
        changes_rows: Whether it has a file with a data change.
        added: The sizes of new data files, in bytes.
        removed: Data files that left the table.
        vectors: Files that stayed and got a new deletion vector.
        dead_rows: By how many rows the deletion vectors of those files grew.
        batch: (query, number) of the micro-batch that it wrote; None if it wrote none.
        epoch: The epoch of the daemon's lease that it carries; None if no daemon made it.
    """

    version: int
    at_s: float
    operation: str
    kind: str
    changes_rows: bool
    added: tuple[int, ...]
    removed: int
    vectors: int
    dead_rows: int
    batch: tuple[str, int] | None
    epoch: int | None = None

    @property
    def is_compaction(self) -> bool:
        """Whether it is a compaction."""
        return self.kind in {"MINOR", "MAJOR"}

    @property
    def is_takeover(self) -> bool:
        """Whether a daemon began with it after another one that did not release the lease."""
        return self.epoch is not None and not (self.added or self.removed or self.vectors)


class LogTail:
    """All commits up to the newest look, oldest first."""

    def __init__(self, table: Path) -> None:
        self.commits: list[Commit] = []
        self._log = table / "_delta_log"

    def look(self) -> None:
        """Read what is new. Look more often than history expires."""
        while (file := self._log / f"{len(self.commits):020d}.json").exists():
            actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            self.commits.append(_commit(len(self.commits), actions))


def _commit(version: int, actions: list[dict[str, Any]]) -> Commit:
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    adds = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    removes = {action["remove"]["path"]: action["remove"] for action in actions if "remove" in action}
    own = info.get("tidelog", {})
    batch = own.get("batch")
    both = adds.keys() & removes.keys()
    return Commit(
        version=version,
        at_s=info["inCommitTimestamp"] / 1000,
        operation=info["operation"],
        kind=own.get("class", ""),
        changes_rows=any(file["dataChange"] for file in (*adds.values(), *removes.values())),
        added=tuple(adds[path]["size"] for path in adds.keys() - both),
        removed=len(removes.keys() - both),
        vectors=len(both),
        dead_rows=sum(_dead(adds[path]) - _dead(removes[path]) for path in both),
        batch=(str(batch["queryId"]), int(batch["batchId"])) if batch else None,
        epoch=next(
            (
                action["txn"]["version"]
                for action in actions
                if "txn" in action and action["txn"]["appId"].startswith(_DAEMON)
            ),
            None,
        ),
    )


def _dead(file: Mapping[str, Any]) -> int:
    return int((file.get("deletionVector") or {}).get("cardinality", 0))

"""A stream's position in a table's history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.log.errors import TableReplacedError

# All files of the version have been read.
COMPLETE = -1


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """Every version before `version` has been read, and the first `files` change files of `version` (or COMPLETE)."""

    table_id: str
    version: int
    files: int = COMPLETE

    def to_json(self) -> dict[str, Any]:
        """The form that Spark stores in its offset log."""
        return {"tableId": self.table_id, "version": self.version, "files": self.files}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Offset:
        """The offset that Spark stored."""
        return cls(str(raw["tableId"]), int(raw["version"]), int(raw["files"]))

    def require_table(self, table_id: str, path: str) -> None:
        """Raise TableReplacedError if the offset belongs to another table than `table_id`."""
        if self.table_id != table_id:
            raise TableReplacedError(
                f"the stream's checkpoint belongs to another table than the one at {path}",
                advice="start the stream with a new checkpoint, or put the old table back",
                path=path,
                expected_id=self.table_id,
                found_id=table_id,
            )

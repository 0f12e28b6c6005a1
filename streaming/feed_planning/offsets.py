"""A stream's position in a table's history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.log.errors import ConfigurationError, TableReplacedError

# All files of the version have been read.
COMPLETE = -1


@dataclass(frozen=True, slots=True)
class Offset:
    """Every version before `version` has been read, and the first `files` files of `version` (or COMPLETE).

    Attributes:
        table_id: The table's id. A stream never continues on another table.
        version: An ID version.
        files: How many files of the version were read. They are counted in the order in which the feed reads them.
        snapshot: Whether the files are those of the table as it is at `version`, not those of its commit.
        complete_until: Every commit up to this time (ISO-8601, UTC) has been read; empty before the first.
        skipped: How many commits were left out because they changed rows (`skipChangeCommits`).
        reader: Tells queries with the same consumer name apart; empty without a consumer.
        is_initial: Whether a new stream begins here. Spark asks for such an offset again when it runs the first
            micro-batch, and after a crash in it, and the table may have changed since.
        began: Of the end of the first micro-batch: where it begins.
    """

    table_id: str
    version: int
    files: int = COMPLETE
    snapshot: bool = False
    complete_until: str = ""
    skipped: int = 0
    reader: str = ""
    is_initial: bool = False
    began: Offset | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything up to the version was read."""
        return self.files == COMPLETE and not self.snapshot

    @property
    def last_complete(self) -> int:
        """The newest version that needs not be read again."""
        return self.version if self.files == COMPLETE or self.snapshot else self.version - 1

    def to_json(self) -> dict[str, Any]:
        """The form that Spark stores in its offset log."""
        optional = {
            "files": None if self.files == COMPLETE else self.files,
            "snapshot": self.snapshot,
            "completeUntil": self.complete_until,
            "skippedCommits": self.skipped,
            "reader": self.reader,
            "initial": self.is_initial,
            "began": self.began and self.began.to_json(),
        }
        given = {name: value for name, value in optional.items() if value or (name == "files" and value is not None)}
        return {"tableId": self.table_id, "version": self.version, **given}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Offset:
        """The offset that Spark stored. Raises ConfigurationError if it is not one."""
        try:
            return cls(
                str(raw["tableId"]),
                int(raw["version"]),
                int(raw.get("files", COMPLETE)),
                bool(raw.get("snapshot", False)),
                str(raw.get("completeUntil", "")),
                int(raw.get("skippedCommits", 0)),
                str(raw.get("reader", "")),
                bool(raw.get("initial", False)),
                cls.from_json(raw["began"]) if raw.get("began") else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"the stream's checkpoint holds an offset that tidelog did not write: {raw!r}",
                advice="restore the checkpoint, or start the stream with a new one",
            ) from error

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

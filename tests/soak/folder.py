"""The folder of a soak: the table, the checkpoints and replicas, and the requests by which the conductor ends it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.shared.working_folder import WorkingFolder
from tests.soak.settings import CONSUMERS, Settings


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`; `table` is the table that all programs use."""

    @property
    def journal(self) -> Path:
        """What the updater has decided."""
        return self.root / "journal.json"

    @property
    def settings(self) -> Settings:
        """The settings of the run, as the conductor wrote them for the programs."""
        return Settings(**read_whole(self.plan))

    @property
    def plan(self) -> Path:
        """The file with the settings."""
        return self.root / "settings.json"

    @property
    def slow_read(self) -> Path:
        """A file as old as the last read of the slow consumer."""
        return self.root / "slow-read"

    @property
    def curves(self) -> Path:
        """The samples, a line each."""
        return self.root / "samples.jsonl"

    @property
    def events(self) -> Path:
        """The kills and pauses, a line each."""
        return self.root / "events.jsonl"

    @property
    def report(self) -> Path:
        """The report as a page; beside it are `report.json` and `summary.txt`."""
        return self.root / "report.html"

    def replica(self, consumer: str) -> Path:
        """The copy that a consumer keeps."""
        return self.root / f"replica-{consumer}.sqlite"

    def checkpoint(self, name: str) -> Path:
        """The streaming checkpoint of a query."""
        return self.checkpoints / name

    def request(self, name: str) -> Path:
        """The file whose appearance asks a program to finish; it holds what it needs to know for that."""
        return self.root / "requests" / f"{name}.json"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that a soak writes, except the lock."""
        replicas = [
            self.replica(name).with_name(self.replica(name).name + end)
            for name in CONSUMERS
            for end in ("", "-wal", "-shm", "-journal")
        ]
        reports = self.report, self.root / "report.json", self.root / "summary.txt"
        return (
            *super().written,
            self.journal,
            self.plan,
            self.slow_read,
            self.curves,
            self.events,
            self.root / "requests",
            *replicas,
            *reports,
        )


def write_whole(path: Path, content: Any) -> None:
    """Write JSON that survives a kill at any moment: the file has the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def read_whole(path: Path) -> Any:
    """What `write_whole` wrote; None before."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

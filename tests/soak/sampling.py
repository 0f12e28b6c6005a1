"""The curves: every two seconds what the table, the consumers and the processes look like."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from examples.shared.child_process import ChildProcess
from examples.shared.command import Clock
from tests.soak.folder import Folder
from tests.soak.log_tail import LogTail
from tests.soak.processes import Processes, Usage
from tests.soak.replica import position_of
from tests.soak.settings import CONSUMERS
from tidelog.log import Table


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a consumer is behind: versions that changed rows, and the age of the oldest of them."""

    versions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Process:
    """What a process uses; `life` counts its starts, and `role` tells Python from the JVM that it started."""

    role: str
    life: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Sample:
    """One look.

    Attributes:
        at_s: Seconds since the start.
        time_s: Seconds since the epoch.
        version: The newest version.
        parts: The number of partitions.
        files, small_files, dead_rows, log_tail: The table's debt.
        data_files: Data files in the table's folder, whether live or not.
        other_files: The table's other files: deletion vectors, row maps, consumers, leases.
        disk_bytes: The size of all files in the table's folder.
        log_files: Files in the log's folder.
        lags: By consumer.
        processes: By program.
    """

    at_s: float
    time_s: float
    version: int
    parts: int
    files: int
    small_files: int
    dead_rows: int
    log_tail: int
    data_files: int
    other_files: int
    disk_bytes: int
    log_files: int
    lags: Mapping[str, Lag] = field(default_factory=dict)
    processes: Mapping[str, tuple[Process, ...]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The sample as JSON values."""
        return asdict(self)


class Sampler:
    """Takes samples, and writes each to a file at once."""

    def __init__(self, folder: Folder) -> None:
        self.tail = LogTail(folder.table)
        self.samples: list[Sample] = []
        self._folder = folder
        self._clock = Clock()
        self._table = Table.open(str(folder.table))

    def begin(self) -> None:
        """Count the time from now."""
        self._clock = Clock()

    def sample(self, running: Mapping[str, tuple[ChildProcess, int]]) -> Sample:
        """Take a sample; `running` has the processes with the number of their life."""
        self.tail.look()
        self._table.refresh()
        debt, files = self._table.debt(), self._table.at().files()
        found = Sample(
            at_s=round(self._clock.elapsed_s, 3),
            time_s=time.time(),
            version=self._table.version,
            parts=len({tuple(values) for values in files["partitionValues"].to_pylist()}),
            files=debt.files,
            small_files=debt.small_files,
            dead_rows=debt.dead_rows,
            log_tail=debt.log_tail,
            **_on_disk(self._folder.table),
            lags={name: self._lag(name) for name in CONSUMERS},
            processes=_usages(running),
        )
        self.samples.append(found)
        with self._folder.curves.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found.to_dict()) + "\n")
        return found

    def _lag(self, consumer: str) -> Lag:
        position = position_of(self._folder.replica(consumer))
        behind = [
            commit
            for commit in self.tail.commits[(position.version if position else 0) + 1 :]
            if commit.changes_rows and commit.kind
        ]
        return Lag(len(behind), round(time.time() - behind[0].at_s, 1) if behind else 0.0)


def _usages(running: Mapping[str, tuple[ChildProcess, int]]) -> dict[str, tuple[Process, ...]]:
    processes = Processes()
    return {
        name: tuple(Process(role, life, usage) for role, usage in sorted(processes.below(child.pid).items()))
        for name, (child, life) in running.items()
        if child.pid is not None
    }


def _on_disk(table: Path) -> dict[str, int]:
    found = Counter[str]()
    for folder, _, names in os.walk(table):
        own = Path(folder).relative_to(table).parts[:1]
        kind = "log_files" if own == ("_delta_log",) else "other_files" if own and own[0][0] == "_" else "data_files"
        found[kind] += len(names)
        for name in names:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                found["disk_bytes"] += (Path(folder) / name).stat().st_size
    return {kind: found[kind] for kind in ("data_files", "other_files", "disk_bytes", "log_files")}

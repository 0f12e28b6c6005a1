"""The registered consumers of a table with their lags."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tidelog.log.consumers import record_files
from tidelog.log.consumers.consumer_record import Record, State
from tidelog.log.consumers.registration import time_to_live_ms
from tidelog.log.format.actions import Commit
from tidelog.log.format.paths import canonical
from tidelog.log.numbered_files import UnreadableRecordError
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime, utc_text

# How many commits are read to measure a lag: seconds on an object store. Beyond it the lag is a lower bound.
MAX_COMMITS = 1_000


@dataclass(frozen=True, slots=True)
class Lag:
    """What a consumer has not processed yet. Only commits that changed rows count.

    Attributes:
        versions: The number of commits.
        seconds: How long ago the oldest of them was committed, by this machine's clock; 0 if there is none.
        files: The number of files that hold their changes.
        bytes: The size of these files.
        is_complete: False if there are more commits than were read, so that the others are lower bounds.
    """

    versions: int = 0
    seconds: float = 0.0
    files: int = 0
    bytes: int = 0
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A registered consumer.

    Attributes:
        name: Its name.
        owner: Who owns it; None if it was released.
        position: Every commit up to this version was processed; None if the record cannot be read.
        position_time: The commit time (UTC) of that version; None if it is unknown.
        heartbeat: The last sign of life (UTC), by the store's clock.
        is_live: Whether clean-ups wait for it, by this machine's clock.
        is_confirmed: Whether its owner can come back after a crash.
        state: `live`, `silent` (no sign of life for the time to live), `withdrawn` (a clean-up had passed its position)
            or `unreadable` (clean-ups keep everything until it is removed).
        lag: What it has not processed yet; None if that is unknown.
    """

    name: str
    owner: str | None
    position: int | None
    position_time: datetime | None
    heartbeat: datetime | None
    is_live: bool
    is_confirmed: bool
    state: str
    lag: Lag | None

    def to_dict(self) -> dict[str, Any]:
        """The status as JSON values, with times as ISO-8601 text in UTC."""
        times = {"position_time": self.position_time, "heartbeat": self.heartbeat}
        return {**asdict(self), **{name: time and utc_text(time) for name, time in times.items()}}


def consumers(store: Store, head: Head, system: System, *, max_commits: int = MAX_COMMITS) -> list[ConsumerStatus]:
    """The registered consumers of the table, by name, with their lags behind `head`.

    Reads at most `max_commits` commits for each, and each commit once. Raises StoreUnavailableError.
    """
    backlog = _Backlog(store, head, system.now_ms(), max_commits)
    found = []
    for name in record_files.names_of(store):
        try:
            latest = record_files.read_latest(store, head.metadata.id, name)
            if latest.record is not None and latest.record.state is not State.REMOVED:
                heartbeat_ms = store.modified_ms(latest.path)
                found.append(_status(latest.record, heartbeat_ms, backlog, system))
        except UnreadableRecordError:
            found.append(_unreadable(name))
        except FileNotFoundError:
            # The owner has just written again, so it is alive, and its file is young.
            if latest.record is not None:
                found.append(_status(latest.record, system.now_ms(), backlog, system))
    return found


def _status(record: Record, heartbeat_ms: int, backlog: _Backlog, system: System) -> ConsumerStatus:
    is_registered = record.state is State.REGISTERED
    is_live = is_registered and system.now_ms() - heartbeat_ms < time_to_live_ms(backlog.head)
    return ConsumerStatus(
        name=record.name,
        owner=record.owner,
        position=record.position,
        position_time=record.position_time,
        heartbeat=to_datetime(heartbeat_ms),
        is_live=is_live,
        is_confirmed=record.confirmed,
        state="live" if is_live else "silent" if is_registered else "withdrawn",
        lag=backlog.after(record.position),
    )


def _unreadable(name: str) -> ConsumerStatus:
    return ConsumerStatus(
        name=name,
        owner=None,
        position=None,
        position_time=None,
        heartbeat=None,
        is_live=True,
        is_confirmed=False,
        state="unreadable",
        lag=None,
    )


class _Backlog:
    """The commits that consumers have not processed. Keeps some numbers of each commit that was read."""

    def __init__(self, store: Store, head: Head, now_ms: int, max_commits: int) -> None:
        self.head = head
        self._store = store
        self._now_ms = now_ms
        self._max_commits = max_commits
        self._times = CommitTimes(store)
        self._known: dict[int, tuple[int, int, int] | None] = {}

    def after(self, position: int) -> Lag | None:
        """The lag of a consumer at `position`; None if commits that it needs are gone."""
        first = max(position + 1, self.head.first_version)
        last = min(self.head.version, first + self._max_commits - 1)
        versions = files = size = 0
        oldest_ms: int | None = None
        for version in range(first, last + 1):
            try:
                counted = self._count(version)
            except FileNotFoundError:
                return None
            if counted is not None:
                stamp, more, more_bytes = counted
                oldest_ms = stamp if oldest_ms is None else oldest_ms
                versions, files, size = versions + 1, files + more, size + more_bytes
        seconds = 0.0 if oldest_ms is None else max(0, self._now_ms - oldest_ms) / 1000
        return Lag(versions, seconds, files, size, last == self.head.version or first > self.head.version)

    def _count(self, version: int) -> tuple[int, int, int] | None:
        """Time, files and bytes of a commit that changed rows; None for one that did not."""
        if version not in self._known:
            commit = read_commit(self._store, version)
            self._known[version] = (self._times.of(commit), *_changed(commit)) if commit.data_change else None
        return self._known[version]


def _changed(commit: Commit) -> tuple[int, int]:
    """The number and the size of the files that hold the changes of a commit."""
    if commit.cdc:
        return len(commit.cdc), sum(cdc.size for cdc in commit.cdc)
    sizes = {canonical(remove.path): remove.size or 0 for remove in commit.removes if remove.data_change}
    sizes |= {canonical(add.path): add.size for add in commit.adds if add.data_change}
    return len(sizes), sum(sizes.values())

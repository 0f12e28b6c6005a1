"""The retained history of a table: its commits by ID version and by time."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tidelog.log.conflict.fences import floor_of
from tidelog.log.errors import ConfigurationError, CorruptLogError, HistoryExpiredError
from tidelog.log.format.actions import Commit
from tidelog.log.presentable import brief
from tidelog.log.state import versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import RecentCommits, is_there, read_commit, read_each
from tidelog.log.state.loader import load
from tidelog.log.state.segment import earliest_version, range_error
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime, utc_text

# An ID version, or a time: an aware datetime or an ISO-8601 string with a time zone.
Point: TypeAlias = int | datetime | str
# The start of an interval that covers the whole history: version 0 is the first version after it.
BEFORE_FIRST = -1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class VersionInterval:
    """The commits after the version `after`, up to and including `until`.

    `complete_until_ms` is a time T: the interval has every commit of its range up to T, and no later commit can appear
    at or before T, because commit times increase. So the next interval can start after T. It is

    - the given end, if that is a time and the table has a later commit
    - else the commit time of `until`; if that commit has expired, the last millisecond before the next one
    """

    after: int
    until: int
    complete_until_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The commits from `first_version`, which created the table, up to `version`, the newest that is loaded.

    `timestamp_ms` is the commit time of `version`. Commits before `first_version` belong to a table that was dropped,
    those below `floor` can have been cleaned up. Commits that are in `recent` are not read again.
    """

    store: Store
    system: System
    times: CommitTimes
    version: int
    timestamp_ms: int
    first_version: int = 0
    floor: int = 0
    recent: RecentCommits = field(default_factory=RecentCommits)

    @property
    def before_first(self) -> int:
        """The start of an interval that covers the whole history."""
        return self.first_version + BEFORE_FIRST

    def newest_first(self, until: int | None = None) -> Iterator[tuple[Commit, int]]:
        """Each commit with its commit time in ms, from `until` to the oldest that is retained; None: from the newest.

        Raises the errors of loading the newest version, if that is not the loaded one.
        """
        # Every move of the floor is a commit.
        floor = self._newest_floor() if is_there(self.store, self.version + 1) else self.floor
        newest = self.version if until is None else until
        for commit in versions.newest_first(self.store, newest, self.first_version, floor):
            try:
                stamp = self.times.of(commit)
            except FileNotFoundError:  # cleaned up since it was read, and so are those before it
                return
            yield commit, stamp

    def between(self, after: int, until: int) -> Iterator[tuple[Commit, int]]:
        """The commits in (after, until] with their times in ms, oldest first, read as they are consumed.

        A start is exclusive here, and inclusive in Delta's change feed.

        Raises HistoryExpiredError if some of them are expired or not committed yet. That happens before the first
        commit if it is known without listing the log, because a feed reads this way for every micro-batch.
        """
        after = self.before_first if after == BEFORE_FIRST else after
        is_own = self.before_first <= after and until <= self.version
        if after < until and not (is_own and self._is_retained(after + 1)):
            raise self._unavailable(after, until)
        try:
            for commit in self._commits(range(after + 1, until + 1)):
                yield commit, self.times.of(commit)
        except FileNotFoundError as error:
            raise self._unavailable(after, until) from error

    def _is_retained(self, version: int) -> bool:
        """Whether no clean-up has passed the commit. It takes a single request, but near the oldest commit.

        Where the one before still exists, this one was not deleted either, so nobody can have put it anew. Otherwise it
        is the oldest commit that is left, or one that is in no version.
        """
        if version > self.floor and is_there(self.store, max(version - 1, self.first_version)):
            return True
        if not is_there(self.store, version):
            return False
        if version == self.floor:
            return True
        return version >= self._earliest_commit(self._newest_floor())

    def _newest_floor(self) -> int:
        """The floor in the newest version: this timeline may be older than a clean-up."""
        with contextlib.suppress(CorruptLogError):
            return max(self.floor, floor_of(load(self.store).head.transactions))
        return self.floor

    def _commits(self, versions: range) -> Iterator[Commit]:
        for is_held, run in itertools.groupby(versions, self.recent.__contains__):
            if is_held:
                yield from (self.recent.take(version) or read_commit(self.store, version) for version in run)
            else:
                yield from read_each(self.store, list(run))

    def snapshot_version(self, moment: datetime | str) -> int:
        """The version of the table at `moment`. Raises HistoryExpiredError for a time outside the retained history."""
        at_ms = to_timestamp_ms(moment)
        earliest = self.oldest_version()
        if self._is_in_the_future(at_ms):
            raise self._outside(at_ms, "in the future", earliest)
        found = versions.version_at(self.times, at_ms, earliest, self.version)
        if found is None:
            raise self._outside(at_ms, "before the retained history", earliest)
        return found

    def interval(self, after: Point | None, until: Point | None) -> VersionInterval:
        """The interval (after, until]; None means the beginning or the newest version.

        It is empty if both ends mean the same version. Raises ConfigurationError if the end lies before the start, and
        HistoryExpiredError like `interval_end`.
        """
        first = self.before_first if after is None else self.interval_end(after)
        last = self.version if until is None else self.interval_end(until)
        start_ms, end_ms = (
            None if point is None or isinstance(point, int) else to_timestamp_ms(point) for point in (after, until)
        )
        if last < first or (start_ms is not None and end_ms is not None and end_ms < start_ms):
            raise ConfigurationError(
                f"the interval ends before it starts: after={after}, until={until}",
                advice="swap the two ends (after is exclusive, until inclusive)",
            )
        if end_ms is not None and last < self.version:
            return VersionInterval(first, last, end_ms)
        return VersionInterval(first, last, self._time_of(last))

    def interval_end(self, point: Point) -> int:
        """The version that the start or the end of an interval means; `before_first` for a time before that version.

        A start is exclusive here, and inclusive in Delta's change feed: to begin with version 5, start at 4.

        Raises HistoryExpiredError for a point outside the retained history, such as a time in the future: the interval
        would grow while it is read.
        """
        if isinstance(point, bool) or not isinstance(point, (int, str, datetime)):
            kind = type(point).__name__
            raise ConfigurationError(
                f"the start or end of an interval cannot be a {kind}",
                advice="pass a version (int) or a time (aware datetime or ISO-8601 string)",
            )
        first = self.first_version
        is_whole = self.floor <= first and is_there(self.store, first)
        earliest = first if is_whole else self._earliest_commit()
        if isinstance(point, int):
            if point == BEFORE_FIRST:
                return self.before_first
            self.require_own(point + 1)
            if not BEFORE_FIRST <= point <= self.version:
                hint = ", which history lists; refresh the table if it is newer"
                raise range_error(self.store, f"version {brief(point)} does not exist", earliest, self.version, hint)
            return point
        at_ms = to_timestamp_ms(point)
        if self._is_in_the_future(at_ms):
            raise self._outside(at_ms, "in the future", earliest)
        found = versions.version_at(self.times, at_ms, earliest, self.version)
        if found is None and earliest > first:
            raise self._outside(at_ms, "before the retained history", earliest)
        return self.before_first if found is None else found

    def start_before(self, first: Point) -> int:
        """The exclusive start of an interval that begins with `first`, as Delta's starts do.

        A version is itself the first one, and can be the next one that will be committed. A time means the first commit
        at or after it. Raises HistoryExpiredError like `interval_end`.
        """
        if isinstance(first, int) and first == self.version + 1:
            return self.version
        found = self.interval_end(first)
        if isinstance(first, int) or found < self.first_version:
            return max(found - 1, self.before_first)
        is_included = to_datetime(self.times.at(found)) >= _to_moment(first)
        return found - 1 if is_included else found

    def nth_version(self, n: int) -> int:
        """The ID version of the n-th most recent commit."""
        _require_positive(n)
        found = self.version - (n - 1)
        earliest = self.oldest_version()
        if found < earliest:
            raise range_error(self.store, f"there are fewer than {brief(n)} commits", earliest, self.version)
        return found

    def nth_time_version_ms(self, n: int) -> int:
        """The time version of the n-th most recent data-changing commit."""
        _require_positive(n)
        changing = (stamp for commit, stamp in self.newest_first() if commit.data_change)
        stamp = next(itertools.islice(changing, min(n - 1, sys.maxsize), None), None)
        if stamp is None:
            earliest = self._earliest_commit()
            raise range_error(
                self.store, f"there are fewer than {brief(n)} data-changing commits", earliest, self.version
            )
        return stamp

    def _outside(self, at_ms: int, where: str, earliest: int) -> HistoryExpiredError:
        """The error for a time, with the times of the first and the last version that it could be."""
        first_ms = self.times.at(earliest)
        since = "" if first_ms < 0 else f", the first was committed at {utc_text(to_datetime(first_ms))}"
        hint = f"{since}, the last at {utc_text(to_datetime(self._time_of(self.version)))}"
        what = f"{utc_text(to_datetime(at_ms))} is {where}"
        return range_error(self.store, what, earliest, self.version, hint)

    def require_own(self, version: int) -> None:
        """Raise HistoryExpiredError if the version belongs to a table that was at this path before."""
        if 0 <= version < self.first_version:
            what = f"version {version} belongs to an older table at {self.store.url}, which was dropped"
            raise range_error(self.store, what, self.oldest_version(), self.version)

    def _is_in_the_future(self, at_ms: int) -> bool:
        known_ms = max(self.system.now_ms(), self.timestamp_ms)
        return at_ms > known_ms and at_ms > self._time_of(self.version)

    def _time_of(self, version: int) -> int:
        """The commit time of `version`, or of the last millisecond before the next one if it is gone or was never."""
        if version == self.version:
            # File times can go backwards; with all earlier ones they are corrected to increase.
            return max(self.timestamp_ms, self.times.at(version))
        stamp = self.times.at(version) if version >= self.first_version else -1
        return stamp if stamp >= 0 else self.times.at(version + 1) - 1

    def oldest_version(self) -> int:
        """The oldest version that can still be read."""
        return max(self.first_version, earliest_version(self.store, self.version))

    def _earliest_commit(self, newest_floor: int = 0) -> int:
        floor, first = max(self.floor, newest_floor), self.first_version
        return max(first, versions.earliest_commit(self.store, self.version, floor, first))

    def _unavailable(self, after: int, until: int) -> HistoryExpiredError:
        earliest = self._earliest_commit()
        start = f"from version {self.first_version}" if after == self.before_first else f"after version {after}"
        what = (
            f"the changes {start} up to version {until} are not all available (a start is exclusive here, and "
            "inclusive in Delta's change feed)"
        )
        return range_error(self.store, what, earliest, self.version)


def require_version(version: object) -> None:
    """Raise ConfigurationError unless `version` is None or an int."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise ConfigurationError(
            f"{brief(version)} is not a version", advice="pass a whole number; for a time use timestamp="
        )


def to_timestamp_ms(moment: datetime | str) -> int:
    """An aware datetime or ISO-8601 string as whole milliseconds since the epoch. Raises ConfigurationError."""
    return (_to_moment(moment) - _EPOCH) // timedelta(milliseconds=1)


def _to_moment(moment: datetime | str) -> datetime:
    if not isinstance(moment, (str, datetime)):
        raise ConfigurationError(
            f"{brief(moment)} is not a time", advice="pass an aware datetime or an ISO-8601 string"
        )
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        raise ConfigurationError(
            f"{brief(moment)} is not a time", advice="write ISO-8601, like 2026-01-31T12:00:00Z"
        ) from error
    if parsed.tzinfo is None:
        raise ConfigurationError(
            f"{brief(str(moment))} has no time zone, so its meaning would depend on the machine",
            advice="add one, such as Z for UTC",
        )
    return parsed


def _require_positive(n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigurationError(
            f"n must be a whole number from 1 on, not {brief(n)}",
            advice="pass 1 for the newest, 2 for the one before it",
        )

"""A row of numbered files, `<folder>/%020d.json`, of which the newest counts. Consumers and leases are such rows.

Nothing can be overwritten, so each record is a new file, and the newest number counts. A put-if-absent of the next
number succeeds for one writer only: who loses the race looks at what the winner wrote. Older files are deleted, oldest
first, but for a few. Numbers never start again: what ends leaves a record that says so.

A writer that slept for long can put a number that was written and deleted meanwhile. So after the put the file before
must still be the one that it follows: then the number had never been taken. The first record of a table follows none of
its own, and nobody deletes what another table left there. So after that put there must be no higher number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from tidelog.log.errors import ConfigurationError, StoreAccessError, StoreUnavailableError, TidelogError
from tidelog.log.storage import NotDurableError, NotStoredError, Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

_R = TypeVar("_R")

# Numbers have 20 digits, of which the first is never reached.
_FILE = re.compile(r"0\d{19}\.json")
# How many records stay. The newest counts, the one before proves that it is the next one, and people can look at more.
KEPT = 4
# How often a record is tried: each lost race is another writer's record, and a row has few writers.
_ATTEMPTS = 10
# How often a put without an answer is repeated, and a folder that changes meanwhile is read again.
_MAX_PUTS = 4
_MAX_LOOKS = 5
# How many records beyond a listing are looked for before the folder is listed again.
_MAX_PROBES = 100
_BACKOFF_S = 0.005


class UnreadableRecordError(Exception):
    """What is stored is not a record that this version of tidelog understands."""


class _OfTable(msgspec.Struct):
    table: str


_TABLE_DECODER = msgspec.json.Decoder(_OfTable)


def record_to_json(record: msgspec.Struct) -> bytes:
    """The content of a record's file, as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def record_from_json(content: bytes, table_id: str, decoder: msgspec.json.Decoder[_R]) -> _R | None:
    """The record in a file; None if its `table` is another one. Raises UnreadableRecordError."""
    try:
        if _TABLE_DECODER.decode(content).table != table_id:
            return None
        return decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableRecordError(str(error)) from error


@dataclass(frozen=True, slots=True)
class NumberedFiles(Generic[_R]):
    """A row of records: where it is, and how they are written.

    Attributes:
        folder: The folder of the files.
        what: What the records are about, for messages.
        encode: The content of a record's file. No two records may have the same: each needs an id of its own.
        decode: The record in a file; None if it belongs to another table. Raises UnreadableRecordError.
        is_damaged: Whether the content of a file that cannot be decoded is no record of any version of tidelog. Then
            the next record may follow it.
    """

    folder: str
    what: str
    encode: Callable[[_R], bytes]
    decode: Callable[[bytes], _R | None]
    is_damaged: Callable[[bytes], bool] = lambda _: False

    def path_of(self, number: int) -> str:
        """The path of a record."""
        return f"{self.folder}/{number:020d}.json"

    def latest(self, store: Store) -> LatestRecord[_R]:
        """The newest record of the table.

        What is found beyond a listing can be a late put of a number that was deleted while this process slept. So then
        the folder is listed once more.

        Raises UnreadableRecordError if the newest file cannot be understood, StoreUnavailableError.
        """
        for _ in range(_MAX_LOOKS):
            numbers = _numbers(store, self)
            try:
                # A listing may be a moment old, and records are written quickly.
                contents = {number: _read(store, self, number) for number in numbers[-1:]}
                while len(contents) <= _MAX_PROBES:
                    following = max(contents, default=-1) + 1
                    content = _read_if_there(store, self, following)
                    if content is None:
                        break
                    contents[following] = content
                else:
                    continue  # so many are new since the listing
                is_listed = [*contents] == numbers[-1:]
                if is_listed or max(_numbers(store, self), default=-1) < following:
                    return _latest(store, self, numbers, contents)
            except FileNotFoundError:
                continue  # others have written more, and deleted what is older
        raise _busy(store, self)

    def highest_number(self, store: Store) -> int:
        """The newest number in the row, whatever the file holds; -1 if there is none."""
        number = max(_numbers(store, self), default=-1)
        for _ in range(_MAX_PROBES):
            if not _is_there(store, self.path_of(number + 1)):
                return number
            number += 1
        raise _busy(store, self)

    def is_there(self, store: Store, latest: LatestRecord[_R]) -> bool:
        """Whether the file of a record still exists. Raises StoreUnavailableError."""
        return _is_there(store, self.path_of(latest.number))

    def put_after(self, store: Store, system: System, latest: LatestRecord[_R], record: _R) -> LatestRecord[_R] | None:
        """Put `record` as the next one after `latest`, and delete old ones. None if another writer's record is there.

        Raises StoreUnavailableError if the store does not say whether it has the record, which may then still appear;
        ConfigurationError, NotStoredError if it refused it.
        """
        number = latest.number + 1
        content = _put(store, system, self.path_of(number), self.encode(record))
        if content is None:
            return None
        if number and not _was_next(store, system, self, latest):
            return None
        if latest.number not in latest.own and self.highest_number(store) > number:
            return None
        own = _trimmed(store, self, (*latest.own, number))
        return LatestRecord(number, content, record, self.path_of(number), own)


@dataclass(frozen=True, slots=True)
class LatestRecord(Generic[_R]):
    """What is in a row.

    `number` is the newest number in it, also of another table's record; -1 if there is none. `content` is what that
    file holds; None if nobody has read it. `record` is the newest record of the table, `path` its file; None if there
    is none. `own` are the numbers of this table's records, oldest first. `damage` says what is wrong with the newest
    file if that is damaged; then `record` is the newest one before.
    """

    number: int = -1
    content: bytes | None = None
    record: _R | None = None
    path: str = ""
    own: tuple[int, ...] = ()
    damage: str = ""


def before_others(try_once: Callable[[], _R | None], what: str, store: Store, *, advice: str) -> _R:
    """What `try_once` returns once it put its record before others did.

    It looks at the newest record, puts the one after that, and returns None if another writer's came first. Then it is
    called again, _ATTEMPTS times at most.

    Raises what it raises, and StoreUnavailableError with `advice` if others always came first.
    """
    for _ in range(_ATTEMPTS):
        found = try_once()
        if found is not None:
            return found
    raise StoreUnavailableError(
        f"others wrote the record of {what} of {store.url} first, {_ATTEMPTS} times in a row",
        advice=advice,
        path=store.url,
    )


def is_record(name: str) -> bool:
    """Whether a file with this name is a record."""
    return _FILE.fullmatch(name) is not None


def _put(store: Store, system: System, path: str, content: bytes) -> bytes | None:
    """Put the record. Returns what the file holds once it is durable; None once another record is there.

    Each try ends with a line break more than the one before. A try without an answer can be carried out hours later,
    when the record was deleted. Then the file differs from the record that others have read, and they see that.
    """
    failure: Exception | None = None
    for attempt in range(_MAX_PUTS):
        if attempt:
            system.sleep_s(system.uniform(0, _BACKOFF_S * 2**attempt))
        tried = content + b"\n" * attempt
        try:
            store.put_if_absent(path, tried)
        except NotDurableError:
            raise
        except (ConfigurationError, NotStoredError):
            if failure is None:
                raise  # this put stored nothing, and there was none before it
        except FileExistsError as error:
            failure = failure or error
        except (OSError, TidelogError) as error:
            failure = error
        else:
            return tried
        try:
            found = store.read(path)
        except FileNotFoundError:
            continue
        except (OSError, TidelogError) as error:
            failure = error
            continue
        if found.rstrip(b"\n") != content.rstrip(b"\n"):
            return None
        store.sync([path])  # the put that got no answer may not have made it durable
        return found
    raise StoreUnavailableError(
        f"the store did not say whether it holds {path} of {store.url}: {failure}",
        advice="try again; if the record is there, it counts",
        path=store.url,
    ) from failure


def _was_next(store: Store, system: System, row: NumberedFiles[_R], before: LatestRecord[_R]) -> bool:
    """Whether the record before is still there, so that this number had never been taken.

    It must be the same one: a writer that slept, or a late put, may have written a record with that number again.
    """
    failure: Exception | None = None
    for attempt in range(_MAX_PUTS):
        if attempt:
            system.sleep_s(system.uniform(0, _BACKOFF_S * 2**attempt))
        try:
            if before.content is None:
                return _is_there(store, row.path_of(before.number))
            return store.read(row.path_of(before.number)) == before.content
        except FileNotFoundError:
            return False
        except (OSError, TidelogError) as error:
            failure = error
    raise StoreUnavailableError(
        f"a record of {row.what} of {store.url} was written, but the one before could not be looked up",
        advice="try again",
        path=store.url,
    ) from failure


def _trimmed(store: Store, row: NumberedFiles[_R], own: tuple[int, ...]) -> tuple[int, ...]:
    """Delete all but the newest records of this table. Returns what is left.

    Oldest first, and stop at the first failure: a writer that slept relies on that.
    """
    for position, number in enumerate(own[:-KEPT]):
        try:
            store.delete(row.path_of(number))
        except (OSError, TidelogError) as error:
            _LOGGER.info("could not delete an old record of %s of %s: %s", row.what, store.url, error)
            return own[position:]
    return own[-KEPT:]


def _latest(store: Store, row: NumberedFiles[_R], listed: list[int], contents: dict[int, bytes]) -> LatestRecord[_R]:
    """The newest record of the table among the files of a folder, of which the newest were read."""
    number = max(contents, default=-1)
    newest: _R | None = None
    path, own, damage = "", [], ""
    for each in sorted({*listed, *contents}, reverse=True):
        content = contents[each] if each in contents else _read_if_there(store, row, each)
        if content is None:
            continue
        try:
            found = row.decode(content)
        except UnreadableRecordError as error:
            if newest is not None:
                continue
            if not row.is_damaged(content):
                raise UnreadableRecordError(f"{row.path_of(each)}: {error}") from error
            damage = damage or f"{row.path_of(each)}: {error}"
            continue
        if found is not None:
            own.append(each)
            if newest is None:
                newest, path = found, row.path_of(each)
    return LatestRecord(number, contents.get(number), newest, path, tuple(reversed(own)), damage)


def _numbers(store: Store, row: NumberedFiles[_R]) -> list[int]:
    return sorted(int(file[:20]) for file in store.names(row.folder) if is_record(file))


def _read(store: Store, row: NumberedFiles[_R], number: int) -> bytes:
    try:
        return store.read(row.path_of(number))
    except FileNotFoundError:
        raise
    except (OSError, StoreAccessError) as error:
        raise UnreadableRecordError(f"{row.path_of(number)}: {error}") from error


def _read_if_there(store: Store, row: NumberedFiles[_R], number: int) -> bytes | None:
    try:
        return _read(store, row, number)
    except FileNotFoundError:
        return None


def _is_there(store: Store, path: str) -> bool:
    try:
        store.modified_ms(path)
    except FileNotFoundError:
        return False
    return True


def _busy(store: Store, row: NumberedFiles[_R]) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the records of {row.what} of {store.url} change faster than they can be read",
        advice="make sure that it has one owner only, then try again",
        path=store.url,
    )

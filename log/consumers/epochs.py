"""The files that hold the records of a consumer: `_tidelog/consumers/<name>/%020d.json`.

Nothing can be overwritten, so each record is a new file, and the newest number counts. A put-if-absent of the next
number succeeds for one writer only: who loses the race looks at what the winner wrote. Older files are deleted, oldest
first, but for a few. Numbers never start again: a consumer that was removed leaves a record that says so.

A writer that slept for long can put a number that was written and deleted meanwhile. So after the put the file before
must still exist: then the number had never been taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import msgspec

from tidelog.log.consumers import record as records
from tidelog.log.consumers.record import Record, UnreadableRecordError
from tidelog.log.errors import ConfigurationError, StoreAccessError, StoreUnavailableError, TidelogError
from tidelog.log.storage import NotDurableError, NotStoredError, Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

FOLDER = "_tidelog/consumers"
# Numbers have 20 digits, of which the first is never reached.
_FILE = re.compile(r"0\d{19}\.json")
# How many records stay. The newest counts, the one before proves that it is the next one, and people can look at more.
KEPT = 4
# How often a put without an answer is repeated, and a folder that changes meanwhile is read again.
_MAX_PUTS = 4
_MAX_LOOKS = 5
# How many records beyond a listing are looked for before the folder is listed again.
_MAX_PROBES = 100
_BACKOFF_S = 0.005


@dataclass(frozen=True, slots=True)
class Latest:
    """What is in a consumer's folder.

    `number` is the newest number in it, also of another table's record; -1 if there is none. `record` is the newest
    record of the table, `path` its file; None if there is none. `own` are the numbers of this table's records, oldest
    first.
    """

    name: str
    number: int = -1
    record: Record | None = None
    path: str = ""
    own: tuple[int, ...] = ()


def path_of(name: str, number: int) -> str:
    """The path of a record."""
    return f"{FOLDER}/{name}/{number:020d}.json"


def names_of(store: Store) -> list[str]:
    """The names of all folders that hold records, sorted; also those that cannot be the name of a consumer."""
    found = set()
    for path, status in store.walk(FOLDER):
        folder = path.removeprefix(f"{FOLDER}/").rpartition("/")[0]
        if folder and _FILE.fullmatch(status.name):
            found.add(folder)
    return sorted(found)


def read_latest(store: Store, table_id: str, name: str) -> Latest:
    """The newest record of a consumer of the table.

    Raises UnreadableRecordError if the newest file cannot be understood, StoreUnavailableError.
    """
    for _ in range(_MAX_LOOKS):
        numbers = _numbers(store, name)
        try:
            # A listing may be a moment old, and records are written quickly.
            contents = {number: _read(store, name, number) for number in numbers[-1:]}
            while len(contents) <= _MAX_PROBES:
                following = max(contents, default=-1) + 1
                content = _read_if_there(store, name, following)
                if content is None:
                    return _latest(store, table_id, name, numbers, contents)
                contents[following] = content
        except FileNotFoundError:
            continue  # others have written more, and deleted what is older
    raise _busy(store, name)


def newest_number(store: Store, name: str) -> int:
    """The newest number in a consumer's folder, whatever the file holds; -1 if there is none."""
    number = max(_numbers(store, name), default=-1)
    for _ in range(_MAX_PROBES):
        if not _is_there(store, path_of(name, number + 1)):
            return number
        number += 1
    raise _busy(store, name)


def put_next(store: Store, system: System, latest: Latest, record: Record) -> Latest | None:
    """Put `record` as the next one after `latest`, and delete old ones. None if another writer's record is there.

    Raises StoreUnavailableError if the store does not say whether it has the record, which may then still appear;
    ConfigurationError, NotStoredError if it refused it.
    """
    number = latest.number + 1
    if not _put(store, system, path_of(latest.name, number), record):
        return None
    if number and not _was_next(store, system, latest.name, number):
        return None
    if not number and newest_number(store, latest.name) > 0:
        return None
    own = _trimmed(store, latest.name, (*latest.own, number))
    return replace(latest, number=number, record=record, path=path_of(latest.name, number), own=own)


def _put(store: Store, system: System, path: str, record: Record) -> bool:
    """Put the record. True once it is durable; False once another one is there."""
    content = records.encode_record(record)
    failure: Exception | None = None
    for attempt in range(_MAX_PUTS):
        if attempt:
            system.sleep_s(system.uniform(0, _BACKOFF_S * 2**attempt))
        try:
            store.put_if_absent(path, content)
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
            return True
        try:
            found = store.read(path)
        except FileNotFoundError:
            continue
        except (OSError, TidelogError) as error:
            failure = error
            continue
        if _id_of(found) != record.id:
            return False
        store.sync([path])  # the put that got no answer may not have made it durable
        return True
    raise StoreUnavailableError(
        f"the store did not say whether it holds {path} of {store.url}: {failure}",
        advice="try again; if the record is there, it counts",
        path=store.url,
    ) from failure


def _was_next(store: Store, system: System, name: str, number: int) -> bool:
    """Whether the record before still exists, so that this number had never been taken."""
    failure: Exception | None = None
    for attempt in range(_MAX_PUTS):
        if attempt:
            system.sleep_s(system.uniform(0, _BACKOFF_S * 2**attempt))
        try:
            return _is_there(store, path_of(name, number - 1))
        except (OSError, TidelogError) as error:
            failure = error
    raise StoreUnavailableError(
        f"a record of the consumer {name!r} of {store.url} was written, but the one before could not be looked up",
        advice="try again",
        path=store.url,
    ) from failure


def _trimmed(store: Store, name: str, own: tuple[int, ...]) -> tuple[int, ...]:
    """Delete all but the newest records of this table. Returns what is left.

    Oldest first, and stop at the first failure: a writer that slept relies on that.
    """
    for position, number in enumerate(own[:-KEPT]):
        try:
            store.delete(path_of(name, number))
        except (OSError, TidelogError) as error:
            _LOGGER.info("could not delete an old record of the consumer %s of %s: %s", name, store.url, error)
            return own[position:]
    return own[-KEPT:]


def _latest(store: Store, table_id: str, name: str, listed: list[int], contents: dict[int, bytes]) -> Latest:
    """The newest record of the table among the files of a folder, of which the newest were read."""
    number = max(contents, default=-1)
    newest: Record | None = None
    path, own = "", []
    for each in sorted({*listed, *contents}, reverse=True):
        content = contents[each] if each in contents else _read_if_there(store, name, each)
        if content is None:
            continue
        try:
            found = records.decode_record(content, table_id, name)
        except UnreadableRecordError as error:
            if newest is None:
                raise UnreadableRecordError(f"{path_of(name, each)}: {error}") from error
            continue
        if found is not None:
            own.append(each)
            if newest is None:
                newest, path = found, path_of(name, each)
    return Latest(name, number, newest, path, tuple(reversed(own)))


def _numbers(store: Store, name: str) -> list[int]:
    return sorted(int(file[:20]) for file in store.names(f"{FOLDER}/{name}") if _FILE.fullmatch(file))


def _read(store: Store, name: str, number: int) -> bytes:
    try:
        return store.read(path_of(name, number))
    except FileNotFoundError:
        raise
    except (OSError, StoreAccessError) as error:
        raise UnreadableRecordError(f"{path_of(name, number)}: {error}") from error


def _read_if_there(store: Store, name: str, number: int) -> bytes | None:
    try:
        return _read(store, name, number)
    except FileNotFoundError:
        return None


def _is_there(store: Store, path: str) -> bool:
    try:
        store.modified_ms(path)
    except FileNotFoundError:
        return False
    return True


def _id_of(content: bytes) -> str | None:
    try:
        found = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return None
    return found.get("id") if isinstance(found, dict) else None


def _busy(store: Store, name: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the records of the consumer {name!r} of {store.url} change faster than they can be read",
        advice="make sure that it has one owner only, then try again",
        path=store.url,
    )

"""The files that hold the records of a consumer: a row of numbered files, `_tidelog/consumers/<name>/%020d.json`.

Numbers never start again: a consumer that was removed leaves a record that says so.
"""

from __future__ import annotations

from functools import partial

from tidelog.log.consumers.consumer_record import Record, decode_record, encode_record
from tidelog.log.numbered_files import LatestRecord, NumberedFiles, is_record
from tidelog.log.storage import Store
from tidelog.log.system import System

FOLDER = "_tidelog/consumers"


def path_of(name: str, number: int) -> str:
    """The path of a record."""
    return _row("", name).path_of(number)


def names_of(store: Store) -> list[str]:
    """The names of all folders that hold records, sorted; also those that cannot be the name of a consumer."""
    found = set()
    for path, status in store.walk(FOLDER):
        folder = path.removeprefix(f"{FOLDER}/").rpartition("/")[0]
        if folder and is_record(status.name):
            found.add(folder)
    return sorted(found)


def read_latest(store: Store, table_id: str, name: str) -> LatestRecord[Record]:
    """The newest record of a consumer of the table. Raises the errors of `NumberedFiles.latest`."""
    return _row(table_id, name).latest(store)


def newest_number(store: Store, name: str) -> int:
    """The newest number in a consumer's folder, whatever the file holds; -1 if there is none."""
    return _row("", name).highest_number(store)


def put_next(store: Store, system: System, latest: LatestRecord[Record], record: Record) -> LatestRecord[Record] | None:
    """Put `record` as the next one after `latest`; see `NumberedFiles.put_after`."""
    return _row(record.table, record.name).put_after(store, system, latest, record)


def _row(table_id: str, name: str) -> NumberedFiles[Record]:
    decode = partial(decode_record, table_id=table_id, name=name)
    return NumberedFiles(f"{FOLDER}/{name}", f"the consumer {name!r}", encode_record, decode)

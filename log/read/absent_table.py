"""What is at a path without a table, so that the error of a reader, or of who creates one there, says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.format.filenames import LOG_FOLDER
from tidelog.log.presentable import did_you_mean
from tidelog.log.storage import Store, open_store

# In how many folders below the path to look for a table; each look can take a request.
_MOST_LOOKS = 20
# How many files below the path to look at.
_MOST_FILES = 100
_CONVERT = "make a table of them with Table.convert"


class Something(NamedTuple):
    """What is at the path, as the end of a sentence about it, and what to do."""

    what: str
    advice: str


def what_is_there(store: Store) -> Something | None:
    """What is at the root of `store`, which holds no table. None if nothing is known about it."""
    above = store.url.partition(f"/{LOG_FOLDER}")[0]
    if above != store.url:
        return Something("it is a folder of a table's log", f"open {above}")
    try:
        return _partition_of_a_table(store) or _another_thing(store)
    except (TidelogError, OSError):  # the error that is at hand says more
        return None


def require_unused(store: Store) -> None:
    """Raise ConfigurationError if rows of something else are at the root of `store`, which a new table would not show.

    A clean-up would delete their files, as no version of the table names them. A log is no obstacle here.
    """
    try:
        folders = store.folders(until=LOG_FOLDER)
    except FileNotFoundError:  # no folder can have the path, as the first file that is put there will show
        return
    found = None if LOG_FOLDER in folders else _foreign_table(store, folders) or _parquet(store, folders)
    # Another writer may have made a table meanwhile, whose files these are.
    if found is not None and LOG_FOLDER not in store.folders(until=LOG_FOLDER):
        raise ConfigurationError(
            f"cannot create a table at {store.url}: {found.what}",
            advice=f"choose another path, or {found.advice}" if found.advice == _CONVERT else "choose another path",
            path=store.url,
        )


def _parquet(store: Store, folders: Sequence[str]) -> Something | None:
    partitions = [name for name in folders if "=" in name][:_MOST_LOOKS]
    names = (name for folder in ["", *partitions] for name in store.names(folder))
    if any(name.endswith(".parquet") and not name.startswith(("_", ".")) for name in names):
        return Something("it is a folder of parquet files", _CONVERT)
    return None


def _partition_of_a_table(store: Store) -> Something | None:
    above = store.url
    while "=" in above.rpartition("/")[2]:
        above = above.rpartition("/")[0]
    if above == store.url or LOG_FOLDER not in open_store(above, store.storage_options).folders(until=LOG_FOLDER):
        return None
    return Something(
        f"it is a partition folder of the table at {above}", "open that one, and read the partition by `where`"
    )


def _another_thing(store: Store) -> Something | None:
    if _is_local(store) and Path(store.url).is_file():
        return Something("it is a file, and a table is a folder", "pass the table's folder")
    folders = store.folders()
    known = _folder_of_tables(store, folders) or _foreign_table(store, folders)
    if known is not None:
        return known
    paths = [path for path, _ in islice(store.walk(), _MOST_FILES)]
    inner = next((path for path in paths if f"/{LOG_FOLDER}/" in path), None)
    if inner is not None:
        return Something("there is one below it", f"open {store.url}/{inner.partition(f'/{LOG_FOLDER}/')[0]}")
    if any(path.endswith(".parquet") for path in paths):
        return Something("it is a folder of parquet files", _CONVERT)
    if paths:
        return Something(f"it is a folder of other files, such as {min(paths)}", "check the path")
    if _is_local(store):
        return _nothing(store)
    return None


def _folder_of_tables(store: Store, folders: Sequence[str]) -> Something | None:
    looked_at = folders[:_MOST_LOOKS]
    tables = [name for name in looked_at if LOG_FOLDER in store.folders(name, until=LOG_FOLDER)]
    if not tables:
        return None
    more = ", and maybe others" if len(folders) > len(looked_at) else ""
    return Something(
        f"it is a folder of tables ({', '.join(tables)}{more})", f"open one of them, such as {store.url}/{tables[0]}"
    )


def _foreign_table(store: Store, folders: Sequence[str]) -> Something | None:
    """A table of another format, or the checkpoint of a streaming query."""
    copied = "read it with an engine that knows the format, and write its rows to a table of their own"
    if ".hoodie" in folders:
        return Something("it is a Hudi table", copied)
    if "metadata" in folders and any(name.endswith(".metadata.json") for name in store.names("metadata")):
        return Something("it is an Iceberg table", copied)
    if {"offsets", "commits"} <= set(folders):
        return Something("it is the checkpoint of a streaming query", "open the table that the query writes")
    return None


def _nothing(store: Store) -> Something | None:
    """A local folder that is empty or not there."""
    path = Path(store.url)
    if path.is_dir():
        return Something("the folder is empty", "check the path, or create the table with Table.create or a Sink")
    siblings = open_store(str(path.parent)).folders()
    guess = did_you_mean(path.name, siblings)
    if not guess:
        return None
    return Something("the folder does not exist", f"{guess}create the table with Table.create or a Sink")


def _is_local(store: Store) -> bool:
    return "://" not in store.url

"""From the path that a user gives to the store that holds it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.log.errors import StoreNotSupportedError
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.storage.store import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def open_store(path: str, storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at a local path, a `file:` URL or a `memory://` URL.

    Raises StoreNotSupportedError for any other kind: a table is only as safe as its store's put-if-absent, so a
    store is refused unless tidelog has proven that it has one.
    """
    del storage_options  # neither a disk nor memory takes any
    match = _SCHEME.match(str(path))
    scheme = match.group(1).lower() if match else "file"
    if scheme == "file":
        return LocalStore(str(path))
    if scheme == "memory":
        return MemoryStore(str(path))
    raise StoreNotSupportedError(
        f"a {scheme!r} store is not known to create a file if and only if it is absent",
        advice="use a local path, file:// or memory://",
        path=str(path),
    )

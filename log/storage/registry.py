"""Open the store for a path or URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError, StoreNotSupportedError
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.location import KINDS
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.storage.object_store import ObjectStore
from tidelog.log.storage.store import Store
from tidelog.log.system import environment

OUTSIDE_FILES = "TIDELOG_OUTSIDE_FILES"
"""The environment variable that says whether files outside a table's folder are read.

It is not a table property, because it is for tables that cannot be trusted.
"""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# Without these a path names nothing: an empty one would be the current folder, and `s3://` has no bucket.
_NAMELESS = re.compile(r"\s*(file:(//)?|(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/*)?\s*", re.IGNORECASE)


def open_store(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open the store at a local path, a `file:` or `memory://` URL, or a URL of S3, Google Cloud Storage or Azure.

    `storage_options` are arguments for an object store's fsspec file system; local and memory stores take none.
    With `TIDELOG_OUTSIDE_FILES=refuse` in the environment, the store reads no file outside its root.

    Raises StoreNotSupportedError for any other kind of store: a table is only as safe as its store's put-if-absent, so
    tidelog accepts only stores that are known to have it. Raises ConfigurationError for something that is no path.
    """
    path = _text(path)
    if not isinstance(storage_options, Mapping | None):
        raise ConfigurationError(
            f"storage options must be a dict, not {type(storage_options).__name__}",
            advice="pass, for example, {'endpoint_url': 'https://minio.example:9000'}",
        )
    match = _SCHEME.match(path)
    scheme = match.group(1).lower() if match else "file"
    if scheme == "file":
        return LocalStore(path, confined=_confined())
    if scheme == "memory":
        return MemoryStore(path)
    if scheme in KINDS:
        return ObjectStore(path, storage_options, confined=_confined())
    raise StoreNotSupportedError(
        f"{scheme!r} is not a supported store: commits need one that creates a file only if it is absent",
        advice="use a local path, file://, memory://, s3://, gs:// or abfs://",
        path=path,
    )


def _confined() -> bool:
    value = environment(OUTSIDE_FILES) or "allow"
    if value not in {"allow", "refuse"}:
        raise ConfigurationError(f"{OUTSIDE_FILES}={value!r} is not known", advice="set it to 'allow' or 'refuse'")
    return value == "refuse"


def _text(path: object) -> str:
    """The text of a path or URL. Raises ConfigurationError for an empty one, and for anything that is none."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ConfigurationError(
            f"the path of a table must be text, not {type(text).__name__}", advice="pass a local path or a URL"
        )
    if _NAMELESS.fullmatch(text):
        raise ConfigurationError(f"the path {text!r} names no table", advice="pass a local path or a URL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    else:
        is_name = "\0" not in text
    if not is_name:
        raise ConfigurationError(
            f"the path {text!r} has a character that no file name can have", advice="remove that character"
        )
    return text

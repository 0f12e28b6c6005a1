"""Local paths, `file:` URLs, and what is in a folder."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

from tidelog.log.errors import ConfigurationError
from tidelog.log.storage.store import FileStatus

_SCHEME = re.compile(r"^file:(//(localhost(?=/))?)?", re.IGNORECASE)
# Between `file://` and the path a URL can name a host. Without one, `~` is the user's home, as in a plain path.
_HOST = re.compile(r"^[^/~]")


def without_scheme(path: str) -> str:
    """The path in a `file:` URL; a plain path as it is."""
    return _SCHEME.sub("", path)


def absolute(root: str) -> Path:
    """The absolute path of a table. Raises ConfigurationError if there is none, or if it is on another host."""
    path = without_scheme(root)
    if root.lower().startswith("file://") and _HOST.match(path):
        raise ConfigurationError(
            f"{root} names the host {path.partition('/')[0]!r}, but a file: URL must name a file of this machine",
            advice=f"write file:///{path} for a path from the root, or a path without file:",
            path=root,
        )
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # there is no such user, or the current folder was deleted
        raise ConfigurationError(
            f"the path {root!r} cannot be made absolute: {error}", advice="pass an absolute path", path=root
        ) from error


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a file, or a link to one."""
    return _is(entry.is_file)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder, or a link to one."""
    return _is(entry.is_dir)


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def status_of(entry: os.DirEntry[str]) -> FileStatus | None:
    """What a listing says of a file; None if the entry is something else, or gone."""
    try:
        if not is_file(entry):
            return None
        stat = entry.stat()
    except FileNotFoundError:  # deleted while the folder was listed
        return None
    return FileStatus(entry.name, stat.st_size, stat.st_mtime_ns // 1_000_000)

"""What the operating system answers when a local file cannot be read or written, as the errors of every store."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tidelog.log.errors import PathNotWritableError, StoreAccessError, StoreNotSupportedError, StoreUnavailableError
from tidelog.log.storage.store import NotReadError, NotStoredError, Store, UnreadableFileError

# What is there, or its permissions, forbid writing.
NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT}
# No file can exist at a path below a file, or with such a name.
_NO_SUCH_PATH = {errno.ENOTDIR, errno.ENAMETOOLONG}

_S = TypeVar("_S", bound=Store)
_T = TypeVar("_T")
_P = ParamSpec("_P")


def reading(method: Callable[Concatenate[_S, str, _P], _T]) -> Callable[Concatenate[_S, str, _P], _T]:
    """Convert the operating system's errors of a method that reads a path, but not those that the store promises."""

    @functools.wraps(method)
    def converted(store: _S, path: str, /, *more: _P.args, **named: _P.kwargs) -> _T:
        try:
            return method(store, path, *more, **named)
        except OSError as error:
            if error.errno in _NO_SUCH_PATH:
                raise FileNotFoundError(path) from error
            if isinstance(error, PermissionError):
                raise StoreAccessError(
                    f"cannot read {path or 'the folder'} of {store.url}: {error.strerror}",
                    advice="give this user permission to read the table's files and to list its folders",
                    path=store.url,
                ) from error
            if error.errno == errno.ELOOP:
                raise UnreadableFileError(error.errno, "a symbolic link that leads nowhere", path) from error
            if isinstance(error, (FileNotFoundError, UnreadableFileError)):
                raise
            raise NotReadError(
                f"reading {path or 'the folder'} of {store.url} failed: {error.strerror or error}",
                advice="repair the disk, or what else the message names, then retry",
                path=store.url,
            ) from error

    return converted


@contextmanager
def writing(target: Path, url: str, failed: type[StoreUnavailableError] = StoreUnavailableError) -> Iterator[None]:
    """Convert the operating system's errors of a block that writes; FileExistsError passes through.

    Args:
        target: What is written.
        url: The store's.
        failed: The error for a disk that is full or fails.
    """
    try:
        yield
    except (FileExistsError, StoreNotSupportedError):
        raise
    except OSError as error:
        if error.errno in NOT_WRITABLE:
            raise PathNotWritableError(
                f"cannot write {target}: {error.strerror}",
                advice="check the path, its permissions (reading included) and whether it is mounted read-only",
                path=url,
            ) from error
        outcome = "; nothing was committed" if failed is NotStoredError else ""
        raise failed(
            f"writing {target} failed: {error.strerror}",
            advice=f"free up space or repair the disk, then retry{outcome}",
            path=url,
        ) from error

"""The requests that an object store sends, through an fsspec file system with its credentials and connections.

A cloud's module uses fsspec's method if it does exactly what is needed, and otherwise the library's lower-level call:
fsspec's listings mistake a file for a missing folder of that name, and its lookups fall back to listings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidelog.log.errors import ConfigurationError
from tidelog.log.storage.store import FileStatus

if TYPE_CHECKING:
    import aiohttp


class Failure(Enum):
    """What an error from a cloud's library means for the store."""

    EXISTS = auto()
    NOT_FOUND = auto()
    NO_BUCKET = auto()
    DENIED = auto()  # refused permanently: credentials, permissions, region or an invalid request
    NO_CREDENTIALS = auto()  # none were found on this machine, so nothing was sent
    REJECTED = auto()  # refused or not even sent, so that nothing was done; usually throttling
    TRANSIENT = auto()  # no answer, or an answer that does not say whether the request was carried out
    UNSUPPORTED = auto()  # the server does not know the request or its condition
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The meaning of an error, and its text from the server, which may contain secrets."""

    failure: Failure
    text: str


FIXED: dict[str, Any] = {"asynchronous": False, "use_listings_cache": False, "skip_instance_cache": True}
"""Arguments for every file system: no stale cache, and no instance that other code could close."""


class Cloud(ABC):
    """An account in an object store, accessed through one fsspec file system in this process."""

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The server's URL, without secrets."""

    @property
    @abstractmethod
    def documented(self) -> bool:
        """Whether the endpoint is the vendor's own, whose documentation promises conditional puts."""

    def put(self, bucket: str, key: str, content: bytes, *, create: bool) -> None:
        """Write the whole object. With `create`, raise FileExistsError if it already exists."""
        self._fs.pipe_file(f"{bucket}/{key}", content, mode="create" if create else "overwrite")

    def put_file(self, bucket: str, key: str, local: str) -> None:
        """Write the whole object from a local file, in parts if it is large. Raises FileExistsError if it exists."""
        self._fs.put_file(local, f"{bucket}/{key}", mode="create")

    def read(self, bucket: str, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes from `start` up to but not including `end`; without them, the whole object."""
        content: bytes = self._fs.cat_file(f"{bucket}/{key}", start=start, end=end)
        return content

    def delete(self, bucket: str, key: str) -> None:
        """Delete the object. Raises FileNotFoundError if it does not exist and the store says so."""
        self._fs.rm_file(f"{bucket}/{key}")

    @property
    def lists_from(self) -> bool:
        """Whether `between` sends no requests for the names before the first one, and `list` one for each page."""
        return False

    @property
    def deletes_at_once(self) -> int:
        """How many objects `delete_many` takes; 1 if there is no such request."""
        return 1

    def delete_many(self, bucket: str, keys: Sequence[str]) -> list[str]:
        """Delete the objects with one request. Returns the keys of those that the server did not delete.

        An object that does not exist counts as deleted.
        """
        raise NotImplementedError

    @abstractmethod
    def stat(self, bucket: str, key: str) -> FileStatus:
        """Size and time of the object, from the server. The time equals the one in a listing."""

    @abstractmethod
    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """The objects directly below `prefix`, which ends with `/` or is empty; with `deep`, at any depth."""

    @abstractmethod
    def folders(self, bucket: str, prefix: str, *, until: str) -> Iterator[str]:
        """The names of the folders directly below `prefix`, as `entries` takes it; may end with the page of `until`."""

    def list(self, bucket: str, prefix: str) -> Iterator[FileStatus]:
        """The objects directly below `prefix`."""
        return (status for _, status in self.entries(bucket, prefix, deep=False))

    def between(self, bucket: str, prefix: str, first: str, last: str) -> Iterator[FileStatus]:
        """The objects directly below `prefix` with names from `first` to `last`, and maybe others."""
        del first, last
        return self.list(bucket, prefix)

    @abstractmethod
    def diagnose(self, error: BaseException) -> Diagnosed:
        """Work out what an error means."""


def folder_names(prefixes: Iterable[str], parent: str) -> list[str]:
    """The bare names of common prefixes, each of which begins with `parent` and ends with `/`."""
    return [name for prefix in prefixes if (name := prefix[len(parent) :].strip("/"))]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__


def by_status(status: int) -> Failure:
    """The meaning of an HTTP status, if the server gave no more specific code."""
    match status:
        case HTTPStatus.NOT_FOUND:
            return Failure.NOT_FOUND
        case HTTPStatus.PRECONDITION_FAILED:
            return Failure.EXISTS
        case HTTPStatus.MOVED_PERMANENTLY | HTTPStatus.TEMPORARY_REDIRECT:  # S3: the bucket is in another region
            return Failure.DENIED
        case HTTPStatus.NOT_IMPLEMENTED:
            return Failure.UNSUPPORTED
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Failure.REJECTED
        case _ if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Failure.TRANSIENT
        case _ if status >= HTTPStatus.BAD_REQUEST:
            return Failure.DENIED
        case _:
            return Failure.UNKNOWN


def by_kind(error: BaseException) -> Failure:
    """The meaning of an error without an answer from the server."""
    match error:
        case FileExistsError():
            return Failure.EXISTS
        case FileNotFoundError():
            return Failure.NOT_FOUND
        case PermissionError():
            return Failure.DENIED
        case TimeoutError() | ConnectionError():
            return Failure.TRANSIENT
        case _:
            return Failure.UNKNOWN


def milliseconds(moment: datetime) -> int:
    """An aware datetime as ms since the epoch."""
    return round(moment.timestamp() * 1000)


def sent_once(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """The session, which from now on sends each request once. Raises ConfigurationError if aiohttp has no such switch.

    The libraries of all clouds use aiohttp, which sends an idempotent request (so also a conditional put) again if its
    connection breaks. Whatever the second try is told proves nothing about the first: that may be stored, and the
    second one may be throttled, refused or unable to connect. aiohttp has no public option for this; its own test
    client sets the same attribute.
    """
    import aiohttp  # noqa: PLC0415 - it comes with the extra of a cloud

    if not hasattr(session, "_retry_connection"):
        raise ConfigurationError(
            f"aiohttp {aiohttp.__version__} cannot be kept from repeating requests, so a stored commit could be "
            "reported as failed",
            advice="install aiohttp 3.14",
        )
    session._retry_connection = False  # noqa: SLF001
    return session

"""What an object store is asked for, over the fsspec file system that knows its credentials and connections.

A cloud's module uses fsspec's own method where that does exactly what is asked, and the same library's lower-level call
where it does not: fsspec's listings take a file for a folder that is not there, and its look-ups fall back to listings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from tidelog.log.storage.store import FileStatus


class Failure(Enum):
    """What an error of a cloud's library means to the store."""

    EXISTS = auto()
    NOT_FOUND = auto()
    NO_BUCKET = auto()
    DENIED = auto()  # refused for good: credentials, permissions, region, or a request that is wrong
    REJECTED = auto()  # turned away before anything was done, most often by throttling
    TRANSIENT = auto()  # no answer, or one that does not say whether it was done
    UNSUPPORTED = auto()  # the server does not know the request or its condition
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """An error, understood: what it means, and in the server's words, which may hold secrets still."""

    failure: Failure
    text: str


FIXED: dict[str, Any] = {"asynchronous": False, "use_listings_cache": False, "skip_instance_cache": True}
"""Arguments of every file system: nothing stale, and no instance that another part of the program closes."""


class Cloud(ABC):
    """One account of one kind of object store, through one file system of this process."""

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The server's URL, without secrets."""

    @property
    @abstractmethod
    def documented(self) -> bool:
        """Whether the endpoint is the vendor's own, whose documentation promises the conditional put."""

    def put(self, bucket: str, key: str, content: bytes, *, create: bool) -> None:
        """Write the object whole; with `create` if and only if there is none, else raise FileExistsError."""
        self._fs.pipe_file(f"{bucket}/{key}", content, mode="create" if create else "overwrite")

    def put_file(self, bucket: str, key: str, local: str) -> None:
        """Write the object whole from a local file, in parts where it is large, if and only if there is none."""
        self._fs.put_file(local, f"{bucket}/{key}", mode="create")

    def read(self, bucket: str, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes from `start` to before `end`; the whole object without them."""
        content: bytes = self._fs.cat_file(f"{bucket}/{key}", start=start, end=end)
        return content

    def delete(self, bucket: str, key: str) -> None:
        """Remove the object; FileNotFoundError where the store tells that there is none."""
        self._fs.rm_file(f"{bucket}/{key}")

    @abstractmethod
    def stat(self, bucket: str, key: str) -> FileStatus:
        """Size and time of the object, asked of the server. Its time is the one that a listing shows."""

    @abstractmethod
    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """The objects whose key is `prefix` (ends with `/`, or is empty) and a name without `/`; `deep`: any name."""

    def list(self, bucket: str, prefix: str) -> Iterator[FileStatus]:
        """The objects directly below `prefix`."""
        return (status for _, status in self.entries(bucket, prefix, deep=False))

    @abstractmethod
    def diagnose(self, error: BaseException) -> Diagnosed:
        """What an error means."""


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__


def by_status(status: int) -> Failure:
    """What an HTTP status means where the server gave no better code."""
    match status:
        case HTTPStatus.NOT_FOUND:
            return Failure.NOT_FOUND
        case HTTPStatus.PRECONDITION_FAILED:
            return Failure.EXISTS
        case HTTPStatus.MOVED_PERMANENTLY | HTTPStatus.TEMPORARY_REDIRECT:  # S3: the bucket is in another region
            return Failure.DENIED
        case HTTPStatus.NOT_IMPLEMENTED:
            return Failure.UNSUPPORTED
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.SERVICE_UNAVAILABLE:
            return Failure.REJECTED
        case _ if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Failure.TRANSIENT
        case _ if status >= HTTPStatus.BAD_REQUEST:
            return Failure.DENIED
        case _:
            return Failure.UNKNOWN


def by_kind(error: BaseException) -> Failure:
    """What an error without an answer of the server means."""
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

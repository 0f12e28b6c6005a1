"""Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import gcsfs.core
import google.auth.exceptions
import requests.exceptions
from gcsfs.retry import ChecksumError, HttpError

from tidelog.log.storage.cloud import (
    FIXED,
    Cloud,
    Diagnosed,
    Failure,
    by_kind,
    by_status,
    chain,
    folder_names,
    milliseconds,
    sent_once,
)
from tidelog.log.storage.store import FileStatus

_NO_ANSWER = (aiohttp.ClientError, requests.exceptions.RequestException, ChecksumError)
# gcsfs sends a small object in a multipart form with this boundary; content that contains it would be truncated.
_BOUNDARY = b"--==0=="


# The core class, because the one that gcsfs exports asks another service for the bucket's type before each call.
class _FileSystem(gcsfs.core.GCSFileSystem):  # type: ignore[misc]
    """gcsfs without its own retries: repeating a conditional put would find its own object and report failure."""

    async def _set_session(self) -> aiohttp.ClientSession:
        return sent_once(await super()._set_session())

    async def _request(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        send = gcsfs.core.GCSFileSystem._request.__wrapped__  # noqa: SLF001
        if method != "DELETE" or "upload_id=" not in path:
            return await send(self, method, path, *args, **kwargs)
        # The clean-up after a failed upload: its own error must not hide how the upload failed.
        with contextlib.suppress(Exception):
            await send(self, method, path, *args, **kwargs)
        return None, {}, None, b""


class GCS(Cloud):
    """`ifGenerationMatch=0`, which gcsfs sends for `mode="create"` with simple and with resumable uploads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(_FileSystem(**{"project": "", "consistency": "size", **options, **FIXED}))

    @property
    def endpoint(self) -> str:
        """See Cloud."""
        return str(self._fs.base)

    @property
    def documented(self) -> bool:
        """See Cloud."""
        return (urlsplit(self.endpoint).hostname or "").endswith(".googleapis.com")

    def put(self, bucket: str, key: str, content: bytes, *, create: bool) -> None:
        """See Cloud."""
        mode = "create" if create else "overwrite"
        if _BOUNDARY in content:  # with a chunk as large as the content, gcsfs uses a resumable upload, not a form
            self._fs.pipe_file(f"{bucket}/{key}", content, mode=mode, chunksize=len(content))
        else:
            self._fs.pipe_file(f"{bucket}/{key}", content, mode=mode)

    def put_file(self, bucket: str, key: str, local: str) -> None:
        """See Cloud. What gcsfs would send as a form goes through `put`, which checks for the boundary."""
        path = Path(local)
        if path.stat().st_size < 5 * 2**20:
            self.put(bucket, key, path.read_bytes(), create=True)
        else:
            super().put_file(bucket, key, local)

    def stat(self, bucket: str, key: str) -> FileStatus:
        """See Cloud."""
        return _status(self._fs.call("GET", "b/{}/o/{}", bucket, key, json_out=True))

    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """See Cloud."""
        for page in self._pages(bucket, prefix, deep=deep):
            for resource in page.get("items", ()):
                yield resource["name"], _status(resource)

    def folders(self, bucket: str, prefix: str, *, until: str) -> Iterator[str]:
        """See Cloud."""
        for page in self._pages(bucket, prefix, deep=False):
            names = folder_names(page.get("prefixes", ()), prefix)
            yield from names
            if until in names:
                return

    @property
    def lists_from(self) -> bool:
        """See Cloud."""
        return True

    def between(self, bucket: str, prefix: str, first: str, last: str) -> Iterator[FileStatus]:
        """See Cloud."""
        for page in self._pages(bucket, prefix, deep=False, startOffset=f"{prefix}{first}"):
            for resource in page.get("items", ()):
                if resource["name"] > f"{prefix}{last}":
                    return
                yield _status(resource)

    def _pages(self, bucket: str, prefix: str, *, deep: bool, **more: str) -> Iterator[Mapping[str, Any]]:
        request = {"prefix": prefix, **({} if deep else {"delimiter": "/"}), **more}
        while True:
            page = self._fs.call("GET", "b/{}/o", bucket, json_out=True, **request)
            yield page
            if not page.get("nextPageToken"):
                return
            request["pageToken"] = page["nextPageToken"]

    def diagnose(self, error: BaseException) -> Diagnosed:
        """See Cloud."""
        for cause in chain(error):
            if isinstance(cause, HttpError) and cause.code:
                return Diagnosed(by_status(int(cause.code)), str(cause))
            if isinstance(cause, google.auth.exceptions.TransportError):
                return Diagnosed(Failure.TRANSIENT, str(cause))
            if isinstance(cause, google.auth.exceptions.GoogleAuthError) or str(cause).startswith(
                ("Forbidden", "Bad Request")
            ):
                return Diagnosed(Failure.DENIED, str(cause))
            if isinstance(cause, _NO_ANSWER):
                return Diagnosed(Failure.TRANSIENT, f"{type(cause).__name__}: {cause}")
        return Diagnosed(by_kind(error), f"{type(error).__name__}: {error}")


def _status(resource: Mapping[str, Any]) -> FileStatus:
    modified = datetime.fromisoformat(resource["updated"])
    return FileStatus(resource["name"].rpartition("/")[2], int(resource["size"]), milliseconds(modified))

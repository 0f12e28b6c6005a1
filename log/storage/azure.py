"""Azure Blob Storage and Data Lake Storage (Gen2), through adlfs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

import adlfs
import aiohttp
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.storage.blob import BlobProperties
from fsspec.asyn import sync

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

_CODES = {
    "BlobAlreadyExists": Failure.EXISTS,
    "ConditionNotMet": Failure.EXISTS,
    "BlobNotFound": Failure.NOT_FOUND,
    "ContainerNotFound": Failure.NO_BUCKET,
    "ContainerBeingDeleted": Failure.NO_BUCKET,
    "ServerBusy": Failure.REJECTED,
}


class _FileSystem(adlfs.AzureBlobFileSystem):  # type: ignore[misc]
    """adlfs that uses `container/key` as it is: its own parsing mishandles `?` and `#` in a key."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.lstrip("/")


class Azure(Cloud):
    """`If-None-Match: *` on Put Blob and Put Block List, which adlfs sends for `mode="create"`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(_FileSystem(**{**options, **FIXED}))
        # ObjectStore retries. A client that repeats a conditional put finds its own object and reports a failure.
        self._fs.service_client._config.retry_policy.total_retries = 0  # noqa: SLF001 - adlfs offers no option
        sync(self._fs.loop, self._open)

    async def _open(self) -> None:
        """Make the session now that all clients of this service share; the library would make it later."""
        transport = self._fs.service_client._pipeline._transport  # noqa: SLF001 - adlfs offers no option
        await transport.open()
        sent_once(transport.session)

    @property
    def endpoint(self) -> str:
        """See Cloud."""
        # The client's URL can contain a SAS token.
        return str(self._fs.service_client.url).partition("?")[0]

    @property
    def documented(self) -> bool:
        """See Cloud."""
        return ".core.windows.net" in (urlsplit(self.endpoint).hostname or "")

    def stat(self, bucket: str, key: str) -> FileStatus:
        """See Cloud. A real folder (Gen2) does not count as a file."""
        properties = sync(self._fs.loop, self._properties, bucket, key)
        if _is_folder(properties):
            raise FileNotFoundError(key)
        return _status(properties)

    async def _properties(self, bucket: str, key: str) -> BlobProperties:
        async with self._fs.service_client.get_blob_client(bucket, key) as client:
            properties: BlobProperties = await client.get_blob_properties()
            return properties

    async def _blobs(self, bucket: str, prefix: str, *, deep: bool) -> list[BlobProperties]:
        async with self._fs.service_client.get_container_client(bucket) as client:
            if deep:
                return [blob async for blob in client.list_blobs(name_starts_with=prefix, include=["metadata"])]
            blobs = client.walk_blobs(name_starts_with=prefix, include=["metadata"], delimiter="/")
            return [blob async for blob in blobs if isinstance(blob, BlobProperties)]

    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """See Cloud."""
        found: list[BlobProperties] = sync(self._fs.loop, self._blobs, bucket, prefix, deep=deep)
        return ((properties.name, _status(properties)) for properties in found if not _is_folder(properties))

    def folders(self, bucket: str, prefix: str, *, until: str) -> Iterator[str]:
        """See Cloud."""
        return iter(sync(self._fs.loop, self._folders, bucket, prefix, until))

    def between(self, bucket: str, prefix: str, first: str, last: str) -> Iterator[FileStatus]:
        """See Cloud. What the names begin with bounds the listing: not every version of the library can start later."""
        common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
        found = sync(self._fs.loop, self._blobs, bucket, prefix + common, deep=False)
        return (_status(properties) for properties in found if not _is_folder(properties))

    async def _folders(self, bucket: str, prefix: str, until: str) -> list[str]:
        found: list[str] = []
        async with self._fs.service_client.get_container_client(bucket) as client:
            async for entry in client.walk_blobs(name_starts_with=prefix, delimiter="/"):
                if not isinstance(entry, BlobProperties):
                    found += folder_names([entry.name], prefix)
                    if found[-1:] == [until]:
                        break
        return found

    def diagnose(self, error: BaseException) -> Diagnosed:
        """See Cloud."""
        for cause in chain(error):
            if isinstance(cause, HttpResponseError) and cause.status_code:
                code = str(getattr(cause, "error_code", None) or "")
                return Diagnosed(_CODES.get(code) or by_status(cause.status_code), f"{code} ({cause.status_code})")
            if isinstance(cause, ClientAuthenticationError):
                return Diagnosed(Failure.DENIED, cause.message)
            if isinstance(cause, (AzureError, aiohttp.ClientError)):
                return Diagnosed(Failure.TRANSIENT, f"{type(cause).__name__}: {cause}")
        return Diagnosed(by_kind(error), f"{type(error).__name__}: {error}")


def _is_folder(properties: Any) -> bool:
    metadata = {name.lower(): value for name, value in (properties.metadata or {}).items()}
    return metadata.get("hdi_isfolder") == "true"


def _status(properties: Any) -> FileStatus:
    return FileStatus(properties.name.rpartition("/")[2], properties.size, milliseconds(properties.last_modified))

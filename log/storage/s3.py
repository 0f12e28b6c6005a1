"""Amazon S3 and S3-compatible servers, through s3fs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import botocore.exceptions
import s3fs
from aiobotocore.httpsession import AIOHTTPSession

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
    "NoSuchBucket": Failure.NO_BUCKET,
    "NoSuchKey": Failure.NOT_FOUND,
    "404": Failure.NOT_FOUND,  # the code of a HEAD request, whose answer has no body
    "PreconditionFailed": Failure.EXISTS,
    # For the loser of two simultaneous conditional puts: nothing was written, try again.
    "ConditionalRequestConflict": Failure.REJECTED,
    "OperationAborted": Failure.REJECTED,
    "SlowDown": Failure.REJECTED,
    "ThrottlingException": Failure.REJECTED,
    "Throttling": Failure.REJECTED,
    "RequestLimitExceeded": Failure.REJECTED,
    "RequestTimeout": Failure.TRANSIENT,
    "NotImplemented": Failure.UNSUPPORTED,
    "AuthorizationHeaderMalformed": Failure.DENIED,
    "IllegalLocationConstraintException": Failure.DENIED,
    "InvalidBucketName": Failure.NO_BUCKET,
    "ExpiredToken": Failure.DENIED,
}
# The end of a directory bucket's name (S3 Express). Its listings are in no order.
_UNSORTED = "--x-s3"
_BAD_CREDENTIALS = (
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
    botocore.exceptions.ProfileNotFound,
    botocore.exceptions.UnauthorizedSSOTokenError,
    botocore.exceptions.SSOTokenLoadError,
)
_NO_ANSWER = (
    aiohttp.ClientError,
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.IncompleteReadError,
    botocore.exceptions.ResponseStreamingError,
)


class _HttpSession(AIOHTTPSession):  # type: ignore[misc]
    """aiobotocore's connections, without aiohttp's own repetitions."""

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        return sent_once(await super()._get_session(proxy_url))


class _FileSystem(s3fs.S3FileSystem):  # type: ignore[misc]
    """s3fs whose clean-up after a failed upload does not hide how the upload failed."""

    async def _abort_mpu(self, bucket: str, key: str, mpu: str) -> None:
        with contextlib.suppress(Exception):
            await super()._abort_mpu(bucket, key, mpu)


class S3(Cloud):
    """`If-None-Match: *` on PutObject and on CompleteMultipartUpload, which s3fs sends for `mode="create"`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # ObjectStore retries. A client that repeats a conditional put finds its own object and reports a failure.
        once = {"retries": {"total_max_attempts": 1}, "http_session_cls": _HttpSession}
        config = {**options.get("config_kwargs", {}), **once}
        super().__init__(_FileSystem(**{**options, **FIXED, "config_kwargs": config}))
        self._fs.retries = 1
        self._fs.connect()

    @property
    def endpoint(self) -> str:
        """See Cloud."""
        return str(self._fs.s3.meta.endpoint_url)

    @property
    def documented(self) -> bool:
        """See Cloud."""
        host = urlsplit(self.endpoint).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def read(self, bucket: str, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See Cloud. With `max_concurrency=1`, s3fs does not request the size first."""
        content: bytes = self._fs.cat_file(f"{bucket}/{key}", start=start, end=end, max_concurrency=1)
        return content

    @property
    def deletes_at_once(self) -> int:
        """See Cloud. The most that S3 takes."""
        return 1000

    def delete_many(self, bucket: str, keys: Sequence[str]) -> list[str]:
        """See Cloud."""
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = self._fs.call_s3("delete_objects", Bucket=bucket, Delete=objects)
        return [error["Key"] for error in answer.get("Errors", ())]

    def stat(self, bucket: str, key: str) -> FileStatus:
        """See Cloud."""
        head = self._fs.call_s3("head_object", Bucket=bucket, Key=key)
        return _status(key, head["ContentLength"], head["LastModified"])

    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """See Cloud."""
        for page in self._pages(bucket, prefix, deep=deep):
            for entry in page.get("Contents", ()):
                yield entry["Key"], _status(entry["Key"], entry["Size"], entry["LastModified"])

    def folders(self, bucket: str, prefix: str, *, until: str) -> Iterator[str]:
        """See Cloud."""
        for page in self._pages(bucket, prefix, deep=False):
            names = folder_names((entry["Prefix"] for entry in page.get("CommonPrefixes", ())), prefix)
            yield from names
            if until in names:
                return

    @property
    def lists_from(self) -> bool:
        """See Cloud."""
        return True

    def between(self, bucket: str, prefix: str, first: str, last: str) -> Iterator[FileStatus]:
        """See Cloud. The listing begins after a name, so it is given the one without the last character."""
        if bucket.endswith(_UNSORTED):
            yield from super().between(bucket, prefix, first, last)
            return
        for page in self._pages(bucket, prefix, deep=False, StartAfter=f"{prefix}{first[:-1]}"):
            for entry in page.get("Contents", ()):
                if entry["Key"] > f"{prefix}{last}":
                    return
                yield _status(entry["Key"], entry["Size"], entry["LastModified"])

    def _pages(self, bucket: str, prefix: str, *, deep: bool, **more: str) -> Iterator[Mapping[str, Any]]:
        request = {"Bucket": bucket, "Prefix": prefix, **({} if deep else {"Delimiter": "/"}), **more}
        while True:
            page = self._fs.call_s3("list_objects_v2", **request)
            yield page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def diagnose(self, error: BaseException) -> Diagnosed:
        """See Cloud. s3fs converts the server's answer to an OSError, whose cause is botocore's error."""
        for cause in chain(error):
            if isinstance(cause, botocore.exceptions.ClientError):
                return _of_answer(cause)
            if isinstance(cause, botocore.exceptions.NoCredentialsError):
                return Diagnosed(Failure.NO_CREDENTIALS, str(cause))
            if isinstance(cause, _BAD_CREDENTIALS):
                return Diagnosed(Failure.DENIED, str(cause))
            if _was_not_sent(cause):
                return Diagnosed(Failure.REJECTED, str(cause))
            if isinstance(cause, _NO_ANSWER):
                return Diagnosed(Failure.TRANSIENT, str(cause))
        return Diagnosed(by_kind(error), f"{type(error).__name__}: {error}")


def _of_answer(error: Any) -> Diagnosed:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    answer = error.response.get("Error", {})
    code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
    failure = _CODES.get(code) or by_status(status)
    if failure is Failure.NOT_FOUND and code not in _CODES:  # some servers answer 404 to an unknown user
        failure = Failure.DENIED
    return Diagnosed(failure, f"{code} ({status}): {message}")


def _was_not_sent(error: BaseException) -> bool:
    """Whether there was no connection to send the request on. botocore's error for that covers a broken one as well."""
    reason = getattr(error, "kwargs", {}).get("error")
    return isinstance(error, botocore.exceptions.ConnectTimeoutError) or isinstance(
        reason, aiohttp.ClientConnectorError
    )


def _status(key: str, size: int, modified: Any) -> FileStatus:
    # A listing can have milliseconds where a lookup has only seconds.
    return FileStatus(key.rpartition("/")[2], size, milliseconds(modified) // 1000 * 1000)

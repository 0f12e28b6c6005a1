"""Object stores: Amazon S3 and compatible ones, Google Cloud Storage, Azure Blob Storage.

Put-if-absent is the store's own conditional put. Its answer can get lost, and a second try would then find its own
object and report that another writer's exists. So a put without an answer raises StoreUnavailableError, and the caller
finds out what the store has. NotStoredError means that the server says that it did nothing. All other requests are
retried after failures that may be temporary.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar, assert_never, cast

import pyarrow as pa

from tidelog.log.errors import (
    ConfigurationError,
    PathNotWritableError,
    PrerequisiteError,
    StoreAccessError,
    StoreNotSupportedError,
    StoreUnavailableError,
    TidelogError,
    installing,
)
from tidelog.log.storage import location
from tidelog.log.storage.cloud import Cloud, Failure, chain
from tidelog.log.storage.location import Location
from tidelog.log.storage.options import Redactor, parse_option_texts
from tidelog.log.storage.store import FileStatus, NotStoredError, SeekableFile, Store, arrow_input, outside
from tidelog.log.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# --- retries, with exponential backoff and full jitter ----------------------------------------------------------------

# All waits together take about 6 s on average and 11 s at most. That outlasts a node's restart or a burst of
# throttling; if a store is down for longer, the caller gets an error and can retry.
ATTEMPTS = 8
REQUEST_BACKOFF_BASE_S = 0.1
REQUEST_BACKOFF_LIMIT_S = 5.0

IDEMPOTENT = frozenset({Failure.REJECTED, Failure.TRANSIENT})
"""Failures after which an idempotent request is sent again."""

ONCE = frozenset({Failure.REJECTED})
"""Failures after which a request that must not run twice is sent again: the server said that it did nothing."""

_T = TypeVar("_T")


def retried(cloud: Cloud, system: System, request: Callable[[], _T], repeat: frozenset[Failure]) -> _T:
    """The result of `request`. Sends it again after the failures in `repeat`; raises the last error."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return request()
        except Exception as error:
            if cloud.diagnose(error).failure not in repeat:
                raise
        system.sleep_s(system.uniform(0, min(REQUEST_BACKOFF_LIMIT_S, REQUEST_BACKOFF_BASE_S * 2**attempt)))
    return request()


# --- the store --------------------------------------------------------------------------------------------------------

# Kind of store to the extra that installs its library.
_EXTRAS = {"s3": "s3", "gs": "gcs", "abfs": "azure"}

# Block size for comparing a data file with the object, after the answer to an upload got lost.
_COMPARE_BYTES = 8 * 2**20
# Most of a request is waiting. More of them at once would wait for the one thread that runs fsspec's event loop.
_READS_AT_ONCE = 16
# Far below the retention of any log. A reader that asks once a minute saves nearly all of its looks.
_TRUSTED_S = 300.0
# A request for so much takes several times as long as the wait for its first byte.
_BUFFER_BYTES = 4 * 2**20
# S3 charges a listing like twelve lookups.
_FEW_LOOKUPS = 2
# How many names a request for a listing returns.
_PAGE = 1000
# No name in a table's folders is above this one.
_LAST = "~"
_BUGS = (TypeError, AttributeError, NameError, AssertionError)

# One connection per account and process: a file system keeps sockets, credentials and tasks in fsspec's event loop.
# The key has the process id, so that a forked process never uses its parent's connection.
_CONNECTED: dict[tuple[int, str, str], Cloud] = {}
# More accounts than a process usually needs. Beyond it, the oldest connection is dropped.
_MAX_CONNECTED = 32

# The (endpoint, bucket) pairs for which this process has proven that conditional puts work.
_PROVEN: set[tuple[str, str]] = set()


class ObjectStore(Store):
    """The objects below a prefix of a bucket. Connects on first use, separately in each process."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        system: System = REAL_SYSTEM,
        confined: bool = False,
    ) -> None:
        self.url = location.canonical_url(url)
        found = location.parse_location(self.url)
        if found is None:
            raise ConfigurationError(f"{url} has no bucket", advice="write it as in s3://bucket/folder", path=url)
        self._root: Location = found
        self.storage_options = dict(options or {})
        self._options = parse_option_texts({**found.options, **self.storage_options})
        self._redacted = Redactor(self._options)
        self._system = system
        self._confined = confined

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ObjectStore, confined=self._confined), (self.url, self.storage_options)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @property
    def reads_at_once(self) -> int:
        """See Store."""
        return _READS_AT_ONCE

    @property
    def small_reads_at_once(self) -> int:
        """See Store."""
        return self.reads_at_once

    @property
    def trusted_s(self) -> float:
        """See Store."""
        return _TRUSTED_S

    @property
    def buffer_bytes(self) -> int:
        """See Store."""
        return _BUFFER_BYTES

    def read(self, path: str) -> bytes:
        """See Store."""
        bucket, key = self._locate(path)
        return self._ask(path, lambda cloud: cloud.read(bucket, key))

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store. Objects are always durable."""
        del durable
        try:
            bucket, key = self._writable(path)
        except StoreUnavailableError as error:
            raise NotStoredError(error.message, advice=error.advice, path=self.url) from error
        self._ask(path, lambda cloud: cloud.put(bucket, key, content, create=True), writes=True, repeat=ONCE)

    def replace(self, path: str, content: bytes) -> None:
        """See Store."""
        bucket, key = self._writable(path)
        self._ask(path, lambda cloud: cloud.put(bucket, key, content, create=False), writes=True)

    def list(self, folder: str) -> list[FileStatus]:
        """See Store."""
        bucket, key = self._locate(folder)
        prefix = f"{key}/" if key else ""
        found = self._ask(folder, lambda cloud: [*cloud.list(bucket, prefix)], absent=Failure.NO_BUCKET)
        return sorted((status for status in found if status.name), key=lambda status: status.name)

    def modified_times_of(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """See Store. For more than a few names, one listing is cheaper: a page has up to a thousand."""
        if len(names) <= _FEW_LOOKUPS:
            return super().modified_times_of(folder, names)
        bucket, key = self._locate(folder)
        prefix = f"{key}/" if key else ""
        wanted = {*names}
        found = self._ask(
            folder, lambda cloud: [*cloud.between(bucket, prefix, names[0], names[-1])], absent=Failure.NO_BUCKET
        )
        return {status.name: status.modified_ms for status in found if status.name in wanted}

    def recent_names(self, folder: str, since: Callable[[], str]) -> tuple[Collection[str], str]:
        """See Store."""
        bucket, key = self._locate(folder)
        prefix, missing = f"{key}/" if key else "", Failure.NO_BUCKET
        if self._cloud.lists_from:
            page = self._ask(folder, lambda cloud: [*islice(cloud.list(bucket, prefix), _PAGE)], absent=missing)
            if len(page) < _PAGE:
                return [status.name for status in page if status.name], ""
            start = since()
            if start:
                found = self._ask(folder, lambda cloud: [*cloud.between(bucket, prefix, start, _LAST)], absent=missing)
                return [status.name for status in found if status.name >= start], start
        return self.names(folder), ""

    def folders(self, folder: str = "", *, until: str = "") -> Sequence[str]:
        """See Store. A folder exists as long as an object has its name in its key."""
        bucket, key = self._locate(folder)
        prefix = f"{key}/" if key else ""
        return sorted(
            self._ask(folder, lambda cloud: {*cloud.folders(bucket, prefix, until=until)}, absent=Failure.NO_BUCKET)
        )

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """See Store."""
        root = f"{self._root.key}/" if self._root.key else ""
        bucket, prefix = self._root.bucket, f"{root}{folder}/" if folder else root
        found = self._ask(folder, lambda cloud: [*cloud.entries(bucket, prefix, deep=True)], absent=Failure.NO_BUCKET)
        return ((key[len(root) :], status) for key, status in found if status.name)

    def delete(self, path: str) -> None:
        """See Store."""
        bucket, key = self._locate(path)
        with contextlib.suppress(FileNotFoundError):
            self._ask(path, lambda cloud: cloud.delete(bucket, key), writes=True, absent=Failure.NOT_FOUND)

    @property
    def deletes_at_once(self) -> int:
        """See Store."""
        return self._cloud.deletes_at_once

    def delete_each(self, paths: Sequence[str]) -> dict[str, Exception]:
        """See Store."""
        return _deleted_each(
            paths,
            at_once=self.deletes_at_once,
            threads=self.reads_at_once,
            delete_many=self._delete_many,
            delete_singly=super().delete_each,
        )

    def _delete_many(self, paths: Sequence[str]) -> Sequence[str]:
        try:
            places = [self._locate(path) for path in paths]
            buckets, keys = {bucket for bucket, _ in places}, [key for _, key in places]
            if len(buckets) > 1:
                return paths
            (bucket,) = buckets
            left = {*self._ask(paths[0], lambda cloud: cloud.delete_many(bucket, keys), writes=True)}
        except StoreUnavailableError:
            raise
        except (TidelogError, OSError):
            # Not every server that speaks S3 has this request. If it is something else, a single request says so.
            return paths
        return [path for path, key in zip(paths, keys, strict=True) if key in left]

    def open_input(self, path: str) -> Any:
        """See Store. Fetches a small file as a whole, a large one as it is read, with some read-ahead."""
        bucket, key = self._locate(path)
        size = self._ask(path, lambda cloud: cloud.stat(bucket, key)).size_bytes
        if size <= WHOLE_BYTES:
            return arrow_input(self.read(path))

        def fetch(start: int, end: int) -> bytes:
            return self._ask(path, lambda cloud: cloud.read(bucket, key, start, end))

        return pa.PythonFile(RangedFile(size, fetch), mode="r")

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See Store. Uploads only after the block has ended, so that there is nothing to clean up if it raises."""
        bucket, key = self._writable(path)
        with tempfile.NamedTemporaryFile(prefix="tidelog-") as file:
            try:
                yield cast("BinaryIO", file)
                file.flush()
            except OSError as error:
                raise StoreUnavailableError(
                    f"cannot write a temporary copy of {path}: {error.strerror or error}",
                    advice=f"free up space in {tempfile.gettempdir()} or set TMPDIR; nothing was committed",
                    path=self.url,
                ) from error
            self._put_file(path, bucket, key, Path(file.name))

    def modified_ms(self, path: str) -> int:
        """See Store."""
        bucket, key = self._locate(path)
        return self._ask(path, lambda cloud: cloud.stat(bucket, key)).modified_ms

    # --- locations ---

    def _locate(self, path: str) -> tuple[str, str]:
        """Bucket and key of a path; a URL of the same kind of store can name another bucket.

        Raises OutsideFileError if the store is confined and they are not below its root.
        """
        bucket, key = self._named(path)
        root = f"{self._root.key}/" if self._root.key else ""
        if self._confined and (bucket != self._root.bucket or not f"{key}/".startswith(root)):
            raise outside(path, self.url)
        return bucket, key

    def _named(self, path: str) -> tuple[str, str]:
        if path.startswith("/"):  # as in Hadoop: relative to the root of the same bucket
            return self._root.bucket, path.strip("/")
        found = location.parse_location(path)
        if found is None:
            return self._root.bucket, "/".join(part for part in (self._root.key, path) if part)
        if found.kind != self._root.kind:
            raise StoreNotSupportedError(
                f"the table at {self.url} refers to a file in another kind of store: {path}",
                advice="keep all of a table's files in one kind of store",
                path=self.url,
            )
        return found.bucket, found.key

    def _writable(self, path: str) -> tuple[str, str]:
        """Bucket and key of a path to write, after proving (once per process) that conditional puts work."""
        bucket, key = self._locate(path)
        cloud = self._cloud
        place = (cloud.endpoint, bucket)
        if cloud.documented or place in _PROVEN:
            return bucket, key
        name = "/".join(part for part in (self._root.key, f"_tidelog/probe-{self._system.uuid()}") if part)
        try:
            holds = put_if_absent_holds(
                lambda content: self._ask(name, lambda it: it.put(bucket, name, content, create=True), writes=True),
                lambda: self._ask(name, lambda it: it.read(bucket, name)),
            )
        finally:
            with contextlib.suppress(TidelogError, FileNotFoundError):  # a writer need not have permission to delete
                self._ask(name, lambda it: it.delete(bucket, name), writes=True, absent=Failure.NOT_FOUND)
        if not holds:
            raise StoreNotSupportedError(
                f"the server at {cloud.endpoint} ignores conditional puts: it overwrote an object that it should only "
                "create if absent, so concurrent writers would lose commits",
                advice="put the table on a store with conditional puts; nothing was written to the table",
                path=self.url,
            )
        _PROVEN.add(place)
        return bucket, key

    # --- requests ---

    @property
    def _cloud(self) -> Cloud:
        account = (os.getpid(), self._root.kind, json.dumps(self._options, sort_keys=True, default=id))
        known = _CONNECTED.get(account)
        if known is not None:
            return known
        own = [other for other in [*_CONNECTED] if other[0] == account[0]]
        for oldest in own[: len(own) - _MAX_CONNECTED + 1]:
            _CONNECTED.pop(oldest, None)
        # Two threads can both connect; one of the two connections is kept.
        return _CONNECTED.setdefault(account, self._connect())

    def _connect(self) -> Cloud:
        try:
            cloud = _cloud_of(self._root.kind)
        except ModuleNotFoundError as error:
            raise PrerequisiteError(
                f"{self.url} needs the Python package {error.name!r}, which is not installed",
                advice=installing(_EXTRAS[self._root.kind]),
                path=self.url,
            ) from error
        try:
            return cloud(self._options)
        except Exception as error:  # noqa: BLE001 - each library raises its own errors for a wrong argument
            names = ", ".join(sorted(self._options)) or "none"
            raise ConfigurationError(
                f"cannot connect to {self.url}: {self._redacted(str(error))}",
                advice=f"check the storage options ({names}) and the environment variables",
                path=self.url,
            ) from self._presentable(error)

    def _ask(
        self,
        path: str,
        request: Callable[[Cloud], _T],
        *,
        writes: bool = False,
        repeat: frozenset[Failure] = IDEMPOTENT,
        absent: Failure | None = None,
    ) -> _T:
        """The answer to a request, with errors converted to tidelog's. `absent` is the meaning of "not found"."""
        cloud = self._cloud
        try:
            return retried(cloud, self._system, lambda: request(cloud), repeat)
        except Exception as error:  # noqa: BLE001 - the errors of five libraries; bugs are raised again
            missing = absent or (Failure.NO_BUCKET if writes else Failure.NOT_FOUND)
            self._fail(error, cloud, path, missing, writes=writes)

    def _fail(self, error: Exception, cloud: Cloud, path: str, missing: Failure, *, writes: bool) -> NoReturn:
        if isinstance(error, (*_BUGS, TidelogError)):
            raise error
        diagnosed = cloud.diagnose(error)
        failure = missing if diagnosed.failure is Failure.NOT_FOUND else diagnosed.failure
        text = self._redacted(diagnosed.text)
        raise request_error(failure, text, path, self.url, writes=writes) from self._presentable(error)

    def _presentable(self, error: BaseException) -> BaseException | None:
        """The error, for use as a cause; None if its traceback would show a secret."""
        return error if all(self._redacted(str(cause)) == str(cause) for cause in chain(error)) else None

    def _put_file(self, path: str, bucket: str, key: str, local: Path) -> None:
        try:
            self._ask(path, lambda cloud: cloud.put_file(bucket, key, str(local)), writes=True)
        except FileExistsError:
            # The name is never reused, so equal content comes from an earlier try whose answer got lost.
            if not self._holds(path, bucket, key, local):
                raise

    def _holds(self, path: str, bucket: str, key: str, local: Path) -> bool:
        size = local.stat().st_size
        if self._ask(path, lambda cloud: cloud.stat(bucket, key)).size_bytes != size:
            return False
        with local.open("rb") as file:
            for start in range(0, size, _COMPARE_BYTES):
                end = min(size, start + _COMPARE_BYTES)
                if file.read(end - start) != self._ask(path, lambda cloud: cloud.read(bucket, key, start, end)):  # noqa: B023 - called at once
                    return False
        return True


def _cloud_of(kind: str) -> Callable[[Mapping[str, Any]], Cloud]:
    """The class for this kind of store. Only its own library is imported. Raises ModuleNotFoundError."""
    match kind:
        case "s3":
            from tidelog.log.storage.s3 import S3  # noqa: PLC0415 - see above

            return S3
        case "gs":
            from tidelog.log.storage.gcs import GCS  # noqa: PLC0415 - see above

            return GCS
        case "abfs":
            from tidelog.log.storage.azure import Azure  # noqa: PLC0415 - see above

            return Azure
        case _:
            raise AssertionError(kind)


# --- what the failure of a request means ------------------------------------------------------------------------------


def request_error(failure: Failure, text: str, path: str, url: str, *, writes: bool) -> Exception:
    """The error for a failed request about `path` of the store at `url`; `text` is what the server said."""
    verb = "write" if writes else "read"
    match failure:
        case Failure.EXISTS:
            return FileExistsError(path)
        case Failure.NOT_FOUND:
            return FileNotFoundError(path)
        case Failure.NO_BUCKET:
            advice = "create it, or check its name, the endpoint and the region"
            return StoreAccessError(f"the bucket of {url} does not exist: {text}", advice=advice, path=url)
        case Failure.DENIED:
            kind = PathNotWritableError if writes else StoreAccessError
            advice = "check the credentials, their permissions (including listing) and the bucket's region"
            return kind(f"the store refused to {verb} {path}: {text}", advice=advice, path=url)
        case Failure.NO_CREDENTIALS:
            advice = "pass them as storage_options, or set them in the environment"
            return StoreAccessError(f"cannot {verb} {url}: no credentials were found", advice=advice, path=url)
        case Failure.UNSUPPORTED:
            advice = "put the table on a store with conditional puts"
            return StoreNotSupportedError(
                f"the server does not support a request that tidelog needs: {text}", advice=advice, path=url
            )
        case Failure.REJECTED | Failure.TRANSIENT | Failure.UNKNOWN:
            advice = "check the endpoint and the network, then retry"
            unavailable = NotStoredError if writes and failure is Failure.REJECTED else StoreUnavailableError
            return unavailable(
                f"the store gave no usable answer to a {verb} of {path}: {text}", advice=advice, path=url
            )
        case _:
            assert_never(failure)


# --- does the server honour conditional puts? -------------------------------------------------------------------------

# Some servers that speak S3 ignore `If-None-Match` and overwrite, so that concurrent writers lose commits.
FIRST, SECOND = b"tidelog put this if absent", b"tidelog tried to put this as well; the first should have stayed"


def put_if_absent_holds(put: Callable[[bytes], None], read: Callable[[], bytes]) -> bool:
    """Put a new object twice. True if the second put is refused and the first one's content stays."""
    # No other writer knows the name: if the first put is refused, an earlier try succeeded and its answer got lost.
    with contextlib.suppress(FileExistsError):
        put(FIRST)
    try:
        put(SECOND)
    except FileExistsError:
        return read() == FIRST
    return False


# --- large objects, read in parts -------------------------------------------------------------------------------------

# A request takes about as long as transferring a few MB, so smaller files are faster to read whole than footer first.
WHOLE_BYTES = 4 * 2**20
# The column chunks of a row group are adjacent and are read in sequence.
READ_AHEAD_BYTES = 2**20
# A parquet reader reads the last few bytes, which contain the footer's length, and then the footer.
TAIL_BYTES = 2**18


class RangedFile(SeekableFile):
    """A file of `size` bytes, read with `fetch(start, end)`. Caches only the latest small part.

    Each part is a separate request, so parts are few and large.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__(size)
        self._fetch = fetch
        self._start, self._part = 0, b""

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into the buffer until it is full or the file ends."""
        target = memoryview(buffer).cast("B")
        start = self._position
        end = min(self._size, start + len(target))
        if start >= end:
            return 0
        target[: end - start] = self._bytes(start, end)
        self._position = end
        return end - start

    def _bytes(self, start: int, end: int) -> bytes:
        if not self._start <= start <= end <= self._start + len(self._part):
            if end - start > READ_AHEAD_BYTES:
                return self._whole(start, end)
            first = max(0, min(start, self._size - TAIL_BYTES)) if end == self._size else start
            self._part = self._whole(first, min(self._size, max(end, start + READ_AHEAD_BYTES)))
            self._start = first
        return self._part[start - self._start : end - self._start]

    def _whole(self, start: int, end: int) -> bytes:
        content = self._fetch(start, end)
        if len(content) != end - start:
            raise OSError(f"got {len(content)} bytes instead of {end - start}: the object changed while being read")
        return content


# --- many deletes -----------------------------------------------------------------------------------------------------


def _deleted_each(
    paths: Sequence[str],
    *,
    at_once: int,
    threads: int,
    delete_many: Callable[[Sequence[str]], Sequence[str]],
    delete_singly: Callable[[Sequence[str]], Mapping[str, Exception]],
) -> dict[str, Exception]:
    """Delete all, with few requests where the server has them, and return the errors by path.

    `delete_many` deletes up to `at_once` with one request, and returns the paths of those that may still be there. If
    it raises StoreUnavailableError, the store does not answer, and none of them is tried again. `delete_singly` deletes
    each with its own request, and returns the errors.
    """
    failed: dict[str, Exception] = {}
    rest: list[str] = []
    for start in range(0, len(paths), at_once):
        part = paths[start : start + at_once]
        try:
            rest += delete_many(part) if len(part) > 1 else part
        except StoreUnavailableError as error:
            failed |= dict.fromkeys(part, error)
    if min(threads, len(rest)) <= 1:
        return failed | dict(delete_singly(rest))
    with ThreadPoolExecutor(min(threads, len(rest)), "tidelog-delete") as pool:
        for errors in pool.map(delete_singly, ([path] for path in rest)):
            failed |= errors
    return failed

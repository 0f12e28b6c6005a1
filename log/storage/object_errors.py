"""What the failure of a request to an object store means to its caller."""

from __future__ import annotations

from typing import assert_never

from tidelog.log.errors import PathNotWritableError, StoreAccessError, StoreNotSupportedError, StoreUnavailableError
from tidelog.log.storage.cloud import Failure
from tidelog.log.storage.store import NotStoredError


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

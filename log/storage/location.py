"""Parse object store URLs, and compare the places of stores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import without_credentials

KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs", "az": "abfs"}
"""URL scheme to kind of store. Each kind is named after one of its schemes."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*)", re.DOTALL)
_AZURE_HOST = re.compile(r"([^.]+)\.(?:dfs|blob)\.(.+)")


@dataclass(frozen=True, slots=True)
class Location:
    """A place in an object store. `key` is empty for the bucket itself and never ends with `/`.

    `options` are the storage options that the URL implies.
    """

    kind: str
    bucket: str
    key: str
    options: dict[str, str] = field(default_factory=dict)


def parse_location(url: str) -> Location | None:
    """Parse an object store's URL; None for anything else.

    Raises ConfigurationError if it has no bucket, or has credentials: a table's URL is printed in many places.
    """
    match = _URL.match(url)
    if match is None or match.group(1).lower() not in KINDS:
        return None
    kind, bucket, key = KINDS[match.group(1).lower()], match.group(2), match.group(3).rstrip("/")
    if ":" in bucket or without_credentials(url) != url:
        raise ConfigurationError(
            f"a URL of the kind {kind}:// contains credentials or a port",
            advice="pass them as storage options, such as key, secret, sas_token or endpoint_url",
        )
    options: dict[str, str] = {}
    if kind == "abfs" and "@" in bucket:  # abfss://container@account.dfs.core.windows.net/folder
        bucket, _, host = bucket.partition("@")
        account = _AZURE_HOST.fullmatch(host)
        options["account_name"] = account.group(1) if account else host.partition(".")[0]
        if account and account.group(2) != "core.windows.net":
            options["account_host"] = f"{account.group(1)}.blob.{account.group(2)}"
    if not bucket:
        raise ConfigurationError(f"{url} has no bucket", advice=f"write {kind}://bucket/folder", path=url)
    return Location(kind, bucket, key, options)


def canonical_url(url: str) -> str:
    """Normalise a table's URL: the most common scheme, and no extra slashes."""
    scheme, _, rest = url.partition("://")
    scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme.lower(), scheme.lower())
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}/{key.strip('/')}".rstrip("/")


def is_within(place: str, folder: str) -> bool:
    """Whether a place is in a folder, or the folder itself. Both are local paths or URLs, as tidelog or Hadoop write.

    Symbolic links are followed, as far as they exist.
    """
    inner, outer = _local_path(place), _local_path(folder)
    if inner is None or outer is None:
        return inner is outer and _parts(place)[: len(_parts(folder))] == _parts(folder)
    inner, outer = inner.resolve(), outer.resolve()
    # A folder can have two paths, as on a disk that ignores case or is mounted twice.
    return any(path == outer or _is_same(path, outer) for path in (inner, *inner.parents))


def _local_path(place: str) -> Path | None:
    path = re.sub(r"^file:(//[^/]*(?=/))?", "", place, flags=re.IGNORECASE)
    return None if path == place and "://" in place else Path(path)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False


def _parts(url: str) -> list[str]:
    """The store, and the names on the way to the place."""
    found = parse_location(url)
    if found is not None:
        return [found.kind, found.bucket, *filter(None, found.key.split("/"))]
    scheme, _, rest = url.partition("://")
    return [scheme.lower(), *filter(None, rest.split("/"))]

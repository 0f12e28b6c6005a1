"""Parse object store URLs: kind of store, bucket and key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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

"""What a running daemon answers at its page."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError, RetryableError

_TIMEOUT_S = 10.0
# Ten thousand tables are some megabytes.
_MAX_BYTES = 64 * 2**20


def fetch_status(url: str) -> Mapping[str, Any]:
    """The status of the daemon whose page is at `url`.

    Raises:
        ConfigurationError: This is no URL of a web page.
        RetryableError: No daemon answers there.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{url!r} is not the URL of a page", advice="write what --listen says, such as http://127.0.0.1:8080"
        )
    place = f"{url.rstrip('/')}/api/status"
    try:
        with urllib.request.urlopen(place, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http only, see above
            found = json.loads(answer.read(_MAX_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RetryableError(
            f"no daemon answers at {place}: {reason}", advice="check the address, and that the daemon has --listen"
        ) from error
    if not isinstance(found, Mapping) or not {"tables", "health", "owner"} <= found.keys():
        raise RetryableError(f"what answers at {place} is no daemon of tidelog", advice="check the address")
    return found

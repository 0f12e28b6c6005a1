"""Bounded retries with exponential backoff and full jitter, around one request to an object store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.log.storage.cloud import Cloud, Failure
from tidelog.log.system import System

# Together the waits are about 6 s on average and 11 s at most: longer than a node's restart or a burst of throttling,
# shorter than anybody's patience. A store that is down for longer is an error, which the caller may retry.
ATTEMPTS = 8
REQUEST_BACKOFF_BASE_S = 0.1
REQUEST_BACKOFF_LIMIT_S = 5.0

IDEMPOTENT = frozenset({Failure.REJECTED, Failure.TRANSIENT})
"""After these a request is sent again whose repetition changes nothing."""

ONCE = frozenset({Failure.REJECTED})
"""After these a request is sent again that must not be done twice: the server said that it did nothing."""

_T = TypeVar("_T")


def retried(cloud: Cloud, system: System, request: Callable[[], _T], repeat: frozenset[Failure]) -> _T:
    """The answer to `request`; it is sent again after the failures in `repeat`, and the last error is raised."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return request()
        except Exception as error:
            if cloud.diagnose(error).failure not in repeat:
                raise
        system.sleep_s(system.uniform(0, min(REQUEST_BACKOFF_LIMIT_S, REQUEST_BACKOFF_BASE_S * 2**attempt)))
    return request()

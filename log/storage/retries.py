"""Bounded retries of one object store request, with exponential backoff and full jitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.log.storage.cloud import Cloud, Failure
from tidelog.log.system import System

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

"""Two pieces of work that do not need each other, at the same time where both mostly wait for the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog.log.storage.store import Store

_T = TypeVar("_T")


def side_by_side(store: Store, first: Callable[[], _T], second: Callable[[], object]) -> _T:
    """Do both, and return the result of `first`.

    Where a call to the store mostly waits, `second` runs in a thread meanwhile; elsewhere it runs afterwards, unless
    `first` raises. An error of `first` counts more than one of `second`. No thread is left on return.
    """
    if store.small_reads_at_once <= 1:
        result = first()
        second()
        return result
    with ThreadPoolExecutor(1, "tidelog-beside") as pool:
        other = pool.submit(second)
        result = first()
    other.result()
    return result

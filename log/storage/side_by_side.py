"""Two pieces of work that do not need each other, at the same time where both mostly wait for the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from tidelog.log.storage.store import Store

_T = TypeVar("_T")


def begun(work: Callable[[], _T], name: str) -> Future[_T] | None:
    """The work, begun in a thread; None if there can be no thread: the process may have no more, or be ending."""
    pool = ThreadPoolExecutor(1, name)
    try:
        return pool.submit(work)
    except RuntimeError:
        return None
    finally:
        pool.shutdown(wait=False)


def side_by_side(store: Store, first: Callable[[], _T], second: Callable[[], object]) -> _T:
    """Do both, and return the result of `first`.

    Where a call to the store mostly waits, `second` runs in a thread meanwhile; elsewhere it runs afterwards, unless
    `first` raises. An error of `first` counts more than one of `second`. No thread is left on return.
    """
    other = begun(second, "tidelog-beside") if store.small_reads_at_once > 1 else None
    if other is None:
        result = first()
        second()
        return result
    try:
        result = first()
    finally:
        wait([other])
    other.result()
    return result

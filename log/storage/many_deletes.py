"""Delete many objects: with requests for many where the server has them, and the rest several at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tidelog.log.errors import StoreUnavailableError


def delete_each(
    paths: Sequence[str],
    *,
    at_once: int,
    threads: int,
    delete_many: Callable[[Sequence[str]], Sequence[str]],
    delete_singly: Callable[[Sequence[str]], Mapping[str, Exception]],
) -> dict[str, Exception]:
    """Delete all, and return the errors by path.

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

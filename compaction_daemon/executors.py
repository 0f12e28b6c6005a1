"""The executors that rewrite groups: which ones can do it, and what happens when one of their processes dies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any, TypeVar

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.log.errors import ConfigurationError, WorkerLostError
from tidelog.log.internals import MemoryStore, MoveGroup, Store, event, logger

_LOGGER = logger(__name__)
_T = TypeVar("_T")
_Rewrite = Callable[[PlannedGroup], MoveGroup]


class RenewedExecutor(Executor):
    """Works as the executor that `make` returns, and calls it again after a process of the last one was killed.

    Raises ConfigurationError if `make` returns something else than an executor.
    """

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._current = self._made()

    @property
    def in_other_processes(self) -> bool:
        """Whether the calls run in processes that cannot reach this one's memory."""
        return _is_elsewhere(self._current)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See Executor."""
        try:
            return self._current.submit(fn, *args, **kwargs)
        except BrokenExecutor:
            self._current.shutdown(wait=False)
            self._current = self._made()
            _LOGGER.warning("a process of the executor was killed; there is a new one", extra=event("executor_renewed"))
            return self._current.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as Executor
        """See Executor."""
        self._current.shutdown(wait, cancel_futures=cancel_futures)

    def _made(self) -> Executor:
        made = self._make()
        _require_executor(made)
        return made


def lasting(executor: Executor | Callable[[], Executor] | None) -> Executor | None:
    """An executor that is as good as new after a process was killed, if `executor` is a function that makes one.

    Raises ConfigurationError for what is neither an executor nor makes one.
    """
    if executor is None:
        return None
    if not isinstance(executor, Executor) and callable(executor):
        return RenewedExecutor(executor)
    _require_executor(executor)
    return executor


def require_usable(store: Store, executor: Executor | None) -> None:
    """Raise ConfigurationError if `executor` is not an executor, or if its processes cannot reach the table's files."""
    if executor is None:
        return
    _require_executor(executor)
    if _is_elsewhere(executor) and isinstance(store, MemoryStore):
        raise ConfigurationError(
            f"the table at {store.url} is in this process's memory, which other processes cannot reach",
            advice="use a ThreadPoolExecutor, or leave executor out",
        )


def _require_executor(executor: object) -> None:
    if not isinstance(executor, Executor):
        raise ConfigurationError(
            f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}",
            advice="pass a ThreadPoolExecutor, a ProcessPoolExecutor or a SparkExecutor, or leave executor out",
        )


def _is_elsewhere(executor: Executor) -> bool:
    # An executor that tidelog does not know says by this attribute where it works.
    return isinstance(executor, ProcessPoolExecutor) or bool(getattr(executor, "in_other_processes", False))


def begin_rewrite(executor: Executor | None, rewrite: _Rewrite, group: PlannedGroup) -> Future[MoveGroup]:
    """Begin to rewrite a group. Without an executor it is rewritten when this returns.

    Raises WorkerLostError if a process of the executor had ended before.
    """
    if executor is not None:
        try:
            return executor.submit(rewrite, group)
        except BrokenExecutor as error:
            raise _lost() from error
    future: Future[MoveGroup] = Future()
    try:
        future.set_result(rewrite(group))
    except Exception as error:  # noqa: BLE001 - it is raised when the result is asked for, as an executor does
        future.set_exception(error)
    return future


def rewritten_group(future: Future[MoveGroup]) -> MoveGroup:
    """The rewritten group. Raises what its rewrite raised, and WorkerLostError if its process ended before that."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise _lost() from error


def _lost() -> WorkerLostError:
    return WorkerLostError(
        "a process that rewrote files was killed, or ended by itself",
        advice="the table is as good as before; compact again with a new pool, and with fewer or larger workers if "
        "memory was short",
    )

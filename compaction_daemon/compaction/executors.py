"""The executors that rewrite groups: which ones can do it, and what happens when one of their processes dies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.errors import ConfigurationError, WorkerLostError
from tidelog.log.log_records import event
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import REAL_SYSTEM, logger

_LOGGER = logger(__name__)
_T = TypeVar("_T")
_Rewrite = Callable[[PlannedGroup], MoveGroup]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten group, and the processor time of its process meanwhile: that of this group if it has one worker."""

    moves: MoveGroup
    cpu_s: float


class DaemonExecutor(Executor):
    """Works as an executor, or as the one that a function makes, which is called again after a process was killed.

    `cpu_s` is the processor time that rewrites took in a pool of processes of this machine; what failed is left out.

    Raises ConfigurationError for what is neither an executor nor makes one.
    """

    def __init__(self, executor: Executor | Callable[[], Executor]) -> None:
        self.cpu_s = 0.0
        self._make = None if isinstance(executor, Executor) else executor
        self._current = executor if isinstance(executor, Executor) else self._made()

    @property
    def in_other_processes(self) -> bool:
        """Whether the calls run in processes that cannot reach this one's memory."""
        return _is_elsewhere(self._current)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See Executor."""
        try:
            future = self._current.submit(fn, *args, **kwargs)
        except BrokenExecutor:
            if self._make is None:
                raise
            self._current.shutdown(wait=False)
            self._current = self._made()
            _LOGGER.warning("a process of the executor was killed; there is a new one", extra=event("executor_renewed"))
            future = self._current.submit(fn, *args, **kwargs)
        if isinstance(self._current, ProcessPoolExecutor):
            future.add_done_callback(self._count)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as Executor
        """See Executor."""
        self._current.shutdown(wait, cancel_futures=cancel_futures)

    def _count(self, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None and isinstance(future.result(), Rewritten):
            self.cpu_s += future.result().cpu_s

    def _made(self) -> Executor:
        return _require_executor(self._make() if callable(self._make) else self._make)


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


def _require_executor(executor: object) -> Executor:
    if not isinstance(executor, Executor):
        raise ConfigurationError(
            f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}",
            advice="pass a ThreadPoolExecutor, a ProcessPoolExecutor or a SparkExecutor, or leave executor out",
        )
    return executor


def _is_elsewhere(executor: Executor) -> bool:
    # An executor that tidelog does not know says by this attribute where it works.
    return isinstance(executor, ProcessPoolExecutor) or bool(getattr(executor, "in_other_processes", False))


def begin_rewrite(executor: Executor | None, rewrite: _Rewrite, group: PlannedGroup) -> Future[Rewritten]:
    """Begin to rewrite a group. Without an executor it is rewritten when this returns.

    Raises WorkerLostError if a process of the executor had ended before.
    """
    if executor is not None:
        try:
            return executor.submit(_measured, rewrite, group)
        except BrokenExecutor as error:
            raise _lost() from error
    future: Future[Rewritten] = Future()
    try:
        future.set_result(_measured(rewrite, group))
    except Exception as error:  # noqa: BLE001 - it is raised when the result is asked for, as an executor does
        future.set_exception(error)
    return future


def _measured(rewrite: _Rewrite, group: PlannedGroup) -> Rewritten:
    before_s = REAL_SYSTEM.cpu_s()
    return Rewritten(rewrite(group), REAL_SYSTEM.cpu_s() - before_s)


def rewritten_group(future: Future[Rewritten]) -> MoveGroup:
    """The rewritten group. Raises what its rewrite raised, and WorkerLostError if its process ended before that."""
    try:
        return future.result().moves
    except BrokenExecutor as error:
        raise _lost() from error


def _lost() -> WorkerLostError:
    return WorkerLostError(
        "a process that rewrote files was killed, or ended by itself",
        advice="the table is as good as before; compact again with a new pool, and with fewer or larger workers if "
        "memory was short",
    )

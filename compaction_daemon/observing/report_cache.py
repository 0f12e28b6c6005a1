"""Reports of tables for several readers at once: each is made once, and not again while the table stays the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock

from tidelog.compaction_daemon.observing.safe_json import json_bytes
from tidelog.compaction_daemon.observing.table_report import report_of
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.compaction_daemon.process.daemon_status import TableStatus
from tidelog.log import Table
from tidelog.log.system import REAL_SYSTEM, System

# A report of some hundred kilobytes is kept for the tables that people look at.
_MAX_REPORTS = 16
# A page that is open asks every few seconds. The report of a table without news is made again after a while, since
# consumers move on and conflicts happen without a new version.
_FRESH_S, _SAME_VERSION_S = 3.0, 30.0
# Each takes a processor, which the daemon's own work needs.
_AT_ONCE = 2
# A second reader of the same table waits for the report that is being made.
_WAIT_S = 30.0


class BusyError(Exception):
    """Other reports are being made."""


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    at_s: float
    content: bytes


class ReportCache:
    """Makes and keeps reports as JSON. Can be used by several threads.

    Args:
        open_table: Opens a table at its newest version.
        system: The clock.
    """

    def __init__(self, open_table: Callable[[str], Table], system: System = REAL_SYSTEM) -> None:
        self._open_table = open_table
        self._system = system
        self._made: OrderedDict[str, _Made] = OrderedDict()
        self._lock = Lock()
        self._making: dict[str, Lock] = {}
        self._places = BoundedSemaphore(_AT_ONCE)

    def of(self, table: TableStatus, due: CompactionRequest) -> bytes:
        """The report of a table: some seconds old, or half a minute if the table has no new version.

        What is due now is what the daemon would do, which plans with `due` and leaves some groups alone.

        Raises:
            BusyError: Too many reports are being made.
            TidelogError: The table cannot be read.
        """
        path = table.path
        with self._lock:
            turn = self._making.setdefault(path, Lock())
        if not turn.acquire(timeout=_WAIT_S):
            raise BusyError
        try:
            known = self._made.get(path)
            if known is not None and self._system.monotonic_s() - known.at_s < _FRESH_S:
                return known.content
            if not self._places.acquire(timeout=_WAIT_S):
                raise BusyError
            try:
                return self._make(table, due, known)
            finally:
                self._places.release()
        finally:
            turn.release()

    def _make(self, status: TableStatus, due: CompactionRequest, known: _Made | None) -> bytes:
        path = status.path
        table = self._open_table(path)
        now_s = self._system.monotonic_s()
        if known is not None and known.version == table.version and now_s - known.at_s < _SAME_VERSION_S:
            return known.content
        report = report_of(table, system=self._system, due=due, apart=status.apart)
        content = json_bytes(report.to_dict())
        with self._lock:
            self._made[path] = _Made(table.version, self._system.monotonic_s(), content)
            self._made.move_to_end(path)
            while len(self._made) > _MAX_REPORTS:
                oldest, _ = self._made.popitem(last=False)
                self._making.pop(oldest, None)
        return content

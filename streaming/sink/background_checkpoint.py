"""Checkpoints of the table's log if no daemon writes them: in a background thread, so that batches do not wait."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread

from tidelog.log import Table
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties as table_properties
from tidelog.log.state.segment import pointed_version
from tidelog.log.storage import open_store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


class BackgroundCheckpoint:
    """Writes a table's checkpoints in a thread, at most one at a time."""

    def __init__(self, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._path = path
        self._storage_options = storage_options
        self._running: Thread | None = None
        # The last version that started a check: one check for each checkpoint interval.
        self._checked_at = 0

    def committed(self, version: int, properties: Mapping[str, str]) -> None:
        """Start writing a checkpoint if the commit of `version` makes one due and no daemon writes them."""
        interval = table_properties.count(properties, table_properties.CHECKPOINT_INTERVAL)
        busy = self._running is not None and self._running.is_alive()
        if version // interval > self._checked_at // interval and not busy:
            self._running = Thread(target=self._write, args=(version, interval), daemon=True)
            self._running.start()
            self._checked_at = version

    def _write(self, version: int, interval: int) -> None:
        try:
            # A running daemon keeps the log tail at about one interval; a longer tail means that there is no daemon.
            # The pointer to the newest checkpoint shows that without a listing, whose cost grows with the log.
            pointed = pointed_version(open_store(self._path, self._storage_options))
            if pointed is not None and version - pointed < interval:
                return
            table = Table.open(self._path, storage_options=self._storage_options)
            if table.commits_since_checkpoint() >= interval:
                table.checkpoint()
        except (TidelogError, OSError) as error:
            # Batches are safe without a checkpoint; the next interval tries again.
            _LOGGER.warning("could not write a checkpoint for %s: %s", self._path, error)

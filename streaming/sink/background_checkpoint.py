"""Checkpoints of the table's log where no daemon writes them: beside the stream, never in a batch's own time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Thread

from tidelog.log import Table
from tidelog.log.errors import TidelogError
from tidelog.log.internals import open_store, pointed_version
from tidelog.log.internals import properties as table_properties

_LOGGER = logging.getLogger(__name__)


class BackgroundCheckpoint:
    """Writes a table's checkpoints in a thread of its own, at most one at a time."""

    def __init__(self, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._path = path
        self._storage_options = storage_options
        self._running: Thread | None = None
        # The version at which a checkpoint was last thought of, so that each interval is looked at once.
        self._looked_at = 0

    def committed(self, version: int, properties: Mapping[str, str]) -> None:
        """Take note of a commit, and write a checkpoint where one is due and nobody else does."""
        interval = table_properties.count(properties, table_properties.CHECKPOINT_INTERVAL)
        busy = self._running is not None and self._running.is_alive()
        if version // interval > self._looked_at // interval and not busy:
            self._running = Thread(target=self._write, args=(version, interval), daemon=True)
            self._running.start()
            self._looked_at = version

    def _write(self, version: int, interval: int) -> None:
        try:
            # A daemon that is running keeps the tail at about one interval; a longer one means that there is none. The
            # pointer tells that without a listing, which grows with the log.
            pointed = pointed_version(open_store(self._path, self._storage_options))
            if pointed is not None and version - pointed < interval:
                return
            table = Table.open(self._path, storage_options=self._storage_options)
            if table.commits_since_checkpoint() >= interval:
                table.checkpoint()
        except (TidelogError, OSError) as error:
            # The batches are safe without; the next interval tries again.
            _LOGGER.warning("no checkpoint was written for %s: %s", self._path, error)

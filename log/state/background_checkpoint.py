"""Checkpoints of a table that a writer leaves, in the background: commits do not wait for them, and never fail by them.

A running daemon keeps the tail of the log at about one interval. A longer tail means that there is no daemon.
"""

from __future__ import annotations

import os

from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.state import checkpointing
from tidelog.log.state.head import Head
from tidelog.log.state.loader import load
from tidelog.log.state.segment import find_segment, pointed_version
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)


class BackgroundCheckpoint:
    """Writes checkpoints for one writer, one at a time, once its commits pass a multiple of the table's interval.

    `version` is the one that the writer began with. What fails is logged, and the next interval tries again. A program
    that ends waits for a checkpoint a little; one that is cut off leaves the table as it was.
    """

    def __init__(self, store: Store, system: System, version: int) -> None:
        self._store = store
        self._system = system
        self._checked_at = version
        # The process whose thread has a checkpoint of this writer to write; a child that was forked has none.
        self._busy_in: int | None = None

    def committed(self, head: Head) -> None:
        """Note a commit. Starts to write a checkpoint if one is due and no daemon writes them. Raises nothing."""
        interval = properties.count(head.metadata.configuration, properties.CHECKPOINT_INTERVAL)
        process = os.getpid()
        if head.version // interval <= self._checked_at // interval or self._busy_in == process:
            return
        self._checked_at = head.version
        self._busy_in = process
        try:
            self._system.in_background(lambda: self._write(head.version, interval))
        except RuntimeError as error:  # no more threads can begin, or too much waits
            self._busy_in = None
            _LOGGER.debug("no checkpoint of %s was begun: %s", self._store.url, error)

    def _write(self, version: int, interval: int) -> None:
        try:
            # The pointer to the newest checkpoint shows it without a listing, whose cost grows with the log.
            pointed = pointed_version(self._store)
            if pointed is not None and version - pointed < interval:
                return
            state = load(self._store)
            if len(find_segment(self._store, state.head.version).commit_versions) >= interval:
                checkpointing.checkpoint(self._store, state, self._system)
        except (TidelogError, OSError, RuntimeError) as error:  # no more work can begin at the end of a program
            # Commits are safe without a checkpoint; the next interval tries again.
            _LOGGER.warning("could not write a checkpoint for %s: %s", self._store.url, error)
        finally:
            self._busy_in = None

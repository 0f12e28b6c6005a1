"""The registered consumer of a stream: it keeps clean-ups from what the stream has not read yet.

The owner is an id in the stream's offsets, and so in its checkpoint. A restarted query is the same owner; a second
query with the same consumer name is another one, and is refused.

The position is where a micro-batch begins, since Spark has then completed the one before. So a crash never leaves it
past what was processed.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.read.table_reader import TableReader
from tidelog.log.system import System
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.offsets import Offset


class StreamConsumer:
    """The consumer of one stream. Its first use registers it."""

    def __init__(self, table: TableReader, name: str, system: System) -> None:
        self._table = table
        self._name = name
        self._system = system
        self._reader = ""
        self._consumer: Consumer | None = None

    def named(self, offset: Offset) -> Offset:
        """The offset with the stream's id, which is new unless the checkpoint has one."""
        self._reader = offset.reader or self._reader or self._system.uuid()
        return replace(offset, reader=self._reader)

    def completed(self, start: Offset, planner: FeedPlanner) -> None:
        """Say that everything up to `start` was processed, and that the stream is alive.

        If the commits after `start` have nothing to read, the position is at the last of them: in a long time of
        compactions the stream holds back no clean-up. A restart finds in the record how far they go.

        Raises:
            ConsumerInUseError: Another stream has the name.
            FencedError: Another stream took the name over, or somebody reset or removed the consumer.
            HistoryExpiredError: A clean-up has passed the position.
        """
        owner = self.named(start).reader
        if self._consumer is None:
            self._consumer = claim(
                self._table.store,
                self._table.head,
                self._name,
                owner=owner,
                position=start.last_complete,
                system=self._system,
            )
            if self._consumer.checkpoint == start.version and start.is_whole:
                planner.note_quiet(start, self._consumer.position)
        quiet = planner.resumed(start)
        is_further = start.is_whole and quiet.version > start.version
        self._consumer.advance(quiet.last_complete, checkpoint=start.version if is_further else None)
        self._consumer.heartbeat_if_due()

    def begins(self) -> None:
        """Say that Spark has stored the stream's id, and runs a micro-batch."""
        if self._consumer is not None:
            self._consumer.confirm()

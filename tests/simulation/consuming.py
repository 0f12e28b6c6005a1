"""Consumers of the change feed as actors: they register, read, advance, die, sleep for ever and come back.

There are two kinds, as in reality. A query keeps its own checkpoint: its owner and its position survive a death. A
command keeps nothing but what it has printed: each of its lives is another owner, which goes on where the record says.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.log.oracle.checks import TAKES
from tests.log.oracle.model import Row
from tests.simulation.actors import Job, Outcome, rows_of
from tests.simulation.record import Record, Seen, Told
from tidelog.log import Table
from tidelog.log.consumers.administration import reset_consumer
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import (
    ConfigurationError,
    ConsumerInUseError,
    CorruptLogError,
    DataFileMissingError,
    FencedError,
    HistoryExpiredError,
    RetryableError,
)

if TYPE_CHECKING:
    from tests.simulation.actors import Actor
    from tests.simulation.world import World

TIME_TO_LIVE_MS = 7 * 86_400_000
TAKEOVER_MS = 60_000
_IDLE: Outcome = (Told.IDLE, None)


@dataclass
class Progress:
    """What a consumer of a table has processed since its start.

    `spans` are the intervals that it processed. `began_ms` is when its last call began that succeeded, by the store's
    clock; None if it was never registered. `kept_ms` is the time of the newest record that clean-ups waited for, as the
    copy knew that acted last. It goes by its own records: one of another copy may be about to be withdrawn.
    """

    table_id: str
    owner: str
    start: int
    position: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    began_ms: int | None = None
    kept_ms: int = 0

    @property
    def end(self) -> int:
        """The version up to which nothing is left out."""
        end = self.start
        for after, until in sorted(self.spans):
            if after <= end:
                end = max(end, until)
        return end


@dataclass(frozen=True)
class Consume(Job):
    """Registers, and reads in rounds. With `reads_late` all rounds but the last are signs of life only."""

    name_: str
    back: int = 2
    rounds: int = 2
    pause_ms: int = 0
    is_command: bool = False
    reads_late: bool = False

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        known = actor.world.progress.get(self.name_)
        if known is None or known.table_id != table.id:
            start = max(table.head.first_version - 1, table.version - self.back)
            known = Progress(table.id, actor.process.system.uuid(), start, start)
            actor.world.progress[self.name_] = known
        try:
            consumer = self._registered(actor, table, known)
            if consumer is not None:
                self._follow(actor, record, table, consumer, known)
        except FencedError:
            pass  # a second copy has taken over
        except (HistoryExpiredError, CorruptLogError) as error:
            judge(actor.world, self.name_, known, error)
            actor.world.progress.pop(self.name_, None)
            self._start_again(table.refresh())
            raise
        return _IDLE

    def _registered(self, actor: Actor, table: Table, known: Progress) -> Consumer | None:
        began_ms = actor.world.store_ms
        owner = actor.process.system.uuid() if self.is_command else known.owner
        takeover_after_ms = TAKEOVER_MS if self.is_command else None
        position = known.position
        try:
            consumer = claim(
                table.store,
                table.head,
                self.name_,
                owner=owner,
                position=position,
                system=actor.process.system,
                takeover_after_ms=takeover_after_ms,
            )
            consumer.confirm()
        except ConsumerInUseError:
            return None
        except HistoryExpiredError as error:
            if known.position > position:
                raise FencedError(f"a second copy of {self.name_} was registered at {known.position}") from error
            raise
        if actor.world.progress.get(self.name_) is not known:
            raise FencedError(f"a second copy of {self.name_} was told that it is cut off, and has begun again")
        if known.began_ms is None:
            known.start = known.position = consumer.position
        elif self.is_command and consumer.position > known.end:
            actor.world.object("consumer", f"{self.name_} goes on at {consumer.position}, and processed {known.end}")
        known.began_ms, known.kept_ms = began_ms, actor.world.signs.newest_ms(self.name_, actor.process.actor)
        return consumer

    def _follow(self, actor: Actor, record: Record, table: Table, consumer: Consumer, known: Progress) -> None:
        for number in range(self.rounds):
            began_ms = actor.world.store_ms
            position = consumer.position if self.is_command else known.position
            until = table.refresh().version
            if until > position and (number + 1 == self.rounds or not self.reads_late):
                try:
                    step(actor, record, table, consumer, known, position, until)
                except (HistoryExpiredError, DataFileMissingError) as error:
                    if known.position > position:
                        # Clean-ups wait for the copy that has gone on, and not for this one.
                        raise FencedError(f"a second copy of {self.name_} is at {known.position}") from error
                    raise
            consumer.heartbeat_if_due()
            known.began_ms = max(known.began_ms or 0, began_ms)
            if not actor.world.scenario.store_jump_chance:
                # Else only a claim proves it: a sign of life goes by this machine's clocks, and the store's may jump.
                known.kept_ms = actor.world.signs.newest_ms(self.name_, actor.process.actor)
            actor.process.system.sleep_s(self.pause_ms / 1000)

    def _start_again(self, table: Table) -> None:
        with contextlib.suppress(ConfigurationError, HistoryExpiredError, RetryableError, CorruptLogError):
            reset_consumer(table.timeline, table.head, self.name_, "earliest")


def step(
    actor: Actor, record: Record, table: Table, consumer: Consumer, known: Progress, position: int, until: int
) -> None:
    """Process what follows `position`, and then say so."""
    process(actor, record, table, known, position, until)
    consumer.advance(until)


def process(actor: Actor, record: Record, table: Table, known: Progress, position: int, until: int) -> None:
    """Read the state at the position and the changes since then. What was processed survives every death."""
    if position >= table.head.first_version:
        before: Counter[Row] = Counter(rows_of(table.at(version=position).scan().to_arrow()))
        actor.seen.append(Seen(record, table.id, position, before))
    changes = table.changes(after=position, until=until).to_arrow()
    taken: Counter[Row] = Counter()
    given: Counter[Row] = Counter()
    for kind, row in zip(changes["_change_type"].to_pylist(), rows_of(changes), strict=True):
        (taken if kind in TAKES else given)[row] += 1
    actor.seen.append(Seen(record, table.id, until, given, position, taken))
    known.spans.append((position, until))
    known.position = until


def judge(world: World, name: str, known: Progress, error: Exception) -> None:
    """Object if a consumer was cut off that clean-ups had to wait for."""
    table = world.history.current
    if known.began_ms is None or known.table_id != table.table_id or table.ended:
        return
    silent_ms = world.store_ms - known.began_ms
    is_alive = silent_ms < TIME_TO_LIVE_MS * 3 // 4 and not world.scenario.store_jump_chance
    if is_alive or world.signs.are_unbroken(name, known.table_id, known.kept_ms, world.store_ms, TIME_TO_LIVE_MS):
        world.object("consumer", f"{name} at {known.position} is cut off after {silent_ms} ms: {error}"[:300])

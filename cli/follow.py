"""`tidelog changes --follow`: print the changes of each commit as it comes.

A commit's rows are written and flushed as a whole before the consumer's position moves past it. So after a crash the
last commit can be printed again, and none is left out. While the store does not answer the command tries again, but
never after the first row of a commit and before its last one: what was written would be written twice.

It is stopped by a signal, or because the reader of its output went away. What it waits for has bounds: its consumer's
name, and a store that does not answer.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType

import pyarrow as pa

from tidelog.cli import output, row_formats
from tidelog.cli.row_formats import OutputFormat
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import ConfigurationError, ConsumerInUseError, StoreUnavailableError, TidelogError
from tidelog.log.read.changes import columns_with_change, require_mode
from tidelog.log.read.timeline import BEFORE_FIRST, Point
from tidelog.log.system import REAL_SYSTEM, System, process_name

# How long the table is left alone between two looks: short while commits arrive, and a second after 30 s without one.
_QUICK_S, _SLOW_S, _GROWS_FOR_S = 0.02, 1.0, 30.0
# How many rows are written between two looks at the consumer's clock.
_ROWS_AT_ONCE = 1_000

# A command cannot come back under its old identity, so its name is free soon after a crash.
TAKEOVER_AFTER_MS = 60_000
# The times of files, by which silence is measured, have whole seconds in some stores.
_STORE_CLOCK_MS = 2_000
# Long enough for a command that crashed. A stream's name is taken for days: nobody waits for that.
NAME_WAIT_LIMIT_MS = TAKEOVER_AFTER_MS + _STORE_CLOCK_MS
# How often to look whether the name was released, or its owner is alive, and the shortest wait between two looks.
_LOOK_EVERY_S, _SHORTEST_S = 1.0, 0.02

# Outlasts a failover or a network fault. A longer outage should reach the person who runs the command.
OUTAGE_LIMIT_S = 600.0
# Waits between two attempts: each is twice as long as the one before, up to the second figure.
_BACKOFF_S, _BACKOFF_LIMIT_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Follow:
    """What to print. `after` is where a consumer begins that is not registered yet."""

    mode: str
    after: Point | None
    where: str | None
    columns: list[str] | None


def follow(table: Table, wanted: Follow, chosen: OutputFormat, *, consumer: str | None, initial_snapshot: bool) -> None:
    """Print changes until SIGTERM, SIGINT or the reader of the output goes away. The commit at hand is finished first.

    Raises the errors of `claim`, `Consumer.advance` and `Table.changes`.
    """
    if initial_snapshot and wanted.after is not None:
        raise ConfigurationError("--after and --initial-snapshot exclude each other", advice="leave one out")
    table.changes(until=BEFORE_FIRST, mode=wanted.mode, where=wanted.where, columns=wanted.columns)  # checks them
    if initial_snapshot:
        start = table.version
    else:
        start = table.timeline.interval_end(BEFORE_FIRST if wanted.after is None else wanted.after)
    with stopping() as stop, contextlib.ExitStack() as ending:
        owned = None if consumer is None else _claimed(table, consumer, start, stop)
        if owned is not None:
            ending.callback(_release, owned)
        if stop.is_set:
            return
        if owned is not None and wanted.after is not None and owned.position != start:
            output.complain(f"the consumer {consumer} is registered: going on after version {owned.position}")
        tail = _Tail(table, wanted, _Writer(chosen), owned, start if owned is None else owned.position)
        if initial_snapshot and (owned is None or not owned.is_started):
            tail.snapshot()
        if owned is not None:
            owned.confirm()
        tail.run(stop)


def _claimed(table: Table, name: str, start: int, stop: Stop) -> Consumer | None:
    """The consumer, once its name is free. None if stopped before."""
    owner = f"{process_name()}:{REAL_SYSTEM.uuid()}"

    def attempt() -> Consumer:
        return claim(
            table.store,
            table.head,
            name,
            owner=owner,
            position=start,
            system=REAL_SYSTEM,
            takeover_after_ms=TAKEOVER_AFTER_MS,
        )

    return claim_when_free(attempt, name, stop, REAL_SYSTEM)


def _release(owned: Consumer) -> None:
    """Free the consumer's name. An error that ended the command is more important than one of this."""
    with contextlib.suppress(TidelogError, OSError):
        owned.release()


@dataclass
class _Tail:
    """The changes after `position`."""

    table: Table
    wanted: Follow
    writer: _Writer
    consumer: Consumer | None
    position: int
    # Whether some rows of a commit were written, but not all.
    is_amid_rows: bool = False

    def snapshot(self) -> None:
        """Print the table as it is at the position, as rows inserted by that version."""
        snapshot = self.table.at(version=self.position)
        schema = self.table.changes(after=self.table.version, mode=self.wanted.mode).schema
        own = {"_change_type": "insert", "_commit_version": self.position, "_commit_timestamp": snapshot.timestamp}
        mode = require_mode(self.wanted.mode)
        columns = columns_with_change(self.wanted.columns, mode, self.table.schema) or schema.names
        scan = snapshot.scan(self.wanted.where)

        def complete() -> Iterator[pa.RecordBatch]:
            for batch in scan.to_batches():
                arrays = [
                    pa.repeat(pa.scalar(own[name], schema.field(name).type), batch.num_rows)
                    if name in own
                    else batch.column(name)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))

        self._write(complete())

    def run(self, stop: Stop) -> None:
        """Print commit after commit, and wait for the next one, or for a store that does not answer."""
        outage = Outage(stop, REAL_SYSTEM)
        last_s = REAL_SYSTEM.monotonic_s()
        while not stop.is_set:
            before = self.position
            try:
                self._print_new(stop)
            except StoreUnavailableError as error:
                if self.is_amid_rows:
                    raise
                if self.position != before:
                    outage.end()
                outage.wait(error)
                continue
            outage.end()
            if self.position != before:
                last_s = REAL_SYSTEM.monotonic_s()
            idle_s = REAL_SYSTEM.monotonic_s() - last_s
            stop.wait(min(_SLOW_S, max(_QUICK_S, idle_s * _SLOW_S / _GROWS_FOR_S)))

    def _print_new(self, stop: Stop) -> None:
        """Print what was committed since the last look. After an error that was not amid rows, call it again."""
        # An outage can have kept the position from being stored, and somebody else can have taken over meanwhile. Both
        # come before more rows.
        self._advance()
        if self.consumer is not None:
            self.consumer.heartbeat_if_due()
        newest = self.table.refresh().version
        if newest == self.position:
            return
        for commit, _ in self.table.timeline.between(self.position, newest):
            if stop.is_set:
                break
            if commit.data_change:
                wanted = self.wanted
                changes = self.table.changes(
                    after=commit.version - 1,
                    until=commit.version,
                    mode=wanted.mode,
                    where=wanted.where,
                    columns=wanted.columns,
                )
                self._write(changes.to_batches())
            self.position = commit.version
            if commit.data_change:
                self._advance()
        # Clean-ups need not keep what compactions replaced meanwhile.
        self._advance()

    def _advance(self) -> None:
        """Store the position, if that is not done yet."""
        if self.consumer is not None:
            self.consumer.advance(self.position)

    def _write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows, and flush them."""
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                self.is_amid_rows = True
                self.writer.write(batch.slice(start, _ROWS_AT_ONCE))
                if self.consumer is not None:
                    self.consumer.heartbeat_if_due()
        sys.stdout.flush()
        self.is_amid_rows = False


@dataclass
class _Writer:
    """Writes rows in a format. The columns can change while a table is followed."""

    chosen: OutputFormat
    columns: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        if self.chosen is OutputFormat.TABLE:
            values = [list(row.values()) for row in row_formats.rows_of(batch)]
            output.write_grid(batch.schema.names, values, numbers=row_formats.number_columns(batch.schema))
            return
        if self.chosen is OutputFormat.CSV and self.columns != batch.schema.names:
            self.columns = batch.schema.names
            row_formats.write_csv_header(self.columns)
        for row in row_formats.rows_of(batch):
            if self.chosen is OutputFormat.JSON:
                output.write_json(row)
            else:
                row_formats.write_csv_row(row.values())


# --- what it waits for -----------------------------------------------------------------------------------------------


def claim_when_free(claim: Callable[[], Consumer], name: str, stop: Stop, system: System) -> Consumer | None:
    """What `claim` returns, once the owner of the name has been silent for long enough. None if stopped before.

    An owner that crashed gives no sign of life. One that gives a sign is running, so that waiting would be in vain.

    Raises:
        ConsumerInUseError: The owner is alive, somebody else was faster, or the name is not free soon.
    """
    owner, free_ms = "", 0.0
    while not stop.is_set:
        began_ms = system.monotonic_s() * 1000
        try:
            return claim()
        except ConsumerInUseError as error:
            if not owner:
                if error.free_in_ms > NAME_WAIT_LIMIT_MS:
                    raise
                owner, free_ms = error.owner, system.monotonic_s() * 1000 + error.free_in_ms
                seconds = -(-error.free_in_ms // 1000)
                output.complain(f"the consumer {name} belongs to {owner}: waiting up to {seconds} s for the name")
            elif error.owner != owner or began_ms + error.free_in_ms > free_ms + _STORE_CLOCK_MS:
                raise
            left_s = error.free_in_ms / 1000
        stop.wait(max(_SHORTEST_S, min(_LOOK_EVERY_S, left_s)))
    return None


class Outage:
    """The time in which the store does not answer, if it is such a time."""

    def __init__(self, stop: Stop, system: System) -> None:
        self._stop = stop
        self._system = system
        self._began_s: float | None = None
        self._backoff_s = _BACKOFF_S

    def wait(self, error: StoreUnavailableError) -> None:
        """Wait before the next attempt, and say so at the first one. Raises `error` after OUTAGE_LIMIT_S."""
        now_s = self._system.monotonic_s()
        if self._began_s is None:
            self._began_s, self._backoff_s = now_s, _BACKOFF_S
            output.complain(f"trying again for {OUTAGE_LIMIT_S / 60:.0f} minutes: {error}")
        elif now_s - self._began_s >= OUTAGE_LIMIT_S:
            raise error
        self._stop.wait(self._system.uniform(self._backoff_s / 2, self._backoff_s))
        self._backoff_s = min(_BACKOFF_LIMIT_S, self._backoff_s * 2)

    def end(self) -> None:
        """The store has answered. Says so if it had not."""
        if self._began_s is not None:
            output.complain(f"the store answers again, after {self._system.monotonic_s() - self._began_s:.0f} s")
            self._began_s = None


# --- how it is stopped -----------------------------------------------------------------------------------------------


class Stop:
    """Whether to stop, and a wait that ends as soon as that is known."""

    def __init__(self) -> None:
        self.is_set = False
        # An Event would not do: its lock can be held when a signal handler wants it. A SimpleQueue is made for that.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one ends the command after the commit at hand, the second one at once."""
        del frame
        if self.is_set:
            raise SystemExit(128 + number)
        self.is_set = True
        self._wake.put(None)

    def wait(self, seconds: float) -> None:
        """Wait, but not for a reader of the output that has gone. Raises BrokenPipeError."""
        with contextlib.suppress(Empty):
            self._wake.get(timeout=seconds)
        if _is_reader_gone():
            raise BrokenPipeError


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Within the block SIGTERM and SIGINT stop in order."""
    stop = Stop()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_reader_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more; otherwise only a write would notice."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False

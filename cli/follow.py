"""`tidelog changes --follow`: print the changes of each commit as it comes.

A commit's rows are written and flushed as a whole before the consumer's position moves past it. So after a crash the
last commit can be printed again, and none is left out. While the store does not answer the command tries again, but
never after the first row of a commit and before its last one: what was written would be written twice.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidelog.cli import output, rows
from tidelog.cli.rows import OutputFormat
from tidelog.cli.stopping import Stop, stopping
from tidelog.cli.waits import TAKEOVER_AFTER_MS, Outage, claim_when_free
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import ConfigurationError, StoreUnavailableError, TidelogError
from tidelog.log.read.timeline import BEFORE_FIRST, Point
from tidelog.log.system import REAL_SYSTEM, process_name

# How long the table is left alone between two looks: short while commits arrive, and a second after 30 s without one.
_SHORTEST_S, _LONGEST_S, _GROWS_FOR_S = 0.02, 1.0, 30.0
# How many rows are written between two looks at the consumer's clock.
_ROWS_AT_ONCE = 1_000


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
        columns = self.wanted.columns or schema.names
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
            stop.wait(min(_LONGEST_S, max(_SHORTEST_S, idle_s * _LONGEST_S / _GROWS_FOR_S)))

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
            values = [list(row.values()) for row in rows.rows_of(batch)]
            output.write_grid(batch.schema.names, values, numbers=rows.number_columns(batch.schema))
            return
        if self.chosen is OutputFormat.CSV and self.columns != batch.schema.names:
            self.columns = batch.schema.names
            rows.write_csv_header(self.columns)
        for row in rows.rows_of(batch):
            if self.chosen is OutputFormat.JSON:
                output.write_json(row)
            else:
                rows.write_csv_row(row.values())

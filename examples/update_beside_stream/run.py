"""The steps of the demo: races staged by hand, all writers at full speed, the ledger, the checks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pyarrow.compute as pc

from examples.shared.check import Check, same_rows
from examples.shared.child_process import daemon_process
from examples.shared.command import Clock, parser, run_in, say
from examples.shared.departures import Departures
from examples.update_beside_stream.flights import CHECKED, Flights
from examples.update_beside_stream.folder import Folder
from examples.update_beside_stream.full_speed import finish, race
from examples.update_beside_stream.scenes import play
from tidelog.log import OperationClass

_FIRST_DAYS = 3
_LEDGER_LINES = 20
# What the scenes lose: an update to the stream, a compaction to a compaction.
_STAGED_LOSSES = {("UPDATE_DELETE", "INSERT", "conflict"), ("MINOR", "MINOR", "superseded")}


def run(arguments: Sequence[str]) -> int:
    """Run the demo and return the exit code of the process."""
    options = parser("UPDATE and DELETE beside a stream and a compaction.", "update")
    options.add_argument("--seconds", type=float, default=20.0, help="time at full speed (default: 20)")
    options.add_argument("--seed", type=int, default=12, help="draws the days of the updates (default: 12)")
    given = options.parse_args(arguments)
    if given.seconds < 0:
        options.error("--seconds must not be below zero")
    folder = Folder(given.data.absolute())
    return run_in(folder, lambda: _demo(folder, given.seconds, given.seed), clean=given.clean)


def _demo(folder: Folder, seconds: float, seed: int) -> bool:
    """Run all steps; return whether all checks hold."""
    clock = Clock()
    say(f"working in {folder.root}; starting the stream, which adds a day of flights whenever one is announced")
    flights = Flights(folder, Departures())
    with flights.writer:
        for _ in range(_FIRST_DAYS):
            flights.announce_day()
        flights.await_days()
        say(f"{clock}  five races, staged by hand:")
        play(flights, say)
        say(
            f"{clock}  {seconds:.0f} seconds at full speed, with the stream, three statements and the compaction daemon"
        )
        with daemon_process(folder.logs, folder.table) as daemon:
            statements = race(flights, daemon, seconds, seed)
        finish(flights)
    for line in (*statements, _others(flights)):
        say(f"  {line}")
    say(f"{clock}  tidelog conflicts {flights.path} --limit {_LEDGER_LINES}")
    say(_conflicts(flights, "--limit", str(_LEDGER_LINES)))
    results = _checks(flights)
    for result in (*results, f"  took {clock}; the table: {flights.path}"):
        say(result)
    return all(check.holds for check in results)


def _others(flights: Flights) -> str:
    classes = Counter(record.operation_class for record in flights.table.refresh().history())
    compactions = classes[OperationClass.MINOR] + classes[OperationClass.MAJOR]
    return f"{classes[OperationClass.INSERT]} batches of the stream, {compactions} compactions"


def _conflicts(flights: Flights, *options: str) -> str:
    """What the command `tidelog conflicts` prints for the table."""
    command = [sys.executable, "-c", "from tidelog import cli; cli.main()", "conflicts", flights.path, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def _checks(flights: Flights) -> list[Check]:
    rows, expected = flights.table.refresh().scan().to_arrow(), flights.expected()
    ledger = [json.loads(line) for line in _conflicts(flights, "--json").splitlines()]
    losses = {(entry["later"], entry["earlier"], entry["outcome"]) for entry in ledger}
    looks = [int(pc.sum(table[CHECKED]).as_py() or 0) for table in (expected, rows)]
    return [
        Check(
            f"the table is what the statements make of {flights.days} days, as if they had run one after the other: "
            f"{len(expected):,} rows expected, {len(rows):,} found",
            same_rows(rows, expected.cast(rows.schema)),
        ),
        Check(
            f"each of the {flights.checks.total()} updates of a past day counts once: {looks[0]:,} rows updated, "
            f"{looks[1]:,} counted",
            looks[0] == looks[1],
        ),
        Check(f"the ledger has the losses that were staged: {len(ledger)} entries", losses >= _STAGED_LOSSES),
    ]

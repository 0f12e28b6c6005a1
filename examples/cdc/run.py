"""The steps of the demo: database, broker, connector, stream and daemon, kills, and the comparison at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from examples.cdc import shop
from examples.cdc.compare import Comparison, compare
from examples.cdc.connector import debezium_jars
from examples.cdc.folder import Folder
from examples.cdc.postgres import programs
from examples.cdc.running_demo import CUSTOMERS, Progress, RunningDemo, running_demo
from examples.kafka.jars import FetchError, broker_jars, cache, connector_jars
from examples.shared.check import Check
from examples.shared.command import Clock, StuckError, parser, run_in, say
from examples.shared.working_folder import WrongUseError
from tidelog.log import OperationClass, Table
from tidelog.log.errors import TableNotFoundError

_SAY_S = 5.0
_LOOK_S = 0.25
_STUCK_S = 180.0
_SHOWN_LETTERS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the workload runs, how many kills there are, and what draws both."""

    seconds: float
    kills: int
    seed: int


def run(arguments: Sequence[str]) -> int:
    """Run the demo and return the exit code of the process."""
    options = parser("Tables follow a PostgreSQL database through Debezium and Kafka.", "cdc")
    options.add_argument("--seconds", type=float, default=90.0, help="how long the workload runs (default: 90)")
    options.add_argument("--kills", type=int, default=8, help="how many processes are killed (default: 8)")
    options.add_argument("--seed", type=int, default=27, help="draws the workload and the kills (default: 27)")
    given = options.parse_args(arguments)
    if given.seconds <= 0 or given.kills < 0:
        options.error("--seconds must be above zero, and --kills not below it")
    folder = Folder(given.data.absolute())
    return run_in(folder, lambda: _demo(folder, Plan(given.seconds, given.kills, given.seed)), clean=given.clean)


def _demo(folder: Folder, plan: Plan) -> bool:
    """Run all steps; return whether all tables are equal."""
    clock = Clock()
    # Kafka's clients log every connection that a restart breaks.
    logging.basicConfig(filename=folder.logs / "clients.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    say(f"working in {folder.root}; the first run downloads Kafka, Debezium and Spark's Kafka connector (105 MB)")
    _require_parts()
    try:
        with running_demo(folder, plan.seconds, plan.seed) as running:
            say(f"{clock}  the database has {CUSTOMERS:,} customers and changes; connector and stream have started")
            _watch(running, plan, clock)
            results, differences = _compare(running, folder)
            interrupted = running.workload.interrupted
    except RuntimeError as error:  # a server that does not start
        raise StuckError(str(error)) from error
    took = f"  took {clock}, with {len(running.killed)} kills (seed {plan.seed}): {', '.join(running.killed)}"
    transactions = (
        f"  {running.workload.transactions:,} transactions, {interrupted} of them interrupted by a kill, "
        f"and {running.workload.schema_changes} changes of the schema"
    )
    table = f"  {_compactions(folder)} compactions of the tables in {folder.tables}"
    for line in ("", *differences, *results, took, transactions, table):
        say(line)
    return all(check.holds for check in results)


def _require_parts() -> None:
    """Raise WrongUseError if a part is missing and cannot be downloaded."""
    programs()
    try:
        broker_jars()
        debezium_jars()
        connector_jars()
    except FetchError as error:
        raise WrongUseError(
            f"{error}\nrun `make demo-cdc` again with access to Maven Central (repo1.maven.org), or copy {cache()} "
            "from a machine where it has run"
        ) from None


def _watch(running: RunningDemo, plan: Plan, clock: Clock) -> None:
    """Run until all tables have everything. Raises StuckError without progress."""
    kills = running.draw_kills(plan.seconds, plan.kills)
    started_s = clock.elapsed_s
    last, moved_s, said_s = Progress(), time.monotonic(), float("-inf")
    while True:
        for name in running.supervise():
            say(f"{clock}  the {name} ended by itself; it was restarted")
        progress = running.look()
        now_s = time.monotonic()
        if progress != last:
            last, moved_s = progress, now_s
        elif now_s - moved_s > _STUCK_S:
            raise StuckError(f"no progress for {_STUCK_S:.0f} seconds: {progress}")
        if now_s - said_s >= _SAY_S:
            said_s = now_s
            say(f"{clock}  {progress}")
        if kills and clock.elapsed_s - started_s >= kills[0][0]:
            _, name = kills.pop(0)
            say(f"{clock}  the {name} is killed and restarted")
            running.kill(name)
        elif not kills and not running.workload.is_alive():
            running.mark()
            if running.is_done(progress):
                say(f"{clock}  {progress}")
                return
        time.sleep(_LOOK_S)


def _compare(running: RunningDemo, folder: Folder) -> tuple[list[Check], list[str]]:
    """The checks, and the differences between the tables and the database."""
    found: list[Comparison] = []
    with running.database.connect() as connection:
        for name, keys in shop.KEYS.items():
            found.append(compare(connection, name, keys, Table.open(str(folder.copy_of(name)))))
    checks = [
        Check(f"{each.table}: each of {each.rows:,} rows is the same in both, column for column", not each.differences)
        for each in found
    ]
    letters = [row for name in shop.KEYS for row in _rows_of(folder.dead_letters_of(name))]
    checks.append(Check(f"no record is a dead letter: {len(letters)} are", not letters))
    shown = [f"a dead letter: {letter.get('_reason')}" for letter in letters[:_SHOWN_LETTERS]]
    return checks, [line for each in found for line in each.differences] + shown


def _rows_of(path: object) -> list[dict[str, object]]:
    """The rows of a table; none if there is no table."""
    try:
        return list(Table.open(str(path)).scan().to_arrow().to_pylist())
    except TableNotFoundError:
        return []


def _compactions(folder: Folder) -> int:
    return sum(
        record.operation_class is OperationClass.MINOR
        for name in shop.KEYS
        for record in Table.open(str(folder.copy_of(name))).history()
    )

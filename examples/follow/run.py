"""The steps of the demo: fill the table, follow it, kill the follower, compare."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

from examples.follow.board import Board
from examples.follow.checks import Lag, checks, lag
from examples.follow.folder import Folder
from examples.follow.position import batches, followed_version
from examples.shared.child_process import ChildProcess, daemon_process
from examples.shared.command import Clock, StuckError, parser, run_in, say
from examples.shared.departures import Departures

_DAYS_BEFORE = 3
_DAY_S = 1.0
_MOST_BEHIND = 40
_SAY_S = 5.0
_LOOK_S = 0.1
_STUCK_S = 300.0
_SHOWN_BATCHES = 12


@dataclass(frozen=True, slots=True)
class Plan:
    """How many days arrive at least, how often the follower is killed, and what draws the moments."""

    days: int
    kills: int
    seed: int


def run(arguments: Sequence[str]) -> int:
    """Run the demo and return the exit code of the process."""
    options = parser("A second table follows a table with updates and deletes.", "follow")
    options.add_argument("--days", type=int, default=40, help="days of flights, one a second (default: 40)")
    options.add_argument("--kills", type=int, default=5, help="how often the follower is killed (default: 5)")
    options.add_argument("--seed", type=int, default=12, help="draws the moments of the kills (default: 12)")
    given = options.parse_args(arguments)
    if not _DAYS_BEFORE < given.days <= Departures().days or given.kills < 0:
        options.error(f"--days must be from {_DAYS_BEFORE + 1} to {Departures().days}, and --kills not below zero")
    folder = Folder(given.data.absolute())
    return run_in(folder, lambda: _demo(folder, Plan(given.days, given.kills, given.seed)), clean=given.clean)


def _demo(folder: Folder, plan: Plan) -> bool:
    """Run all steps; return whether all checks hold."""
    clock = Clock()
    say(f"working in {folder.root}")
    board = Board(folder, Departures())
    board.begin(_DAYS_BEFORE)
    say(f"the table has {board.table.at().num_rows:,} flights of {_DAYS_BEFORE} days; starting stream and follower")
    with ExitStack() as stack:
        follower = _program("follower", "examples.follow.follower", folder, str(folder.root))
        stack.enter_context(_writer(folder))
        stack.enter_context(daemon_process(folder.logs, folder.table))
        stack.enter_context(follower)
        found = _follow(_Following(folder, board, follower, plan), clock)
    done = batches(folder)
    say("")
    say("  batch   copy is at version   and has the table up to version, time version")
    for batch in done[-_SHOWN_BATCHES:]:
        say(f"  {batch.number:>5}   {batch.copy_version:>18}   {batch.version:>7}, {batch.time_version or '-'}")
    say("")
    say(
        f"  the table made {found.time_versions} time versions in {found.versions} versions, {found.compactions} of "
        f"them compactions"
    )
    say(f"  the follower read them in {len(done)} micro-batches, killed {plan.kills} times (seed {plan.seed})")
    say(f"  {sum(batch.replays for batch in done)} micro-batches ran again after a kill and were skipped")
    results = checks(folder, done, found.behind)
    for line in (*results, f"  took {clock}; the tables: {folder.table}, {folder.copy}"):
        say(line)
    return all(check.holds for check in results)


class _Life:
    """One life of the follower, which ends some time after it has applied some micro-batches."""

    def __init__(self, random: Random, applied: int) -> None:
        self._until = applied + random.randint(0, 2)
        # Spark takes some seconds to start; a kill before the first micro-batch can come at any of them.
        self._delay_s = random.uniform(0, 8.0 if self._until == applied else 1.5)
        self._due_s: float | None = None

    def is_over(self, applied: int) -> bool:
        """Whether to kill it now."""
        if applied >= self._until and self._due_s is None:
            self._due_s = time.monotonic() + self._delay_s
        return self._due_s is not None and time.monotonic() >= self._due_s


class _Following:
    """The table, the follower, and what is still to happen to them."""

    def __init__(self, folder: Folder, board: Board, follower: ChildProcess, plan: Plan) -> None:
        self.kills = 0
        self._folder = folder
        self._board = board
        self._follower = follower
        self._plan = plan
        self._random = Random(plan.seed)
        self._life = _Life(self._random, 0)
        self._next_day_s = float("-inf")

    def step(self) -> Lag:
        """Do what is due; return how far the follower is. Raises ChildEndedError if it ended by itself."""
        self._follower.require_running()
        arrived = self._board.change_if_arrived()
        found = lag(self._board.table.refresh(), followed_version(self._folder))
        if arrived and not self._has_happened and self._is_time_for_a_day(found):
            self._next_day_s = time.monotonic() + _DAY_S
            self._board.announce_next()
        if self.kills < self._plan.kills and self._life.is_over(len(batches(self._folder))):
            self._follower.restart()
            self.kills += 1
            self._life = _Life(self._random, len(batches(self._folder)))
        return found

    def is_done(self, found: Lag) -> bool:
        """Whether everything has happened and was followed."""
        return self._has_happened and not self._board.is_waiting and found.behind == 0

    def __str__(self) -> str:
        return f"{self._board.days} days announced"

    @property
    def _has_happened(self) -> bool:
        return self.kills == self._plan.kills and self._board.days >= self._plan.days

    def _is_time_for_a_day(self, found: Lag) -> bool:
        """A day comes each second, but not while a follower that starts slowly is far behind."""
        if self._board.is_full:
            raise StuckError("there are no more flights, and the follower was not killed often enough")
        return found.behind < _MOST_BEHIND and time.monotonic() >= self._next_day_s


def _follow(following: _Following, clock: Clock) -> Lag:
    """Run until everything was followed. Raises StuckError without progress."""
    last, moved_s, said_s, kills = Lag(0, 0, 0, 0), 0.0, float("-inf"), 0
    while True:
        found = following.step()
        now_s = clock.elapsed_s
        if following.kills > kills:
            kills = following.kills
            say(f"{clock}  the follower is killed and started again")
        if found != last:
            last, moved_s = found, now_s
        elif now_s - moved_s > _STUCK_S:
            raise StuckError(f"no progress for {_STUCK_S:.0f} seconds")
        is_done = following.is_done(found)
        if now_s - said_s >= _SAY_S or is_done:
            said_s = now_s
            say(
                f"{clock}  {following}; the table made {found.time_versions} time versions, "
                f"the copy is {found.behind} behind"
            )
        if is_done:
            return found
        time.sleep(_LOOK_S)


def _writer(folder: Folder) -> ChildProcess:
    paths = folder.incoming, folder.table, folder.checkpoints / "writer", folder.scratch / "writer"
    return _program("writer", "examples.shared.stream_writer", folder, *map(str, paths))


def _program(name: str, module: str, folder: Folder, *arguments: str) -> ChildProcess:
    return ChildProcess(name, [sys.executable, "-m", module, *arguments], folder.logs)

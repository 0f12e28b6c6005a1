"""Starts all programs, kills and pauses them, takes samples, and brings all of them to their end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field

from examples.shared.child_process import ChildEndedError, ChildProcess
from examples.shared.command import Clock, say
from tests.soak.disruptions import Disruption, How, calm, disruptions
from tests.soak.folder import Folder, write_whole
from tests.soak.processes import JAVA, PYTHON, Processes
from tests.soak.programs import NAMES, UPDATER, programs
from tests.soak.rows import SCHEMA
from tests.soak.sampling import Sampler
from tests.soak.settings import CONSUMERS, DAEMONS, SAMPLE_S, STREAMS, Settings
from tests.soak.stream import newest_batch
from tidelog.log import Table
from tidelog.log.consumers.consumer_status import consumers
from tidelog.log.system import REAL_SYSTEM

_LOOK_S = 0.1
_SAY_S = 15.0
# A program finishes its work in seconds; Spark may have to start for that.
_FINISH_S = 180.0
# When the JVM was killed, Python notices at its next call. Then it is killed as well.
_NOTICE_S = 10.0
# What `tidelog daemon` may take for the step in hand.
_TERMINATE_S = 30.0
_TAIL_LINES = 40
_LONGEST_TIMES = 2.0


@dataclass
class Program:
    """One program, and what is about to happen to it."""

    process: ChildProcess
    life: int = 0
    batch_at_start: int = -1
    start_due_s: float | None = None
    continue_due_s: float | None = None
    kill_due_s: float | None = None
    away_s: float = 0.0

    @property
    def is_undisturbed(self) -> bool:
        """Whether it should be running."""
        return self.start_due_s is None and self.kill_due_s is None


@dataclass
class Soaked:
    """What came of a run: its samples with the commits, and what was done to whom."""

    sampler: Sampler
    done: list[Disruption] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """How often what was done to whom."""
        found = {name: Counter[str]() for name in NAMES}
        for each in self.done:
            found[each.name][each.how.value] += 1
        return found


def happened(soaked: Soaked, settings: Settings) -> dict[str, bool]:
    """Whether everything has happened, by what: without it the run proves nothing."""
    commits = soaked.sampler.tail.commits
    kinds = Counter(commit.kind for commit in commits)
    operations = Counter(commit.operation for commit in commits)
    added = sum(len(commit.added) for commit in commits)
    gone = added - (soaked.sampler.samples[-1].data_files if soaked.sampler.samples else 0)
    dropped, takeovers = operations["TRUNCATE"], sum(commit.is_takeover for commit in commits)
    return {
        f"compactions ran: {kinds['MINOR']:,} minor, {kinds['MAJOR']:,} major": kinds["MINOR"] > 0
        and (kinds["MAJOR"] > 0 or not settings.has_majors),
        f"{takeovers} takeovers by another daemon": takeovers > 0,
        f"history expired {operations['EXPIRE']} times": operations["EXPIRE"] > 0,
        f"{operations['VACUUM']} vacuums deleted {gone:,} of {added:,} data files": operations["VACUUM"] > 0 < gone,
        f"partitions were dropped {dropped} times": dropped > 0,
        **{
            f"{name} was disrupted: {', '.join(f'{count} {how}' for how, count in counts.items())}": bool(counts)
            for name, counts in soaked.counts.items()
        },
    }


class Conductor:
    """A run in an empty folder."""

    def __init__(self, folder: Folder, settings: Settings) -> None:
        write_whole(folder.plan, asdict(settings))
        Table.create(str(folder.table), SCHEMA, partition_by=["part"], properties=settings.properties)
        self._folder = folder
        self._settings = settings
        self._clock = Clock()
        self._programs = {name: Program(process) for name, process in programs(folder).items()}
        self._sampler = Sampler(folder)
        self.soaked = Soaked(self._sampler)
        self._coming = disruptions(settings)
        self._due: list[Disruption] = []
        self._sample_due_s = self._said_s = 0.0

    def run(self) -> Soaked:
        """Run to the end. Raises ChildEndedError, with the end of its log, if a program ends that was not killed."""
        with self._children():
            self._start_all()
            while self._is_going_on:
                self._tick()
            self._restore_all()
            self._finish()
        self.soaked.seconds = self._clock.elapsed_s
        return self.soaked

    @property
    def _is_going_on(self) -> bool:
        """Whether the time is not over; on a machine that is too busy a run takes longer, until all has happened."""
        elapsed_s = self._clock.elapsed_s
        if elapsed_s < self._settings.seconds:
            return True
        has_happened = all(happened(self.soaked, self._settings).values())
        return elapsed_s < _LONGEST_TIMES * self._settings.seconds and not has_happened

    @contextmanager
    def _children(self) -> Iterator[None]:
        """All that was started ends with the block, whatever happens."""
        with ExitStack() as stack:
            for program in self._programs.values():
                stack.callback(program.process.kill)
            yield

    def _start_all(self) -> None:
        """The consumers register before clean-up begins, which they could not do at the first version any more."""
        for name in CONSUMERS:
            self._start(self._programs[name])
        table, clock = Table.open(str(self._folder.table)), Clock()
        while sum(each.is_confirmed for each in consumers(table.store, table.head, REAL_SYSTEM)) < len(CONSUMERS):
            self._require_running()
            if clock.elapsed_s > _FINISH_S:
                raise ChildEndedError(f"the consumers did not register within {_FINISH_S:.0f} seconds")
            time.sleep(_LOOK_S)
        for name, program in self._programs.items():
            if name not in CONSUMERS:
                self._start(program)
        self._clock = Clock()
        self._sampler.begin()

    def _start(self, program: Program) -> None:
        program.life += 1
        program.batch_at_start = newest_batch(self._folder, program.process.name)
        program.start_due_s = None
        program.process.start()

    def _tick(self) -> None:
        """Do what is due."""
        now_s = self._clock.elapsed_s
        while self._coming and self._coming[0].at_s <= now_s:
            self._due.append(self._coming.pop(0))
        self._due = [what for what in self._due if self._waits(what, now_s)]
        self._carry_on(now_s)
        if now_s >= self._sample_due_s:
            self._sample_due_s = now_s + SAMPLE_S
            self._sample()
        self._require_running()
        time.sleep(_LOOK_S)

    def _waits(self, what: Disruption, now_s: float) -> bool:
        """Disrupt a process, unless it has to get to work before that, or its calm time has come."""
        program = self._programs[what.name]
        if what.after_work and newest_batch(self._folder, what.name) <= program.batch_at_start:
            return True
        calm_from_s, calm_to_s = calm(what.name, self._settings)
        if calm_from_s <= now_s <= calm_to_s:
            return True
        self._disrupt(what, now_s)
        return False

    def _disrupt(self, what: Disruption, now_s: float) -> None:
        program = self._programs[what.name]
        group = program.process.pid
        if not program.is_undisturbed or program.continue_due_s is not None or group is None:
            return
        program.away_s = what.away_s
        if what.how is How.PAUSE:
            os.killpg(group, signal.SIGSTOP)
            program.continue_due_s = now_s + what.away_s
        elif what.how is How.KILL_JVM:
            java = Processes().below(group).get(JAVA)
            if java is None:  # it has not started yet
                return
            for pid in java.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            program.kill_due_s = now_s + _NOTICE_S
        else:
            program.process.kill()
            program.start_due_s = now_s + what.away_s
        self.soaked.done.append(what)
        with self._folder.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(what), "done_s": now_s}) + "\n")

    def _carry_on(self, now_s: float) -> None:
        """Start what was killed, and continue what was paused, when it is time."""
        for program in self._programs.values():
            group = program.process.pid
            if program.continue_due_s is not None and now_s >= program.continue_due_s:
                program.continue_due_s = None
                if group is not None:
                    os.killpg(group, signal.SIGCONT)
            if program.kill_due_s is not None and (program.process.has_ended() or now_s >= program.kill_due_s):
                program.kill_due_s = None
                program.process.kill()
                program.start_due_s = now_s + program.away_s
            if program.start_due_s is not None and now_s >= program.start_due_s:
                self._start(program)

    def _sample(self) -> None:
        running = {
            name: (program.process, program.life)
            for name, program in self._programs.items()
            if program.is_undisturbed and program.process.pid is not None
        }
        found = self._sampler.sample(running)
        if found.at_s - self._said_s >= _SAY_S or not self._said_s:
            self._said_s = found.at_s
            lags = ", ".join(f"{name} {lag.seconds:.0f} s" for name, lag in found.lags.items())
            say(
                f"{self._clock}  version {found.version:,}; {found.files} files, {found.small_files} small, "
                f"{found.dead_rows:,} dead rows, log tail {found.log_tail}; {found.data_files:,} data files on disk; "
                f"behind: {lags}; {len(self.soaked.done)} kills and pauses"
            )

    def _require_running(self) -> None:
        for program in self._programs.values():
            if program.is_undisturbed and program.process.has_ended():
                self._fail(program.process)

    def _fail(self, process: ChildProcess) -> None:
        """Raise ChildEndedError with the end of the program's log."""
        lines = process.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        try:
            process.require_running()
        except ChildEndedError as error:
            raise ChildEndedError(f"{error}; the end of its log:\n" + "\n".join(lines)) from None

    def _restore_all(self) -> None:
        """Start and continue everything."""
        self._coming.clear()
        self._due.clear()
        while any(not program.is_undisturbed or program.continue_due_s for program in self._programs.values()):
            self._tick()

    def _finish(self) -> None:
        """End the writers with their last work done, then the consumers when they have read all, then the rest."""
        say(f"{self._clock}  finishing the streams and the updater")
        self._end_by_request(*STREAMS)
        self._end_by_request(UPDATER)
        table = Table.open(str(self._folder.table))
        newest = next(record.version for record in table.history() if record.time_version is not None)
        say(f"{self._clock}  the consumers read up to version {newest:,}")
        self._end_by_request(*CONSUMERS, version=newest)
        self._sample()
        for name in DAEMONS:
            self._terminate(name)
        self._sample()

    def _end_by_request(self, *names: str, **content: int) -> None:
        for name in names:
            write_whole(self._folder.request(name), content)
        left = set(names)
        deadline_s = self._clock.elapsed_s + _FINISH_S
        while left:
            for name in sorted(left):
                process = self._programs[name].process
                if process.has_ended():
                    if process.exit_code:
                        self._fail(process)
                    process.kill()
                    left.discard(name)
            if left and self._clock.elapsed_s > deadline_s:
                raise ChildEndedError(f"{', '.join(sorted(left))} did not finish within {_FINISH_S:.0f} seconds")
            if left:
                self._sample_and_look(left)

    def _sample_and_look(self, finishing: set[str]) -> None:
        if self._clock.elapsed_s >= self._sample_due_s:
            self._sample_due_s = self._clock.elapsed_s + SAMPLE_S
            self._sample()
        for name, program in self._programs.items():
            if name not in finishing and program.process.has_ended():
                self._fail(program.process)
        time.sleep(_LOOK_S)

    def _terminate(self, name: str) -> None:
        """SIGTERM to a daemon, as an operator's system does it: it must end with the exit code 0."""
        process = self._programs[name].process
        assert process.pid is not None
        for pid in Processes().below(process.pid)[PYTHON].pids:
            os.kill(pid, signal.SIGTERM)
        code = process.wait(_TERMINATE_S)
        if code:
            raise ChildEndedError(f"{name} ended with the exit code {code} after SIGTERM")

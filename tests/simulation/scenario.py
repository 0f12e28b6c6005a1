"""What a seed draws: the store, the table, the actors, their jobs, and how unkind the world is to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.log.oracle.model import Row, Where
from tests.log.oracle.operations import (
    GONE,
    Delete,
    Insert,
    Merge,
    Ordered,
    Overwrite,
    SetProperties,
    Truncate,
    Update,
    Upsert,
)
from tests.log.oracle.settings import SETTINGS, Setting
from tests.simulation import faults, known_defects
from tests.simulation.faults import Fault
from tests.simulation.known_defects import KNOWN_DEFECTS
from tidelog.log.format import properties

if TYPE_CHECKING:
    from tests.simulation.actors import Job, Plan

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# The share of worlds with daemons.
DAEMON_SHARE = 1 / 3
UPKEEP_SHARE = 1 / 4
STEPPING_SHARE = 1 / 12
ORDER_SHARE = 1 / 4
ENGINE_SHARE = 1 / 6
# Of the worlds with an index of keys, and of the others.
LOOKUP_SHARE, OTHER_LOOKUP_SHARE = 1 / 2, 1 / 6
SWITCH_SHARE = 1 / 4
# Of the worlds that could have an index.
WIDENING_SHARE = 1 / 6
NO_INDEX_SHARE = 1 / 4
# Two files of a few rows, so that there are several groups.
SMALL_TARGET = "1700"


@dataclass(frozen=True)
class Hold:
    """What happens at the `nth` call of an actor: it waits for another actor, or for a time, or dies."""

    actor: str
    operation: str
    path: str
    nth: int = 1
    until: str | None = None
    pause_ms: int = 0
    dies: bool = False


@dataclass(frozen=True)
class Scenario:
    """One simulated world, completely. The same scenario gives the same trace."""

    seed: int
    store: str
    setting: Setting
    plans: tuple[Plan, ...]
    faults: tuple[Fault, ...] = ()
    pause_chance: float = 0.0
    kill_chance: float = 0.0
    longest_operation_ms: int = 0
    zombies: frozenset[str] = frozenset()
    split_listings: bool = False
    stale_ms: int = 0
    skew_ms: int = 0
    clock_jump_chance: float = 0.0
    store_jump_chance: float = 0.0
    stickiness: float = 0.5
    holds: tuple[Hold, ...] = ()
    checks_durability: bool = True
    commit_interval_s: float = 20.0

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.store}, {self.setting.name}"]
        lines += [f"  {plan.name}: {', '.join(map(str, plan.jobs))}" for plan in self.plans]
        lines += [f"  fault: {fault.name}, {fault.chance:.0%} of {fault.operation or 'all'}" for fault in self.faults]
        lines.append(
            f"  pauses {self.pause_chance:.1%}, deaths {self.kill_chance:.1%}, zombies {sorted(self.zombies)}, "
            f"clocks {self.skew_ms / HOUR_MS:.1f} h apart, jumps {self.clock_jump_chance:.1%}, "
            f"the store's clock jumps {self.store_jump_chance:.1%}, "
            f"listings up to {self.stale_ms / 1000:.0f} s old"
        )
        return "\n".join(lines)


def drawn(seed: int, known: Collection[str] = KNOWN_DEFECTS) -> Scenario:
    """The scenario of a seed, without the ingredients of the known defects."""
    random = Random(seed)
    store = random.choice(("disk", "cloud"))
    setting = random.choice(list(SETTINGS.values()))
    draw = _Draw(random, setting, known)
    plans = draw.plans()
    # What was added later has generators of its own, so that everything else stays as each seed drew it.
    if setting.partitioned and Random(-7_000_000_051 - seed).random() < NO_INDEX_SHARE:
        setting = replace(setting, indexed=False)
    widening = Random(-11_000_000_003 - seed)
    if setting.partitioned and widening.random() < WIDENING_SHARE:
        setting = replace(setting, decimals=True)
    following = Random(-1_000_000_007 - seed)
    consumers = _consumers(following)
    stepping = Random(-4_000_000_007 - seed)
    steppers = _steppers(stepping)
    further_actors = (
        *consumers,
        *_daemons(Random(-2_000_000_011 - seed)),
        *_upkeep(Random(-3_000_000_019 - seed)),
        *steppers,
        *(_index_keepers(Random(-5_000_000_029 - seed)) if setting.partitioned else ()),
        *_orderers(Random(-6_000_000_037 - seed)),
        *_lookups(Random(-8_000_000_011 - seed), setting),
        *(_wideners(widening) if setting.decimals else ()),
    )
    kinds = {plan.name.partition("-")[0] for plan in plans}
    cleans = kinds & {"vacuum", "expire", "drop"}
    skews = [0, 1000, 60_000, 2 * HOUR_MS]
    if known_defects.CLOCKS not in known or not cleans:
        skews.append(3 * DAY_MS)
    sleeps = not (
        ("vacuum" in kinds and known_defects.SLEEPERS_BESIDE_VACUUM in known)
        or ("expire" in kinds and known_defects.SLEEPERS_BESIDE_EXPIRE in known)
    )
    zombies = {plan.name for plan in plans if sleeps and random.random() < 0.15}
    found = faults.drawn(random, faults.FAULTS[store], known)
    beside = Random(-1 - seed)
    stale_ms = beside.choice((0, 0, 0, 5_000, 60_000))
    further = faults.drawn(beside, faults.FURTHER_FAULTS[store], known)
    store_jump_chance = beside.choice((0.0, 0.0, 0.02))
    zombies |= {plan.name for plan in further_actors if sleeps and following.random() < 0.15}
    scenario = Scenario(
        seed,
        store,
        setting,
        (*plans, *further_actors),
        found and (*found, *further),
        pause_chance=random.choice((0.0, 0.01, 0.05)),
        kill_chance=random.choice((0.0, 0.0, 0.001, 0.01)),
        longest_operation_ms=(5 * DAY_MS if sleeps and random.random() < 0.3 else 18 * HOUR_MS),
        zombies=frozenset(zombies),
        split_listings=random.random() < 0.5,
        stale_ms=stale_ms,
        store_jump_chance=store_jump_chance,
        skew_ms=random.choice(skews),
        clock_jump_chance=random.choice((0.0, 0.0, 0.05)),
        stickiness=random.choice((0.0, 0.5, 0.9, 0.98)),
        checks_durability=faults.FOLDER_SYNC not in known,
        commit_interval_s=stepping.choice((0.0, 0.0, 0.02)) if steppers else 20.0,
    )
    # Another engine never sleeps for ever, and has about the right time: nothing in the log would stop it.
    has_engine = scenario.skew_ms <= 2 * HOUR_MS and not setting.decimals  # it writes the columns of SCHEMA
    engines = _engines(Random(-9_000_000_011 - seed), setting) if has_engine else ()
    return replace(scenario, plans=(*scenario.plans, *engines))


def _consumers(random: Random) -> tuple[Plan, ...]:
    """Consumers of the change feed, in one world of three; some have two copies. Clean-ups run beside most of them."""
    from tests.simulation import actors, consuming  # noqa: PLC0415 - actors need the world, which needs scenarios

    found: list[Plan] = []
    for number in range(random.choice((0, 0, 0, 0, 1, 2))):
        name, is_command = f"c{number}", random.random() < 0.5
        reading = tuple(
            consuming.Consume(
                name,
                back=random.randint(0, 4),
                rounds=random.randint(1, 3),
                pause_ms=random.choice((0, 0, 5_000, HOUR_MS, DAY_MS)),
                is_command=is_command,
                reads_late=random.random() < 0.3,
                after_ms=random.choice((0, 10, HOUR_MS, DAY_MS, 3 * DAY_MS, 9 * DAY_MS)),
            )
            for _ in range(random.randint(1, 4))
        )
        found.append(actors.Plan(f"consumer-{number}", reading))
        if is_command and random.random() < 0.3:
            found.append(actors.Plan(f"consumer-{number}-again", reading))
    waits = (DAY_MS + HOUR_MS, 2 * DAY_MS, 4 * DAY_MS)
    if found and random.random() < 0.6:
        vacuums = tuple(actors.Vacuum(after_ms=random.choice(waits)) for _ in range(random.randint(1, 3)))
        found.append(actors.Plan("vacuum-late", vacuums))
    if found and random.random() < 0.6:
        pair = (actors.Checkpoint(), actors.Expire(after_ms=random.choice(waits)))
        found.append(actors.Plan("expire-late", pair * random.randint(1, 3)))
    return tuple(found)


def _daemons(random: Random) -> tuple[Plan, ...]:
    """Daemons with leases, in one world of three; they wait for each other, pause and forget."""
    from tests.simulation import actors, daemons  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() >= DAEMON_SHARE:
        return ()
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, 20_000, HOUR_MS, DAY_MS)))
    return tuple(
        actors.Plan(
            f"daemon-{number}",
            tuple(
                daemons.Attend(
                    random.choice(("minor", "minor", "major", "heartbeat", "none")),
                    clustered=random.random() < 0.3,
                    asks_early=random.random() < 0.7,
                    beats=random.choice((0, 0, 1, 6)),
                    patience=random.randint(1, 3),
                    end=random.choice(("keep", "keep", "release", "forget")),
                    after_ms=random.choice(gaps),
                )
                for _ in range(random.randint(1, 3))
            ),
        )
        for number in range(random.choice((2, 2, 3)))
    )


def _upkeep(random: Random) -> tuple[Plan, ...]:
    """Upkeep, and vacuums from the log alone, in two worlds of five."""
    from tests.simulation import actors, upkeep_actor  # noqa: PLC0415 - actors need the world, which needs scenarios

    found: list[Plan] = []
    waits = (HOUR_MS, DAY_MS + HOUR_MS, 2 * DAY_MS, 4 * DAY_MS)
    if random.random() < UPKEEP_SHARE:
        vacuums = (upkeep_actor.VacuumFromLog(after_ms=random.choice(waits)) for _ in range(random.randint(1, 3)))
        found.append(actors.Plan("vacuum-log", tuple(vacuums)))
    for number in range(random.choice((1, 1, 2)) if random.random() < UPKEEP_SHARE else 0):
        looks = (upkeep_actor.KeepUp(after_ms=random.choice(waits)) for _ in range(random.randint(3, 6)))
        setting = actors.Statement(SetProperties("SET", upkeep_actor.RETENTIONS))
        found.append(actors.Plan(f"upkeep-{number}", (setting, actors.Checkpoint(), *looks)))
    return tuple(found)


def _steppers(random: Random) -> tuple[Plan, ...]:
    """Steps of real daemons, in one world of twelve, at small files that somebody writes into a few partitions."""
    from tests.simulation import actors, stepping  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() >= STEPPING_SHARE:
        return ()
    rows = (Row(random.randint(14, 40), random.randint(1, 2), value) for value in itertools.count(1_000_000))
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, 20_000, HOUR_MS, DAY_MS)))
    setting = actors.Statement(SetProperties("SET", (("tidelog.targetFileSize", SMALL_TARGET),)))
    inserts = (
        actors.Statement(Insert("INSERT", tuple(itertools.islice(rows, 2))), after_ms=random.choice(gaps))
        for _ in range(random.randint(3, 6))
    )
    found = [actors.Plan("feeder", (setting, *inserts))]
    for number in range(random.choice((1, 2, 2))):
        clean_up, heartbeat_s = random.random() < 0.3, random.choice((None, None, 5.0))
        steps = tuple(
            stepping.Step(
                clean_up,
                heartbeat_s,
                end=random.choice(("keep", "keep", "keep", "release", "forget")),
                after_ms=random.choice((200, 5_000, 20_000, *gaps)),
            )
            for _ in range(random.randint(2, 5))
        )
        found.append(actors.Plan(f"stepper-{number}", steps))
    return tuple(found)


def _index_keepers(random: Random) -> tuple[Plan, ...]:
    """Who tends the key index, and loses parts of it, in two worlds of three that have one."""
    from tests.simulation import actors  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() < 1 / 3:
        return ()
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, DAY_MS, 3 * DAY_MS)))
    jobs = (
        actors.Index(keeps=random.choice((0, 1, 1)), after_ms=random.choice(gaps)) for _ in range(random.randint(2, 6))
    )
    return (actors.Plan("index", tuple(jobs)),)


def _orderers(random: Random) -> tuple[Plan, ...]:
    """Two that upsert rows with an order, in one world of four. Some rows only delete their key."""
    from tests.simulation import actors  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() >= ORDER_SHARE:
        return ()
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, HOUR_MS, DAY_MS)))

    def order(key: int, number: int) -> int:
        """The number, or now and then the order that the key has had from the beginning."""
        return number if number % 4 else 10 * key

    def statement() -> Job:
        keys = random.sample((1, 5, 8, 11, 301, 302, 303), random.randint(1, 4))
        rows = tuple(Row(k, random.choice((1, 2, 2, GONE, GONE)), order(k, random.randint(0, 20_000))) for k in keys)
        return actors.Statement(
            Ordered("ORDERED", rows), runs_again=random.random() < 0.7, after_ms=random.choice(gaps)
        )

    return tuple(
        actors.Plan(f"orderer-{number}", tuple(statement() for _ in range(random.randint(3, 12))))
        for number in range(2)
    )


def _lookups(random: Random, setting: Setting) -> tuple[Plan, ...]:
    """Who looks keys up, in half of the worlds with an index: keys that exist, were deleted, or never existed.

    Now and then somebody turns the index off and on meanwhile.
    """
    from tests.simulation import actors  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() >= (LOOKUP_SHARE if setting.partitioned and setting.indexed else OTHER_LOOKUP_SHARE):
        return ()
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, HOUR_MS, DAY_MS)))
    keys = (*range(1, 16), 301, 302, 303, 999)
    jobs = tuple(
        actors.Lookup(
            tuple(tuple(random.choices(keys, k=random.choice((1, 2, 5, 12)))) for _ in range(random.randint(1, 3))),
            scans=random.random() < 0.5,
            back=random.choice((0, 0, 0, 1, 3)),
            pause_ms=random.choice((0, 0, 100, 5_000, HOUR_MS, 2 * DAY_MS)),
            after_ms=random.choice(gaps),
        )
        for _ in range(random.randint(2, 5))
    )
    found = [actors.Plan("lookup", jobs)]
    if setting.partitioned and random.random() < SWITCH_SHARE:
        values = random.choice((("false", "true"), ("true", "false"), ("false", "true", "false")))
        switches = (
            actors.Statement(SetProperties("SET", ((properties.KEY_INDEX, value),)), after_ms=random.choice(gaps))
            for value in values
        )
        found.append(actors.Plan("switch", tuple(switches)))
    return tuple(found)


def _wideners(random: Random) -> tuple[Plan, ...]:
    """Who writes keys of a wider type. Only the first one widens the column."""
    from tests.simulation import actors  # noqa: PLC0415 - actors need the world, which needs scenarios

    rows = [Row(random.randint(14, 40), random.randint(1, 2), 3_000_000 + number) for number in range(3)]
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, HOUR_MS, DAY_MS)))
    jobs = tuple(actors.Statement(actors.Widened("WIDEN", (row,)), after_ms=random.choice(gaps)) for row in rows)
    return (actors.Plan("widener", jobs),)


def _engines(random: Random, setting: Setting) -> tuple[Plan, ...]:
    """Another engine that writes now and then, in one world of six."""
    from tests.simulation import actors, foreign_actor  # noqa: PLC0415 - actors need the world, which needs scenarios

    if random.random() >= ENGINE_SHARE:
        return ()
    gaps = random.choice(((0, 10), (0, 5_000, 20_000), (0, HOUR_MS, DAY_MS)))
    kinds = foreign_actor.kinds(setting)
    jobs = (
        foreign_actor.WriteForeign(random.choice(kinds), after_ms=random.choice(gaps))
        for _ in range(random.randint(2, 5))
    )
    return (actors.Plan("engine", tuple(jobs)),)


class _Draw:
    """Draws actors and jobs. Every row that they write has a value of its own."""

    def __init__(self, random: Random, setting: Setting, known: Collection[str]) -> None:
        self.random = random
        self.setting = setting
        self.known = known
        self.shared: tuple[str, int] | None = None
        self._values: Iterator[int] = itertools.count(1_000)

    def plans(self) -> tuple[Plan, ...]:
        """The actors: writers in any case, and others now and then."""
        from tests.simulation import actors  # noqa: PLC0415 - actors need the world, which needs scenarios

        random = self.random
        makers: dict[str, Callable[[], Job]] = {
            "insert": lambda: actors.Statement(self.insert()),
            "once": lambda: actors.Statement(self.insert(key=True)),
            "update": lambda: actors.Statement(self.update(), runs_again=random.random() < 0.5),
            "delete": lambda: actors.Statement(self.delete(), runs_again=random.random() < 0.5),
            "upsert": lambda: actors.Statement(self.upsert(), runs_again=random.random() < 0.5),
            "overwrite": lambda: actors.Statement(self.overwrite()),
            "compact": lambda: actors.Compaction(random.choice(("minor", "major")), random.random() < 0.3),
            "properties": lambda: actors.Statement(
                SetProperties("SET", (("delta.checkpointInterval", str(random.randint(2, 99))),))
            ),
            "read": lambda: actors.Read(random.randint(0, 3)),
            "follow": lambda: actors.Follow(random.randint(0, 4)),
            "checkpoint": actors.Checkpoint,
            "vacuum": actors.Vacuum,
            "expire": actors.Expire,
            "restore": lambda: actors.GoBack(random.randint(1, 3)),
            "drop": actors.Drop,
        }
        weights = [4, 3, 3, 2, 3, 2, 3, 1, 3, 2, 2, 3, 3, 2, 3]
        kinds = random.choices(list(makers), weights, k=random.randint(2, 5))
        if known_defects.DROP in self.known:
            kinds = ["insert" if kind == "drop" else kind for kind in kinds]
        if known_defects.RESTORE_BESIDE_VACUUM in self.known and "vacuum" in kinds:
            kinds = ["update" if kind == "restore" else kind for kind in kinds]
        if "expire" in kinds:
            kinds.append("checkpoint")
        gaps = random.choice(((0, 0, 10), (0, 10, 5_000), (0, 5_000, DAY_MS, 3 * DAY_MS)))
        found = []
        for number, kind in enumerate(kinds):
            jobs: list[Job] = []
            for _ in range(random.randint(1, 3)):
                job = makers[kind]()
                late = kind in {"vacuum", "expire"} and random.random() < 0.6
                jobs.append(self.after(job, random.choice((DAY_MS + 1_000, 3 * DAY_MS) if late else gaps)))
                if kind == "drop":
                    jobs.append(self.after(actors.Create(), random.choice((0, 0, 5, 500, 5_000))))
            found.append(actors.Plan(f"{kind}-{number}", tuple(jobs)))
            if kind == "once" and random.random() < 0.3:  # a second copy of a stream
                found.append(actors.Plan(f"{kind}-{number}-again", tuple(jobs)))
        return tuple(found)

    @staticmethod
    def after(job: Job, ms: int) -> Job:
        """The job, later."""
        return replace(job, after_ms=ms)

    def rows(self, count: int) -> tuple[Row, ...]:
        """New rows: few keys, so that they meet others, and values that nothing else has."""
        keys = self.random.sample(range(1, 14), count)
        return tuple(Row(key, self.random.randint(1, 2), next(self._values)) for key in keys)

    def where(self) -> Where:
        """A predicate that some rows match."""
        column = self.random.choice(("k", "k", "p", "v"))
        value = {"k": self.random.randint(1, 10), "p": self.random.randint(1, 2), "v": self.random.randint(10, 1100)}
        return Where(column, self.random.choice(("=", "<=", ">=")), value[column])

    def insert(self, *, key: bool = False) -> Insert:
        """Rows. With `key` they have an idempotency key; now and then two actors share one."""
        rows = self.rows(self.random.randint(1, 3))
        if not key:
            return Insert("INSERT", rows)
        if self.shared is not None and self.random.random() < 0.4:
            return Insert("INSERT once", rows, key=self.shared)
        number = next(self._values)
        self.shared = ("shared" if self.random.random() < 0.3 else f"app-{number}", number)
        return Insert("INSERT once", rows, key=self.shared)

    def update(self) -> Update:
        """New values for the rows of a predicate."""
        where = self.where()
        if self.random.random() < 0.2:
            return Update("UPDATE p", where, "p", added=False, number=self.random.randint(1, 2))
        return Update("UPDATE", where, "v", added=True, number=10_000 * next(self._values))

    def delete(self) -> Delete:
        """Fewer rows."""
        return Delete("DELETE", self.where())

    def upsert(self) -> Upsert | Merge:
        """Rows that replace others, and some that only delete."""
        rows = [row._replace(v=-1) if self.random.random() < 0.2 else row for row in self.rows(2)]
        if all(row.v > 0 for row in rows) and sum(row.k for row in rows) % 3 == 0:
            # Chosen without a random number, so that the seeds with a name stay what they are.
            return Merge("MERGE", tuple(rows))
        return Upsert("UPSERT", tuple(rows))

    def overwrite(self) -> Overwrite | Truncate:
        """Rows instead of all others, or of those of a partition."""
        rows = self.rows(2)
        if not self.setting.partitioned or self.random.random() < 0.4:
            return Overwrite("OVERWRITE", rows) if self.random.random() < 0.7 else Truncate("TRUNCATE")
        partition = self.random.randint(1, 2)
        match self.random.randint(0, 2):
            case 0:
                return Overwrite("OVERWRITE dynamic", rows, dynamic=True)
            case 1:
                own = tuple(row._replace(p=partition) for row in rows)
                return Overwrite("OVERWRITE partition", own, partition=partition)
            case _:
                return Truncate("TRUNCATE partition", partition=partition)

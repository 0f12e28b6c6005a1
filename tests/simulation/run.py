"""Run one scenario from its beginning to the audit, and find the seeds that were never run."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.actors import Actor
from tests.simulation.checks import audit
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Event
from tests.simulation.world import Objection, World
from tidelog.log.system import REAL_SYSTEM

NEXT_SEED = Path(__file__).parents[2] / "build" / "simulation" / "next-seed"
# A machine that has no such file begins at the seeds of the day, of which a night uses a part.
_SEEDS_OF_A_DAY = 1_000_000
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Run:
    """A run that has ended: what was found wrong, and every step."""

    scenario: Scenario
    objections: tuple[Objection, ...]
    trace: tuple[Event, ...]

    def __str__(self) -> str:
        found = "\n".join(map(str, self.objections)) or "nothing"
        steps = "\n".join(map(str, self.trace))
        return f"{self.scenario}\n\n{steps}\n\nfound wrong:\n{found}"


def run(scenario: Scenario) -> Run:
    """Run a scenario, and check everything."""
    world = World(scenario)
    logging.disable(logging.CRITICAL)
    try:
        with world.installed():
            actors = [Actor(world, number, plan) for number, plan in enumerate(scenario.plans, 1)]
            for actor in actors:
                world.scheduler.spawn(actor.plan.name, actor.live, world.scheduler.now_ms)
            world.scheduler.run()
            world.scheduler.close()
            if not world.objections:
                audit(world, actors)
    finally:
        logging.disable(logging.NOTSET)
    return Run(scenario, tuple(world.objections), tuple(world.scheduler.trace))


def next_seeds(count: int, path: Path = NEXT_SEED) -> Generator[int]:
    """The next `count` seeds after those of the last call. A seed counts as used once the next one is asked for.

    `path` holds the next seed. It is not in git: each machine goes on where it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    start = int(path.read_text()) if path.exists() else REAL_SYSTEM.now_ms() // _DAY_MS * _SEEDS_OF_A_DAY
    for seed in range(start, start + count):
        yield seed
        written = path.with_suffix(".new")
        written.write_text(f"{seed + 1}\n")
        written.replace(path)

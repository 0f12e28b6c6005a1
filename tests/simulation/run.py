"""Run one scenario from its beginning to the audit."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tests.simulation.actors import Actor
from tests.simulation.checks import audit
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Event
from tests.simulation.world import Objection, World


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

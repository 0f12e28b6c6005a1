"""What a named scenario is, and how one is made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.log.oracle.settings import SETTINGS
from tests.simulation.actors import Job, Plan
from tests.simulation.scenario import Scenario


@dataclass(frozen=True)
class Named:
    """A scenario that found a bug. `story` is what happens in it."""

    name: str
    story: str
    defect: str
    scenario: Scenario


def named(name: str, story: str, defect: str, plans: dict[str, tuple[Job, ...]], **more: Any) -> Named:
    """A scenario made by hand: what each actor does, and what else a Scenario says."""
    values: dict[str, Any] = {"seed": 1, "store": "disk", "setting": SETTINGS["vectors"], "stickiness": 0.9, **more}
    scenario = Scenario(plans=tuple(Plan(actor, jobs) for actor, jobs in plans.items()), **values)
    return Named(name, story, defect, scenario)

"""Histories: which operations commit in which order, and after how many commits each was staged.

As text: `MINOR; MAJOR@0; UPDATE k=1@1` commits in this order. MAJOR was staged before any other commit, the update
after one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tests.log.oracle.operations import MORE, ForeignWrite, Operation, catalogue
from tests.log.oracle.settings import SETTINGS, Setting
from tests.log.oracle.world import Pending, Verdict, World

# How many findings to show: one fault can have thousands.
_SHOWN = 12


class Turn(NamedTuple):
    """An operation, staged after `staged_after` other commits."""

    operation: Operation
    staged_after: int

    def __str__(self) -> str:
        return f"{self.operation.name}@{self.staged_after}"


class Finding(NamedTuple):
    """One objection of the oracle."""

    setting: str
    history: str
    check: str
    text: str

    def __str__(self) -> str:
        return f"[{self.setting}] {self.history}: {self.check}: {self.text}"


@dataclass
class Report:
    """The result of one history or of many: how each commit ended, and what is wrong."""

    outcomes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, setting: Setting, trail: Sequence[Turn], verdict: Verdict) -> bool:
        """Add the verdict on the last turn. Returns whether the history can continue."""
        self.outcomes.append(verdict.outcome)
        history = "; ".join(map(str, trail))
        self.findings += [Finding(setting.name, history, check, text) for check, text in verdict.findings]
        return not verdict.findings

    def require_nothing_wrong(self) -> None:
        """Raise AssertionError with the first findings, if there are any."""
        if self.findings:
            shown = "\n".join(map(str, self.findings[:_SHOWN]))
            raise AssertionError(
                f"{len(self.findings)} findings in {len(self.outcomes)} commits; to run one history: "
                f"python -m tests.log.oracle.history SETTING HISTORY\n{shown}"
            )


def run(setting: Setting, text: str, *, thorough: bool = True, report: Report | None = None) -> Report:
    """Run one history, given as text. It ends at the first finding."""
    world = World(setting, thorough=thorough)
    try:
        more = {operation.name: operation for operation in MORE}
        return _play(world, parse(text, catalogue(world.setting) | more), report or Report())
    finally:
        world.close()


def parse(text: str, known: dict[str, Operation]) -> list[Turn]:
    """Parse a text into turns. A turn without a number is staged right before its own commit."""
    turns = []
    for number, part in enumerate(text.split(";")):
        name, at, after = part.strip().rpartition("@")
        turns.append(Turn(known[name], int(after)) if at else Turn(known[after], number))
    return turns


def _play(world: World, turns: Sequence[Turn], report: Report) -> Report:
    staged: dict[int, Pending] = {}
    for number, _turn in enumerate(turns):
        for later in range(number, len(turns)):
            if turns[later].staged_after == number:
                staged[later] = world.stage(turns[later].operation)
        if not staged[number].possible:
            continue
        if not report.note(world.setting, turns[: number + 1], world.commit(staged[number])):
            break
    return report


Wanted: TypeAlias = Callable[[Sequence[Turn]], bool]


def everything(trail: Sequence[Turn]) -> bool:
    del trail
    return True


def explore(
    setting: Setting,
    depth: int,
    wanted: Wanted = everything,
    *,
    thorough: bool = False,
    report: Report | None = None,
) -> Report:
    """Run every history of `depth` operations whose prefixes are all `wanted`. A history ends at its first finding.

    Histories share prefixes: a transaction staged at a version is committed in each of its continuations, and the store
    is reset to that version in between.
    """
    report = report or Report()
    world = World(setting, thorough=thorough)
    try:
        _explore(world, list(catalogue(world.setting).values()), depth, [], [], wanted, report)
    finally:
        world.close()
    return report


def _explore(
    world: World,
    operations: Sequence[Operation],
    depth: int,
    trail: list[Turn],
    staged: list[Sequence[Sequence[Pending]]],
    wanted: Wanted,
    report: Report,
) -> None:
    """`staged` holds, for each number of commits, the slots staged then, so that an operation can occur twice.

    Slot n commits n turns later. Only for the first slot it is known which operations are wanted.
    """
    now = [operation for operation in operations if wanted([*trail, Turn(operation, len(trail))])]
    later = [operation for operation in operations if not isinstance(operation, ForeignWrite)]
    slots = [now, *([later] * (depth - len(trail) - 1))]
    here = [[world.stage(operation) for operation in slot] for slot in slots]
    mark = world.mark()
    for turn, pending in _turns(trail, [*staged, here]):
        if not pending.possible or not wanted([*trail, turn]):
            continue
        continues = report.note(world.setting, [*trail, turn], world.commit(pending))
        if continues and len(trail) + 1 < depth:
            _explore(world, operations, depth, [*trail, turn], [*staged, here], wanted, report)
        world.reset(mark)


def _turns(trail: Sequence[Turn], staged: Sequence[Sequence[Sequence[Pending]]]) -> Iterator[tuple[Turn, Pending]]:
    """The turns that can commit next."""
    for after, slots in enumerate(staged):
        for pending in slots[len(trail) - after]:
            yield Turn(pending.operation, after), pending


def main() -> None:
    """Run one history and print what is wrong with it."""
    setting, text = sys.argv[1:]
    report = run(SETTINGS[setting], text)
    for outcome in report.outcomes:
        print(outcome)
    report.require_nothing_wrong()


if __name__ == "__main__":
    main()

"""The page that says what became of Spark's tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from tests.spark_suites.excluded import reason
from tests.spark_suites.jars import SPARK
from tests.spark_suites.run import FAILED, PASSED, SUITES, Outcome

_INTRODUCTION = f"""# Spark's own tests

Spark tests UPDATE, DELETE and MERGE with suites of its own, on a table in memory. `make suites-spark` fetches these
suites (Spark {SPARK}), and runs them on tables of tidelog instead: the same statements, and the same expected rows,
errors and counts of rows, which are read from tidelog's log.

Left out are tests that look into Spark's in-memory table or into the plan of Spark's own writer, and those of what the
format of a table cannot hold. They are listed below, each with the reason.
"""
_WIDEST = 110


def page(outcomes: Sequence[Outcome]) -> str:
    """The page for these outcomes."""
    parts = [_INTRODUCTION, "## Results\n", _counts(outcomes)]
    failed = [each for each in outcomes if is_fault(each)]
    if failed:
        parts += ["## Failed\n", _listed(failed)]
    left_out = [each for each in outcomes if each.kind != PASSED and not is_fault(each)]
    if left_out:
        parts += ["## Left out\n", _by_reason(left_out)]
    return "\n".join(parts)


def is_fault(outcome: Outcome) -> bool:
    """Whether a test failed that should pass."""
    return outcome.kind == FAILED and reason(outcome) is None


def _counts(outcomes: Sequence[Outcome]) -> str:
    lines = ["| Suite | Tests | Passed | Failed | Left out |", "|---|---|---|---|---|"]
    for suite, name in SUITES.items():
        own = [each for each in outcomes if each.suite == suite]
        kinds = Counter("failed" if is_fault(each) else each.kind for each in own)
        passed, failed = kinds[PASSED], sum(map(is_fault, own))
        lines.append(f"| {name} | {len(own)} | {passed} | {failed} | {len(own) - passed - failed} |")
    return "\n".join(lines) + "\n"


def _listed(outcomes: Sequence[Outcome]) -> str:
    return "".join(_item(f"{SUITES[each.suite]}: {_code(each.test)}: {_short(each.why)}") for each in outcomes)


def _by_reason(outcomes: Sequence[Outcome]) -> str:
    groups: dict[str, list[Outcome]] = {}
    for each in outcomes:
        groups.setdefault(reason(each) or _place_removed(each.why) or each.kind, []).append(each)
    parts = []
    for why, own in sorted(groups.items()):
        tests = "".join(_item(f"{SUITES[each.suite]}: {_code(each.test)}") for each in own)
        parts.append(f"### {why[0].upper()}{why[1:]}\n\n{tests}")
    return "\n".join(parts)


def _item(text: str) -> str:
    """An item of a list, in lines of the width of the pages."""
    return fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 3] + "..."


def _place_removed(text: str) -> str:
    """A reason without the line of the Scala source that gave it."""
    return text.partition(" (Suites.scala")[0]

"""Generate the tables of docs/conflicts.md from the policies: `python -m scripts.conflict_tables`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.log.conflict.policies import POLICIES, Policy
from tidelog.log.format import properties

PAGE = Path(__file__).parent.parent / "docs" / "conflicts.md"
_PART = re.compile(r"<!-- made: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def rewritten(text: str) -> str:
    """The page with its generated parts up to date. The prose stays as it is."""
    parts = {"properties": _properties(), "policies": "\n".join(map(_section, POLICIES.values()))}
    return _PART.sub(lambda match: f"<!-- made: {match[1]} -->\n\n{parts[match[1]]}\n\n<!-- end -->", text)


def _properties() -> str:
    names = ", ".join(f"`{name}`" for name in POLICIES)
    retry = str(properties.metadata_retry({})).lower()
    return _list(
        f"`{properties.CONFLICT_POLICY}` (by default `{properties.conflict_policy({})}`): which matrix: {names}",
        f"`{properties.METADATA_RETRY}` (by default `{retry}`): whether a `fail` is first retried using metadata only",
    )


def _section(policy: Policy) -> str:
    rows = ([f"**{earlier}**", *row.values()] for earlier, row in policy.matrix.items())
    parts = [f"## `{policy.name}`", f"From: {policy.source}.", _table(["first \\ later", *policy.classes], rows)]
    if policy.judges_files:
        parts += ["A `fail` ends with the error of the first check that fails:", _errors(policy)]
    return "\n\n".join(parts) + "\n"


def _errors(policy: Policy) -> str:
    return _list(
        *(
            f"{earlier}, then {later}: " + ", ".join(f"`{error.__name__}`" for error in policy.errors(earlier, later))
            for earlier in policy.classes
            for later in policy.classes
            if policy.errors(earlier, later)
        )
    )


def _list(*entries: str) -> str:
    return "\n".join(
        textwrap.fill(f"- {entry}", 120, subsequent_indent="  ", break_on_hyphens=False) for entry in entries
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

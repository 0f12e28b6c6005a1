"""The tables in docs/conflicts.md match the policies."""

from __future__ import annotations

import re

from scripts.conflict_tables import PAGE, rewritten
from tidelog.log.conflict.policies import POLICIES
from tidelog.log.format import properties

TEXT = PAGE.read_text()


def test_the_page_is_up_to_date() -> None:
    assert rewritten(TEXT) == TEXT, "run: python -m scripts.conflict_tables"


def test_the_script_repairs_tables_and_keeps_the_prose() -> None:
    changed = TEXT.replace("| **MAJOR** | ok |", "| **MAJOR** | fail |")
    assert changed != TEXT
    assert rewritten(changed) == TEXT
    assert rewritten(f"Mine.\n{TEXT}") == f"Mine.\n{TEXT}"


def test_the_page_holds_every_cell_and_error() -> None:
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    for policy in POLICIES.values():
        (section,) = (text for text in sections if text.startswith(f"`{policy.name}`\n"))
        rows = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line.startswith("| **")]
        found = {row[0].strip("*"): row[1:] for row in rows}
        assert found == {earlier: list(row.values()) for earlier, row in policy.matrix.items()}
        assert f"| first \\ later | {' | '.join(policy.classes)} |" in section
        for earlier in policy.classes:
            for later in policy.classes:
                for error in policy.errors(earlier, later) if policy.judges_files else ():
                    entry = rf"^- {earlier}, then {later}: [^:]*`{error.__name__}`"
                    assert re.search(entry, section, re.MULTILINE)


def test_the_page_names_the_properties() -> None:
    assert f"- `{properties.CONFLICT_POLICY}` (by default `delta-table`): " in TEXT
    assert f"- `{properties.METADATA_RETRY}` (by default `true`): " in TEXT

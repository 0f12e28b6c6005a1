"""Every command, on tables and paths whose every text is hostile, in a pseudo terminal: nothing of it leaves raw."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.hostile import commands
from tests.cli.support import in_terminal
from tidelog.cli import COMMANDS

# What rich writes itself: colours, and hiding and showing the cursor.
_OWN = re.compile(r"\x1b\[(?:\d+(?:;\d+)*)?m|\x1b\[\?25[lh]")


def raw_places(text: str) -> list[str]:
    """The places in the text that a terminal could act on."""
    found = [index for index, character in enumerate(text) if not character.isprintable() and character != "\n"]
    return [ascii(text[max(0, index - 80) : index + 40]) for index in found]


def test_every_command_is_tried(tmp_path: Path) -> None:
    names = {name for section in COMMANDS.values() for name in section}
    assert names <= {arguments[0] for arguments in commands(tmp_path)}


@pytest.mark.parametrize("options", [[], pytest.param(["--json"], marks=pytest.mark.full)], ids=["text", "json"])
def test_nothing_hostile_reaches_the_terminal(tmp_path: Path, options: list[str]) -> None:
    shown = in_terminal(sys.executable, "-m", "tests.cli.hostile", tmp_path, *options, answer="n")
    assert shown.code == 0, shown.raw[-2000:]
    assert not raw_places(_OWN.sub("", shown.raw))
    assert "hunter2" not in shown.raw
    assert shown.raw.count("\\u202e") > 100, "the hostile texts were not shown at all"

"""Tables for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.support import NUMBERS, numbers
from tidelog.log import Table


@pytest.fixture
def counted(tmp_path: Path) -> Table:
    """Version n inserts n."""
    made = Table.create(str(tmp_path / "t"), NUMBERS)
    for number in (1, 2, 3):
        made.insert(numbers([number]))
    return made

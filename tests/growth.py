"""Count the work that code does, to test how it grows without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tidelog

_FOLDERS = tuple(str(folder.resolve()) for folder in Path(tidelog.__file__).parent.iterdir() if folder.is_dir())
_LINKS = str(Path(tidelog.__file__).parent)


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of tidelog's own code `act` runs; each round of a loop counts. The same on every machine."""
    count = 0

    def step(_: FrameType, event: str, __: object) -> Any:
        nonlocal count
        count += event == "line"
        return step

    def enter(frame: FrameType, _: str, __: object) -> Any:
        return step if frame.f_code.co_filename.startswith((_LINKS, *_FOLDERS)) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        act()
    finally:
        sys.settrace(before)
    return count

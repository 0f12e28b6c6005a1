"""What the command of a demo does around it: options, `--clean`, prerequisites, errors in one line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from examples.shared.child_process import ChildEndedError
from examples.shared.working_folder import WorkingFolder, WrongUseError
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.streaming import require_java, require_spark

DONE, FAILED, WRONG_USE = range(3)


class StuckError(Exception):
    """The demo makes no progress."""


class Clock:
    """The time since the demo began."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """In seconds."""
        return time.monotonic() - self._started_s

    def __str__(self) -> str:
        return f"{int(self.elapsed_s) // 60}:{int(self.elapsed_s) % 60:02}"


def parser(about: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options `--data` and `--clean`; the working folder is `demo-data/NAME`."""
    found = argparse.ArgumentParser(prog="demo.py", description=about)
    default = Path("demo-data") / name
    found.add_argument("--data", type=Path, default=default, help=f"working folder (default: {default})")
    found.add_argument("--clean", action="store_true", help="remove what the demo wrote, and exit")
    return found


def run_in(folder: WorkingFolder, demo: Callable[[], bool], *, clean: bool) -> int:
    """Run the demo in its empty folder, or clean up; return the exit code. An expected failure prints one line."""
    try:
        if clean:
            removed = folder.remove()
            say(f"removed what the demo wrote in {folder.root}" if removed else f"nothing to remove in {folder.root}")
            return DONE
        require_spark()
        require_java()
        with folder.locked():
            folder.clear()
            folder.logs.mkdir()
            return DONE if demo() else FAILED
    except (WrongUseError, ConfigurationError) as error:
        say(f"demo: {error}")
        return WRONG_USE
    except (ChildEndedError, StuckError) as error:
        say(f"demo: {error} (more in {folder.logs})")
        return FAILED
    except (TidelogError, OSError) as error:
        say(f"demo: {error}")
        return FAILED


def say(text: object) -> None:
    """Print one line without buffering."""
    print(text, flush=True)

"""`python -m tests.soak`: run the soak, print what was found, and write its report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples.shared.command import DONE, FAILED, WRONG_USE, say
from examples.shared.interrupts import Interrupted, raise_interrupts
from examples.shared.working_folder import WrongUseError
from tests.soak.folder import Folder
from tests.soak.run import soak
from tests.soak.settings import LEAST_MINUTES, Settings
from tidelog.log.errors import ConfigurationError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Everything at once, with kills.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the streams run (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="draws the moments of the kills (default: 1)")
    parser.add_argument("--data", type=Path, default=Path("build/soak"), help="folder (default: build/soak)")
    options = parser.parse_args()
    if not options.minutes >= LEAST_MINUTES:
        parser.error(f"--minutes must be at least {LEAST_MINUTES}: shorter, too little happens")
    if not Path("/proc/self/statm").exists():
        parser.error("the soak reads memory and file descriptors from /proc, so it needs Linux")
    raise_interrupts()
    folder = Folder(options.data.absolute())
    try:
        report = soak(folder, Settings(options.minutes, options.seed))
    except (WrongUseError, ConfigurationError) as error:
        say(f"soak: {error}")
        return WRONG_USE
    except Interrupted as interrupted:
        say(f"soak: {interrupted}")
        return interrupted.exit_code
    say(report.summary())
    say(f"  report: {folder.report}; logs: {folder.logs}")
    return DONE if report.holds else FAILED


if __name__ == "__main__":
    sys.exit(main())

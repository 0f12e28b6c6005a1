"""A run from the empty folder to the report."""

from __future__ import annotations

from examples.shared.check import Check
from examples.shared.child_process import ChildEndedError
from tests.soak.bounds import bounds
from tests.soak.checks import bound_check, flatness_check, happened_checks, log_checks, row_checks
from tests.soak.conductor import Conductor, Soaked
from tests.soak.flatness import flatness
from tests.soak.folder import Folder
from tests.soak.report import Report
from tests.soak.settings import Settings
from tidelog.streaming import require_java, require_spark


def soak(folder: Folder, settings: Settings) -> Report:
    """Run the soak and write its report, also of a run that failed.

    Raises WrongUseError if another soak works in the folder, and ConfigurationError without Java or Spark.
    """
    require_spark()
    require_java()
    with folder.locked():
        folder.clear()
        folder.logs.mkdir()
        report = _soaked(folder, settings)
        report.write(folder)
        return report


def _soaked(folder: Folder, settings: Settings) -> Report:
    conductor, failure = Conductor(folder, settings), None
    soaked = conductor.soaked
    try:
        conductor.run()
    except ChildEndedError as error:
        failure = str(error)
    found_bounds, found_flatness = bounds(soaked, settings), list(flatness(soaked.sampler.samples, settings))
    checks = [
        *([] if failure else _checks_at_the_end(soaked, folder, settings)),
        *map(bound_check, found_bounds),
        *map(flatness_check, found_flatness),
    ]
    return Report(settings, soaked, checks, found_bounds, found_flatness, failure)


def _checks_at_the_end(soaked: Soaked, folder: Folder, settings: Settings) -> list[Check]:
    commits = soaked.sampler.tail.commits
    return [*row_checks(folder, settings), *log_checks(commits, folder, settings), *happened_checks(soaked, settings)]

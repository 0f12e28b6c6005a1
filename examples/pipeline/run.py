"""The steps of the demo: runs of the pipeline with checks after each, kills, and a full refresh."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyspark

from examples.pipeline.departures import Announcements
from examples.pipeline.folder import Folder
from examples.pipeline.server import Pipeline, Server
from examples.shared.check import Check
from examples.shared.command import Clock, StuckError, parser, run_in, say
from examples.shared.departures import Departures
from examples.shared.working_folder import WrongUseError
from tidelog.log import Table

_LOOK_S = 0.02
_STUCK_S = 600.0


def run(arguments: Sequence[str]) -> int:
    """Run the demo and return the exit code of the process."""
    given = parser("A Spark Declarative Pipeline whose tables are tidelog's.", "pipeline").parse_args(arguments)
    folder = Folder(given.data.absolute())
    return run_in(folder, lambda: _demo(folder), clean=given.clean)


def _demo(folder: Folder) -> bool:
    """Run all steps; return whether all checks hold."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        raise WrongUseError(f"AutoCDC needs Spark 4.2 or later, and this is {pyspark.__version__}")
    clock = Clock()
    say(f"working in {folder.root}; starting a Spark Connect server that has tidelog")
    given = Announcements(folder, Departures())
    server = Server(folder)
    pipeline = Pipeline(folder, server)
    results = list[Check]()

    def checked(step: str, *options: str) -> None:
        code = pipeline.run(*options)
        found = [Check(f"the pipeline's exit code is {code}", code == 0), *(given.checks() if code == 0 else ())]
        for line in (f"{clock}  {step}:", *found):
            say(line)
        results.extend(found)

    try:
        server.start()
        server.create_schema("tidelog.board")
        given.plan(0)
        given.plan(1)
        given.happen(0)
        checked("first run")
        checked("again, with nothing new")
        given.happen(1)
        given.plan(2)
        given.happen(3)
        for name in ("announcements", "flights"):
            _killed(folder, server, pipeline, name)
            say(f"{clock}  server and pipeline killed after a commit to {name}")
        checked("run again with the new rows")
        given.plan(3)
        checked("with a plan that comes after its flights have left")
        checked("full refresh", "--full-refresh-all")
    finally:
        server.process.end()
    say(f"  took {clock}; the tables: {folder.table_of('')}")
    return all(check.holds for check in results)


def _killed(folder: Folder, server: Server, pipeline: Pipeline, name: str) -> None:
    """Start the pipeline, kill it and its server as soon as a table has a new version, and start the server again."""
    table = Table.open(str(folder.table_of(name)))
    before = table.version
    deadline_s = time.monotonic() + _STUCK_S
    with pipeline.process() as process:
        while table.refresh().version == before and process.exit_code is None:
            if time.monotonic() > deadline_s:
                raise StuckError(f"the pipeline did not commit to {name} within {_STUCK_S:.0f} seconds")
            time.sleep(_LOOK_S)
        server.process.kill()
        process.kill()
    server.start()

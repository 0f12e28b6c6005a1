"""The steps of the demo: broker, topics, tables, processes, crashes, checks."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from examples.kafka.checks import checks, compactions, look
from examples.kafka.folder import Folder
from examples.kafka.jars import FetchError, broker_jars, connector_jars
from examples.kafka.running_demo import Progress, RunningDemo, StuckError, running_demo
from examples.shared.child_process import ChildEndedError
from examples.shared.working_folder import WrongUseError
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.streaming import require_java, require_spark

DONE, FAILED, WRONG_USE = range(3)
_FEWEST_RECORDS = 300
_SAY_S = 5.0
_STUCK_S = 240.0
_LOOK_S = 0.25


def run(arguments: Sequence[str]) -> int:
    """Run the demo and return the exit code of the process; an expected failure prints one line."""
    options = _parse(arguments)
    folder = Folder(options.data.absolute())
    try:
        if options.clean:
            removed = folder.remove()
            _say(f"removed what the demo wrote in {folder.root}" if removed else f"nothing to remove in {folder.root}")
            return DONE
        require_spark()
        require_java()
        with folder.locked():
            folder.clear()
            return DONE if _demo(folder, options.records, options.rate) else FAILED
    except (WrongUseError, ConfigurationError) as error:
        _say(f"demo: {error}")
        return WRONG_USE
    except (ChildEndedError, StuckError) as error:
        _say(f"demo: {error} (more in {folder.logs})")
        return FAILED
    except (FetchError, TidelogError, OSError, RuntimeError) as error:
        _say(f"demo: {error}")
        return FAILED


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description="Kafka into a tidelog table, and its changes back.")
    default = Path("demo-data") / "kafka"
    parser.add_argument("--data", type=Path, default=default, help=f"working folder (default: {default})")
    parser.add_argument("--records", type=int, default=9_000, help="records to produce (default: 9000)")
    parser.add_argument("--rate", type=float, default=200.0, help="records per second (default: 200)")
    parser.add_argument("--clean", action="store_true", help="remove what the demo wrote, and exit")
    options = parser.parse_args(arguments)
    if options.records < _FEWEST_RECORDS or options.rate <= 0:
        parser.error(f"--records must be at least {_FEWEST_RECORDS}, and --rate above zero")
    return options


def _demo(folder: Folder, records: int, rate: float) -> bool:
    """Run all steps; return whether all checks hold."""
    started_s = time.monotonic()
    folder.logs.mkdir(parents=True)
    # Kafka's clients log every connection that a restart breaks.
    logging.basicConfig(filename=folder.logs / "clients.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _say(f"working in {folder.root}; the first run downloads Kafka and Spark's Kafka connector (65 MB)")
    broker_jars()
    connector_jars()
    with running_demo(folder, records, rate) as running:
        _say(f"the broker is at {running.broker.address}; producers, writer, consumer and daemon have started")
        _watch(running, started_s)
        running.drain()
        found = look(folder, running.sent(), running.written_back)
    results = checks(found, records)
    took = f"  took {_elapsed(started_s)}, with {len(running.crashed)} crashes: {', '.join(running.crashed)}"
    table = f"  {compactions(folder):,} compactions of the table {folder.table}"
    for line in ("", *results, took, table):
        _say(str(line))
    return all(check.holds for check in results)


def _watch(running: RunningDemo, started_s: float) -> None:
    """Run until every record has arrived and every crash has happened. Raises StuckError without progress."""
    last, moved_s, said_s = Progress(), time.monotonic(), float("-inf")
    while True:
        for name in running.supervise():
            _say(f"{_elapsed(started_s)}  the {name} ended unexpectedly, see {name}.log; it was restarted")
        progress = running.look()
        now_s = time.monotonic()
        if progress != last:
            last, moved_s = progress, now_s
        elif now_s - moved_s > _STUCK_S:
            raise StuckError(f"no progress for {_STUCK_S:.0f} seconds: {progress}")
        if now_s - said_s >= _SAY_S:
            said_s = now_s
            _say(f"{_elapsed(started_s)}  {progress}")
        crash = running.due_crash(progress)
        if crash is not None:
            _say(f"{_elapsed(started_s)}  the {crash.name} is killed and restarted")
            running.carry_out(crash)
        elif running.is_done(progress):
            _say(f"{_elapsed(started_s)}  {progress}")
            return
        time.sleep(_LOOK_S)


def _elapsed(started_s: float) -> str:
    seconds = int(time.monotonic() - started_s)
    return f"{seconds // 60}:{seconds % 60:02}"


def _say(text: str) -> None:
    print(text, flush=True)

"""What the demo does, in order: broker, topics, tables, processes, interruptions, checks."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from examples.kafka.checks import checks, compactions, look
from examples.kafka.child import ChildEndedError
from examples.kafka.folder import Folder, WrongUseError
from examples.kafka.jars import FetchError, broker_jars, connector_jars
from examples.kafka.stage import Progress, Stage, StuckError, stage
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.streaming import require_java, require_spark

DONE, FAILED, WRONG_USE = range(3)
_FEWEST_RECORDS = 300
_SAY_S = 5.0
_STUCK_S = 240.0
_LOOK_S = 0.25


def run(arguments: Sequence[str]) -> int:
    """Run the demo; returns the process's exit code, and prints one line for what is known to go wrong."""
    options = _parse(arguments)
    folder = Folder(options.data.absolute())
    try:
        if options.clean:
            removed = folder.remove()
            _say(f"removed what the demo wrote in {folder.root}" if removed else f"there is nothing in {folder.root}")
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
    parser.add_argument("--data", type=Path, default=default, help=f"where to work (default: {default})")
    parser.add_argument("--records", type=int, default=9_000, help="how many to produce (default: 9000)")
    parser.add_argument("--rate", type=float, default=200.0, help="how many a second (default: 200)")
    parser.add_argument("--clean", action="store_true", help="remove what the demo wrote there, and end")
    options = parser.parse_args(arguments)
    if options.records < _FEWEST_RECORDS or options.rate <= 0:
        parser.error(f"--records is {_FEWEST_RECORDS} at least, --rate above zero")
    return options


def _demo(folder: Folder, records: int, rate: float) -> bool:
    """Whether all checks hold."""
    started_s = time.monotonic()
    folder.logs.mkdir(parents=True)
    # Kafka's clients tell of each connection that a restart breaks.
    logging.basicConfig(filename=folder.logs / "clients.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _say(f"working in {folder.root}; Kafka and Spark's connector to it (65 MB) are fetched the first time")
    broker_jars()
    connector_jars()
    with stage(folder, records, rate) as running:
        _say(f"a broker answers at {running.broker.address}; producers, writer, consumer and daemon have started")
        _watch(running, started_s)
        running.drain()
        found = look(folder, running.sent(), running.written_back)
    made = checks(found, records)
    took = f"  took {_elapsed(started_s)}, with {len(running.happened)} interruptions: {', '.join(running.happened)}"
    beside = f"  {compactions(folder):,} compactions of the table beside them; it is {folder.table}"
    for line in ("", *made, took, beside):
        _say(str(line))
    return all(check.holds for check in made)


def _watch(running: Stage, started_s: float) -> None:
    """Until all is where it shall be, with every interruption on the way."""
    last, moved_s, said_s = Progress(), time.monotonic(), float("-inf")
    while True:
        for name in running.supervise():
            _say(f"{_elapsed(started_s)}  the {name} ended by itself, see {name}.log; it is started again")
        progress = running.look()
        now_s = time.monotonic()
        if progress != last:
            last, moved_s = progress, now_s
        elif now_s - moved_s > _STUCK_S:
            raise StuckError(f"nothing has come for {_STUCK_S:.0f} seconds: {progress}")
        if now_s - said_s >= _SAY_S:
            said_s = now_s
            _say(f"{_elapsed(started_s)}  {progress}")
        due = running.due(progress)
        if due is not None:
            _say(f"{_elapsed(started_s)}  {due.what}")
            running.interrupt(due)
        elif running.is_done(progress):
            _say(f"{_elapsed(started_s)}  {progress}")
            return
        time.sleep(_LOOK_S)


def _elapsed(started_s: float) -> str:
    seconds = int(time.monotonic() - started_s)
    return f"{seconds // 60}:{seconds % 60:02}"


def _say(text: str) -> None:
    print(text, flush=True)

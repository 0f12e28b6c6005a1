"""What a demo does, in order: check, prepare, stream, compact, verify."""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from examples.flights import pipeline, source, summary
from examples.flights.display import display, say
from examples.flights.folder import Folder, WrongUseError
from examples.flights.interrupts import InterruptedRunError, Interrupts
from examples.flights.keeper import daemon
from examples.flights.progress import Progress, Watch
from examples.flights.session import spark_session
from tidelog.compaction_daemon import compact
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.streaming import require_java, require_spark

DONE, FAILED, WRONG_USE = range(3)

T = TypeVar("T")


class DemoError(Exception):
    """A part of the pipeline ended that should not have."""


def run(arguments: Sequence[str], interrupts: Interrupts) -> int:
    """Run the demo; returns the process's exit code, and prints one line for what is known to go wrong."""
    options = _parse(arguments)
    folder = Folder(options.data.absolute())
    try:
        if options.clean:
            removed = folder.clean()
            say(f"removed what the demo wrote in {folder.root}" if removed else f"there is nothing in {folder.root}")
            return DONE
        require_spark()
        require_java()
        with folder.locked():
            return _demo(folder, options.days, interrupts)
    except InterruptedRunError as interrupted:
        say(str(interrupted))
        return interrupted.exit_code
    except (WrongUseError, ConfigurationError) as error:
        say(f"demo: {error}")
        return WRONG_USE
    except (TidelogError, OSError) as error:
        say(f"demo: {error}")
        return FAILED
    except (DemoError, PySparkException) as error:
        say(f"demo: {_in_one_line(error)} (more in {folder.logs})")
        return FAILED
    except Py4JError as error:
        say(f"demo: Spark does not answer: {_in_one_line(error)} (more in {folder.logs})")
        return FAILED


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description="A year of flights through a tidelog table.")
    parser.add_argument("--data", type=Path, default=Path("demo-data"), help="where to work (default: ./demo-data)")
    parser.add_argument("--days", type=int, default=source.DAYS, help="how many days of 2013 to replay (default: all)")
    parser.add_argument("--clean", action="store_true", help="remove what the demo wrote there, and end")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= source.DAYS:
        parser.error(f"--days is from 1 to {source.DAYS}")
    return options


def _demo(folder: Folder, days: int, interrupts: Interrupts) -> int:
    started_s = time.monotonic()
    source.require_at_most(folder.source, days)
    before = _before(folder)
    say(_how_it_begins(before, folder, days))
    if source.prepare(folder.source, days, lambda done: _say_prepared(done, days)):
        say(f"the source is prepared: {days} files, one a day, in {folder.source}")
    if before is None or not _is_complete(before, days):
        _stream(folder, days, interrupts)
    while compact(str(folder.table)).did_anything:
        pass  # what the daemon left for later, since it waits until a rewrite pays
    verdict = summary.verify(folder, days)
    for line in summary.lines(folder, verdict, time.monotonic() - started_s):
        say(line)
    for line in verdict.differences():
        say(f"differs: {line}")
    return DONE if verdict.holds else FAILED


def _before(folder: Folder) -> Progress | None:
    """How far earlier runs came; None before the first."""
    if folder.table.exists():
        return Watch(folder).look()
    if folder.checkpoints.exists():
        raise WrongUseError(f"{folder.checkpoints} is left of a table that is gone; run: make demo-clean")
    return None


def _is_complete(progress: Progress, days: int) -> bool:
    return progress.batches >= days and progress.lag_rows == 0


def _how_it_begins(before: Progress | None, folder: Folder, days: int) -> str:
    if before is None:
        return f"starting afresh in {folder.root}: {days} days of flights, one a micro-batch"
    if _is_complete(before, days):
        return f"all {days} days are in {folder.table} already; verifying them again"
    return (
        f"continuing in {folder.root}: {before.batches} of {days} days are in the table, "
        f"{before.lag_rows:,} rows ahead of the consumer"
    )


def _say_prepared(done: int, days: int) -> None:
    if done % 100 == 0:
        say(f"preparing the source: {done} of {days} days")


def _stream(folder: Folder, days: int, interrupts: Interrupts) -> None:
    folder.logs.mkdir(exist_ok=True)
    log = folder.logs / "demo.log"
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pipeline.create_table(folder)
    say("starting the daemon, Spark and the two queries")
    # The log is also for the threads of Spark's Python side, which complain when the JVM is ended under them.
    with log.open("a", encoding="utf-8") as stray, redirect_stderr(stray), interrupts.orderly():
        try:
            with daemon(folder) as keeper, spark_session(folder, interrupts) as spark:
                _run_queries(_Stage(folder, spark, keeper, interrupts), source.count(folder.source), days)
        except Exception:
            interrupts.check()  # a Ctrl-C reaches the daemon as well; what fails after it fails because of it
            raise


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the queries run on."""

    folder: Folder
    spark: SparkSession
    keeper: subprocess.Popen[bytes]
    interrupts: Interrupts

    def require_keeper(self) -> None:
        """Raise DemoError where the daemon ended."""
        if self.keeper.poll() is not None:
            raise DemoError(f"the daemon ended by itself, with exit code {self.keeper.returncode}")


def _run_queries(stage: _Stage, flights: int, days: int) -> None:
    """Until the writer has written all days and the consumer has counted them. Raises what a query failed with."""
    spark, folder, watch = stage.spark, stage.folder, Watch(stage.folder)
    with display(days, flights) as show:

        def attend(doing: str, work: Callable[[], T]) -> T:
            def look() -> None:
                stage.require_keeper()
                show(doing, watch.look())

            return stage.interrupts.attend(work, look)

        writer = attend("starting the writer", lambda: pipeline.start_writer(spark, folder))
        try:
            consumer = attend("starting the consumer", lambda: pipeline.start_consumer(spark, folder))
            attend("writing a day a micro-batch", spark.streams.awaitAnyTermination)
            attend("waiting for the consumer", consumer.processAllAvailable)
            show("done", watch.look())
        finally:
            with suppress(PySparkException, Py4JError):
                pipeline.BatchTimes(folder.batch_times).keep(writer)


def _in_one_line(error: Exception) -> str:
    """What tidelog said, which Spark wraps in its own words, or else the beginning of what Spark said."""
    text = str(error).strip()
    own = re.search(r"TIDELOG_[A-Z_]+: .*", text)
    return own.group() if own else text.splitlines()[0]

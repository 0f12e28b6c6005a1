"""The steps of the demo: check, prepare, stream, compact, verify."""

from __future__ import annotations

import argparse
import logging
import re
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
from examples.flights.folder import Folder
from examples.flights.interrupts import InterruptedRunError, Interrupts
from examples.flights.progress import Progress, Watch
from examples.flights.session import spark_session
from examples.shared.child_process import ChildEndedError, ChildProcess, daemon_process
from examples.shared.working_folder import WrongUseError
from tidelog.compaction_daemon import compact, report_of, report_page
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.streaming import require_java, require_spark

DONE, FAILED, WRONG_USE = range(3)

T = TypeVar("T")


def run(arguments: Sequence[str], interrupts: Interrupts) -> int:
    """Run the demo and return the exit code of the process; an expected failure prints one line."""
    options = _parse(arguments)
    folder = Folder(options.data.absolute())
    try:
        if options.clean:
            removed = folder.remove()
            say(f"removed what the demo wrote in {folder.root}" if removed else f"nothing to remove in {folder.root}")
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
    except (ChildEndedError, PySparkException) as error:
        say(f"demo: {_in_one_line(error)} (more in {folder.logs})")
        return FAILED
    except Py4JError as error:
        say(f"demo: Spark does not respond: {_in_one_line(error)} (more in {folder.logs})")
        return FAILED


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description="A year of flights through a tidelog table.")
    parser.add_argument("--data", type=Path, default=Path("demo-data"), help="working folder (default: ./demo-data)")
    parser.add_argument("--days", type=int, default=source.DAYS, help="days of 2013 to replay (default: all)")
    parser.add_argument("--clean", action="store_true", help="remove what the demo wrote, and exit")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= source.DAYS:
        parser.error(f"--days must be from 1 to {source.DAYS}")
    return options


def _demo(folder: Folder, days: int, interrupts: Interrupts) -> int:
    started_s = time.monotonic()
    source.require_at_most(folder.source, days)
    before = _before(folder)
    say(_introduction(before, folder, days))
    if source.prepare(folder.source, days, lambda done: _say_prepared(done, days)):
        say(f"prepared the source: {days} files, one for each day, in {folder.source}")
    if before is None or not _is_complete(before, days):
        _stream(folder, days, interrupts)
    while compact(str(folder.table)).did_anything:
        pass  # the daemon leaves small files until a rewrite pays off
    verdict = summary.verify(folder, days)
    for line in summary.lines(folder, verdict, time.monotonic() - started_s):
        say(line)
    for line in verdict.differences():
        say(f"differs: {line}")
    folder.report.write_bytes(report_page(report_of(Table.open(str(folder.table))).to_dict()))
    say(f"wrote {folder.report}: open it in a browser to see what happened to the table")
    return DONE if verdict.holds else FAILED


def _before(folder: Folder) -> Progress | None:
    """The progress of earlier runs; None before the first."""
    if folder.table.exists():
        return Watch(folder).look()
    if folder.checkpoints.exists():
        raise WrongUseError(f"{folder.checkpoints} belongs to a table that was deleted; run: make demo-clean")
    return None


def _is_complete(progress: Progress, days: int) -> bool:
    return progress.batches >= days and progress.lag_rows == 0


def _introduction(before: Progress | None, folder: Folder, days: int) -> str:
    if before is None:
        return f"starting in {folder.root}: {days} days of flights, one per micro-batch"
    if _is_complete(before, days):
        return f"all {days} days are already in {folder.table}; verifying them again"
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
    # PySpark's threads write to stderr when the JVM ends; that goes to the log.
    with log.open("a", encoding="utf-8") as stray, redirect_stderr(stray), interrupts.orderly():
        try:
            with daemon_process(folder.logs, folder.table) as daemon, spark_session(folder, interrupts) as spark:
                _run_queries(_Pipeline(folder, spark, daemon, interrupts), source.count(folder.source), days)
        except Exception:
            interrupts.check()  # a Ctrl-C reaches the JVM as well, so later errors are only a consequence
            raise


@dataclass(frozen=True, slots=True)
class _Pipeline:
    folder: Folder
    spark: SparkSession
    daemon: ChildProcess
    interrupts: Interrupts


def _run_queries(pipe: _Pipeline, flights: int, days: int) -> None:
    """Run until the writer has written all days and the consumer has counted them. Raises a query's error."""
    spark, folder, watch = pipe.spark, pipe.folder, Watch(pipe.folder)
    with display(days, flights) as show:

        def attend(activity: str, work: Callable[[], T]) -> T:
            def look() -> None:
                pipe.daemon.require_running()
                show(activity, watch.look())

            return pipe.interrupts.attend(work, look)

        writer = attend("starting the writer", lambda: pipeline.start_writer(spark, folder))
        try:
            consumer = attend("starting the consumer", lambda: pipeline.start_consumer(spark, folder))
            attend("writing one day per micro-batch", spark.streams.awaitAnyTermination)
            attend("waiting for the consumer", consumer.processAllAvailable)
            show("done", watch.look())
        finally:
            with suppress(PySparkException, Py4JError):
                pipeline.BatchTimes(folder.batch_times).keep(writer)


def _in_one_line(error: Exception) -> str:
    """The message of tidelog's error, which Spark wraps, or else the first line of Spark's."""
    text = str(error).strip()
    message = re.search(r"TIDELOG_[A-Z_]+: .*", text)
    return message.group() if message else text.splitlines()[0]

"""One log record for each micro-batch of each sink, and callbacks that get its report.

    logging.getLogger("tidelog.streaming").addHandler(handler)

A committed, skipped or stopped batch is INFO, an empty one DEBUG, a failed one ERROR. The message is one line of
key=value pairs. The record's attribute `tidelog` has the same fields as a dictionary, for JSON formatters such as
`JsonLines`. Neither contains storage options.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

from tidelog.log.errors import TidelogError
from tidelog.log.log_records import JsonLines
from tidelog.log.system import logger
from tidelog.streaming.executors.session import QueryStoppedError
from tidelog.streaming.monitoring.batch_report import BatchReport

__all__ = ["JsonLines", "Subscriber", "failures_logged", "publish", "subscribe"]

_LOGGER = logger("tidelog.streaming")
_LEVELS = {"committed": logging.INFO, "skipped": logging.INFO, "empty": logging.DEBUG}

Subscriber: TypeAlias = Callable[[BatchReport], None]
_subscribers: tuple[Subscriber, ...] = ()
_lock = Lock()


def subscribe(callback: Subscriber) -> Callable[[], None]:
    """Call `callback` with the report of each batch that a sink of this process commits, skips or finds empty.

    Subscribing the same callback twice has no effect.

    Args:
        callback: Takes a BatchReport. It runs in the batch's own thread, so it should be quick. If it raises, the
            error is logged and the batch is unaffected. It is referenced until it is unsubscribed.

    Returns:
        A function that unsubscribes the callback. Calling it again does nothing.

    Example:
        unsubscribe = subscribe(lambda report: print(report.to_json()))
    """
    global _subscribers  # noqa: PLW0603 - replaced as a whole, so that `publish` needs no lock
    with _lock:
        if callback not in _subscribers:
            _subscribers = (*_subscribers, callback)

    def unsubscribe() -> None:
        global _subscribers  # noqa: PLW0603
        with _lock:
            _subscribers = tuple(known for known in _subscribers if known != callback)

    return unsubscribe


def publish(report: BatchReport) -> None:
    """Log one batch and pass its report to the subscribers. Never raises."""
    level = _LEVELS[report.outcome]
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", _line(report), extra={"tidelog": report.to_dict()})
    for callback in _subscribers:
        try:
            callback(report)
        except Exception:  # monitoring must not fail a batch
            _LOGGER.exception("a subscriber to batch reports raised an error")


@contextmanager
def failures_logged(*, sink: str, path: str, batch_id: int) -> Iterator[None]:
    """Log the error that a batch fails with, and let it pass.

    For a tidelog error, which holds no secrets, the record has the message and where it was raised; the latter is only
    in the dictionary. For any other error it has just the class: the text could hold anything, and Spark reports it.
    A batch that its query's stop interrupts has not failed, and is INFO.
    """
    record: dict[str, Any]
    try:
        yield
    except QueryStoppedError:
        record = {"outcome": "stopped", "sink": sink, "path": path, "batch_id": batch_id}
        _LOGGER.info("%s", _pairs("batch stopped", record), extra={"tidelog": record})
        raise
    except Exception as error:
        record = {
            "outcome": "failed",
            "sink": sink,
            "path": path,
            "batch_id": batch_id,
            "error": type(error).__name__,
            "code": None,
            "message": None,
        }
        frames: list[str] | None = None
        if isinstance(error, TidelogError):
            record |= {"code": error.code, "message": str(error)}
            frames = _frames(error)
        line = _pairs("batch failed", record)
        _LOGGER.error("%s", line, extra={"tidelog": {**record, "traceback": frames}})  # noqa: TRY400 - see above
        raise


def _frames(error: BaseException) -> list[str]:
    """The frames that the error passed, outermost first, then those of its causes; of these not the text."""
    frames: list[str] = []
    current: BaseException | None = error
    while current is not None:
        if current is not error:
            frames.append(f"caused by {type(current).__name__}")
        for frame, line in traceback.walk_tb(current.__traceback__):
            frames.append(f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}")
        current = current.__cause__
    return frames


def _line(report: BatchReport) -> str:
    fields = report.to_dict()
    for name in ("outcome", "skipped", "run_id", "rows_per_second", "seconds", "metrics"):
        del fields[name]
    if not report.delayed_s:
        del fields["delayed_s"]
    fields |= report.metrics
    fields |= {f"{phase}_s": round(seconds, 3) for phase, seconds in report.seconds.items()}
    return _pairs(f"batch {report.outcome}", fields)


def _pairs(event: str, fields: Mapping[str, Any]) -> str:
    """`event` and the non-empty fields as `key=value`."""
    shown = (f"{name}={_text(value)}" for name, value in fields.items() if value is not None and value not in ("", []))
    return " ".join([event, *shown])


def _text(value: Any) -> str:
    """The value as text; as JSON if it has spaces, quotes, equal signs or line breaks in it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    plain = text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text)

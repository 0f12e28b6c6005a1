"""What sinks did, told to the log and to whoever subscribes: one record for each micro-batch.

    logging.getLogger("tidelog.streaming").addHandler(handler)

A committed batch and a skipped one are INFO, an empty one is DEBUG, a failure is ERROR. The message is one line of
key=value pairs; the same as a dictionary is the record's attribute `tidelog`, for formatters of JSON such as
`JsonLines`. Storage options are in none of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

from tidelog.log.errors import TidelogError
from tidelog.log.internals import to_datetime
from tidelog.streaming.monitoring.report import BatchReport

_LOGGER = logging.getLogger("tidelog.streaming")
_LEVELS = {"committed": logging.INFO, "skipped": logging.INFO, "empty": logging.DEBUG}

Subscriber: TypeAlias = Callable[[BatchReport], None]
_subscribers: tuple[Subscriber, ...] = ()
_lock = Lock()


def subscribe(callback: Subscriber) -> Callable[[], None]:
    """Have `callback` called with the report of each batch of every sink in this process, in the batch's own thread.

    Returns a function that ends it. A callback is held until then, and is called once for a batch however often it was
    given. One that raises is logged and does not disturb the batch.
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
    """Log one batch and tell the subscribers. Never raises."""
    level = _LEVELS[report.outcome]
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", _line(report), extra={"tidelog": report.to_dict()})
    for callback in _subscribers:
        try:
            callback(report)
        except Exception:  # a figure is not worth a batch
            _LOGGER.exception("a subscriber to the reports of batches failed")


@contextmanager
def failures_logged(*, sink: str, path: str, batch_id: int) -> Iterator[None]:
    """Log what a batch fails with, once, as it passes by.

    tidelog's own errors are logged in full, as they hold no secrets; of another one only its class is, as its text may
    hold anything, and Spark reports it.
    """
    try:
        yield
    except Exception as error:
        known = isinstance(error, TidelogError)
        record = {
            "outcome": "failed",
            "sink": sink,
            "path": path,
            "batch_id": batch_id,
            "error": type(error).__name__,
            "code": error.code if isinstance(error, TidelogError) else None,
            "message": str(error) if known else None,
        }
        _LOGGER.error("%s", _pairs("batch failed", record), extra={"tidelog": record})  # noqa: TRY400 - see above
        raise


class JsonLines(logging.Formatter):
    """Each record as one line of JSON: timestamp (UTC), level, logger, message, and `tidelog` where the record has it.

    handler.setFormatter(JsonLines())
    """

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        entry: dict[str, Any] = {
            "timestamp": to_datetime(int(record.created * 1000)).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "tidelog"):
            entry["tidelog"] = record.tidelog
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _line(report: BatchReport) -> str:
    fields = report.to_dict()
    for name in ("outcome", "skipped", "run_id", "rows_per_second", "seconds", "metrics"):
        del fields[name]
    if not report.delayed_s:
        del fields["delayed_s"]
    fields |= report.metrics
    fields |= {f"{phase}_s": round(seconds, 3) for phase, seconds in report.seconds.items()}
    return _pairs(f"batch {report.outcome}", fields)


def _pairs(what: str, fields: Mapping[str, Any]) -> str:
    """`what` and the fields that hold something, as `key=value`; a text with spaces or quotes in it is JSON."""
    shown = (f"{name}={_text(value)}" for name, value in fields.items() if value is not None and value not in ("", []))
    return " ".join([what, *shown])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    plain = text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text)

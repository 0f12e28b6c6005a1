"""Python's log records as lines of text or JSON, and how a program of tidelog logs.

The message of a record says what happened. Its attribute `tidelog`, if it has one, is a dictionary of the facts; those
of the daemon begin with `event` and `table`: `extra=event("compacted", table=path, version=7)`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, TextIO

from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.presentable import presentable_lines, without_credentials
from tidelog.log.system import logger, to_datetime

LOG_LEVELS = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """Formats each log record as one line of JSON.

    The keys are `timestamp` (UTC, milliseconds), `level`, `logger` and `message`; `tidelog`, the facts of a batch or of
    the daemon, if the record has them; and `exception`, a traceback, if the record has one.

    Args:
        *args: As for `logging.Formatter`; none are needed.

    Example:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        logging.getLogger("tidelog.streaming").addHandler(handler)
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON. A value that JSON cannot hold becomes its text."""
        entry: dict[str, Any] = {
            "timestamp": to_datetime(int(record.created * 1000)).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "tidelog"):
            entry["tidelog"] = _without_credentials(record.tidelog)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _without_credentials(value: Any) -> Any:
    """The value, with each text in it as it may be shown. JSON itself spells control characters out."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {name: _without_credentials(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_credentials(entry) for entry in value]
    return value


class TextLines(logging.Formatter):
    """Formats each log record as a line of text: time (ISO-8601, UTC), level and message.

    A message from another library begins with the name of its logger. A traceback follows on lines of its own. Nothing
    in a line can move a terminal's cursor.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """See `logging.Formatter`."""
        del datefmt
        moment = to_datetime(int(record.created * 1000))
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """See `logging.Formatter`."""
        if record.name.split(".")[0] != "tidelog":
            record.message = f"{record.name}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return presentable_lines(super().format(record))


_FORMATS: dict[str, Callable[[], logging.Formatter]] = {"text": TextLines, "json": JsonLines}
LOG_FORMATS = tuple(_FORMATS)


def event(name: str, *, table: str = "", **facts: Any) -> dict[str, Any]:
    """The facts of a record, for its `extra`. Only what may be shown: no storage options."""
    return {"tidelog": {"event": name, **({"table": table} if table else {}), **facts}}


def configure_logging(line_format: str, level: str, stream: TextIO | None = None) -> Callable[[], None]:
    """Log to `stream`, by default standard error, and nowhere else. Can be called again.

    Other libraries log warnings and errors only: what they log besides can hold credentials. An error of tidelog says
    what is wrong and what to do, so its traceback is shown only at the level `debug`.

    Args:
        line_format: `text` or `json`.
        level: The least level of tidelog's own records: `debug`, `info`, `warning` or `error`.
        stream: Where to write the lines.

    Returns:
        A function that makes everything as it was before.

    Raises:
        ConfigurationError: The format or the level is not known.
    """
    for name, value, known in (("format", line_format, LOG_FORMATS), ("level", level, LOG_LEVELS)):
        if value not in known:
            raise ConfigurationError(f"the log {name} {value!r} is not known", advice=f"give one of {', '.join(known)}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_FORMATS[line_format]())
    if level != "debug":
        handler.addFilter(_drop_traceback)
    root, own = logging.root, logger("tidelog")
    before = root.handlers[:], root.level, own.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    own.setLevel(level.upper())

    def restore() -> None:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        own.setLevel(before[2])

    return restore


def _drop_traceback(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], TidelogError):
        record.exc_info, record.exc_text = None, None
    return True

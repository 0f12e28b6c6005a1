"""tidelog: a streaming table for PySpark.

    from tidelog import Daemon, Feed, Sink, Sinks, Table, capture, changes, lookup, read, register, sql, table

`Table` and `Daemon` need neither Spark nor Java; the others need PySpark. Names are imported when they are
first used, so `from tidelog import Table` does not load Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from tidelog.compaction_daemon import Daemon
    from tidelog.log import Table
    from tidelog.streaming import Feed, Sink, Sinks, capture, changes, lookup, read, register, sql, table

__all__ = [
    "Daemon",
    "Feed",
    "Sink",
    "Sinks",
    "Table",
    "__version__",
    "capture",
    "changes",
    "lookup",
    "read",
    "register",
    "sql",
    "table",
]

_HOMES = {
    "Daemon": "tidelog.compaction_daemon",
    "Feed": "tidelog.streaming",
    "Sink": "tidelog.streaming",
    "Sinks": "tidelog.streaming",
    "Table": "tidelog.log",
    "changes": "tidelog.streaming",
    "lookup": "tidelog.streaming",
    "read": "tidelog.streaming",
    "register": "tidelog.streaming",
    "sql": "tidelog.streaming",
    "table": "tidelog.streaming",
}
_MODULES = {"capture": "tidelog.streaming.capture"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        found: Any = _version()
    elif name in _MODULES:
        found = import_module(_MODULES[name])
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - Spark's processes do not need it

    try:
        return version("tidelog")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""One call for one batch: a second call of a sink would take the first one's commit for its own and drop its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import SinkSettings


@contextmanager
def claimed(settings: SinkSettings, batch: MicroBatch, table: Callable[[], Table | None]) -> Iterator[None]:
    """A sink's work on one batch, in this process. A batch that failed may be given to it again.

    Raises ConfigurationError where a sink of this name has the batch, or had it, by this path or another one of the
    same table.
    """
    keys = _keys(settings, table())
    with _lock:
        if any(_claims.get(key) == batch for key in keys):
            raise ConfigurationError(
                f"batch {batch.batch_id} was given to the sink {settings.name!r} of {settings.path} twice",
                advice="give each Sink of one batch function a name of its own, and call it once for a batch",
            )
        _claims.update(dict.fromkeys(keys, batch))
    try:
        yield
    except BaseException:
        with _lock:
            for key in _keys(settings, table()):
                if _claims.get(key) == batch:
                    del _claims[key]
        raise
    with _lock:
        # The table may have been made meanwhile.
        _claims.update(dict.fromkeys(_keys(settings, table()), batch))


def _keys(settings: SinkSettings, table: Table | None) -> list[tuple[str, str]]:
    """What the sink's name stands for: a path, and the table that lies there, which may have several."""
    return [(place, settings.name) for place in (settings.path, *([] if table is None else [table.id]))]


# The batch that each sink of this process has, or had last.
_claims: dict[tuple[str, str], MicroBatch] = {}
_lock = Lock()

"""At most one call for each batch and sink name: a second one would find the first one's commit and drop its rows."""

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
    """Claim one batch for a sink within this process; if the block fails, the batch can be claimed again.

    Raises ConfigurationError if a sink of this name has claimed the batch, under this path or another one of the same
    table.
    """
    keys = _keys(settings, table())
    with _lock:
        if any(_claims.get(key) == batch for key in keys):
            raise ConfigurationError(
                f"sink {settings.name!r} was called twice for batch {batch.batch_id} of {settings.path}",
                advice="give each Sink in a batch function its own name, and call it once for each batch",
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
        # The block may have created the table.
        _claims.update(dict.fromkeys(_keys(settings, table()), batch))


def note_begun(settings: SinkSettings, batch: MicroBatch) -> None:
    """Remember that a sink of this process begins to write the batch."""
    _begun[settings.path, settings.name] = batch


def has_begun(settings: SinkSettings, batch: MicroBatch) -> bool:
    """Whether a sink of this process has started to write the batch, and may have committed it."""
    return _begun.get((settings.path, settings.name)) == batch


def _keys(settings: SinkSettings, table: Table | None) -> list[tuple[str, str]]:
    """The sink's name with the path, and with the table's id, since one table can have several paths."""
    return [(place, settings.name) for place in (settings.path, *([] if table is None else [table.id]))]


# The newest batch that each sink of this process claimed.
_claims: dict[tuple[str, str], MicroBatch] = {}
# The newest batch that each sink of this process began to write, also if that failed.
_begun: dict[tuple[str, str], MicroBatch] = {}
_lock = Lock()

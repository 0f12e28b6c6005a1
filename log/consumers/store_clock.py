"""The time by the store's clock.

The ages of records are compared across hosts, whose clocks can be wrong. File times all come from the store.
"""

from __future__ import annotations

import contextlib

from tidelog.log.consumers.record_files import FOLDER
from tidelog.log.errors import StoreUnavailableError, TidelogError
from tidelog.log.storage import Store
from tidelog.log.system import System

CLOCK_SUFFIX = ".clock"
# A drop of the table that runs meanwhile may delete the file before its time was read.
_TRIES = 3
# A process that is killed leaves its file. Reading the clock takes seconds at most.
_LEFT_OVER_MS = 86_400_000


def store_clock_ms(store: Store, system: System) -> int:
    """The time in ms since the epoch, by the clock that sets the times of files.

    Writes an empty file beside the consumers and deletes it again. On a network file system that also makes the next
    listing of the folder a new one.
    """
    for _ in range(_TRIES):
        path = f"{FOLDER}/{system.uuid()}{CLOCK_SUFFIX}"
        store.put_if_absent(path, b"", durable=False)
        try:
            return store.modified_ms(path)
        except FileNotFoundError:
            continue
        finally:
            with contextlib.suppress(TidelogError, OSError):
                store.delete(path)
    raise StoreUnavailableError(
        f"files in {FOLDER} of {store.url} disappear as soon as they are written",
        advice="make sure that the table is not being dropped, then try again",
        path=store.url,
    )


def delete_left_over(store: Store, now_ms: int) -> None:
    """Delete the files that processes left which were killed while they read the clock. Never raises."""
    with contextlib.suppress(TidelogError, OSError):
        for status in store.list(FOLDER):
            if status.name.endswith(CLOCK_SUFFIX) and now_ms - status.modified_ms > _LEFT_OVER_MS:
                store.delete(f"{FOLDER}/{status.name}")

"""The commit with which a clean-up announces how far it goes, before it decides what to delete."""

from __future__ import annotations

from tidelog.log.cleanup.current_state import current_state
from tidelog.log.commit import loop
from tidelog.log.commit.result import Result
from tidelog.log.conflict.fences import FLOOR, HORIZON
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConflictError, FencedError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import System

# Only a change of the table's schema or protocol makes the commit a conflict, and those are rare.
_ATTEMPTS = 4


def announce_horizon(store: Store, state: LogState, version: int, system: System) -> Result | None:
    """Commit the horizon `version`, or the table's own one if that is later.

    Returns None if there is no commit, because another vacuum has announced a later horizon meanwhile. Raises the
    errors of `loop.commit`.
    """
    return _announce(store, state, HORIZON, version, "VACUUM", system)


def announce_floor(store: Store, state: LogState, version: int, system: System) -> Result | None:
    """Commit the floor `version`; otherwise like `announce_horizon`."""
    return _announce(store, state, FLOOR, version, "EXPIRE", system)


def _announce(
    store: Store, state: LogState, app_id: str, version: int, operation: str, system: System
) -> Result | None:
    for left in reversed(range(_ATTEMPTS)):
        known = state.head.transactions.get(app_id)
        bound = version if known is None else max(version, known.version)
        staged = Staged(
            operation=operation,
            operation_class=OperationClass.NONE,
            # A fence loses only to a higher one: so the bound never decreases.
            fence=SetTransaction(app_id=app_id, version=bound, last_updated=system.now_ms()),
            parameters={app_id.rpartition("/")[2]: str(bound)},
        )
        try:
            return loop.commit(store, state, staged, system)
        except FencedError:
            return None
        except ConflictError:
            if not left:
                raise
            state = current_state(store, state.head.metadata.id)
    raise AssertionError(store.url)  # the last conflict was raised

"""The state that a clean-up is based on: the newest version of the table that was opened."""

from __future__ import annotations

from tidelog.log.format.protocol import require_writable
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.table_identity import require_current
from tidelog.log.storage import Store


def current_state(store: Store, table_id: str) -> LogState:
    """Read the newest state of the table from its log. Raises the errors of `require_cleanable`."""
    state = load(store)
    require_cleanable(store, table_id, state)
    return state


def require_cleanable(store: Store, table_id: str, state: LogState) -> None:
    """Raise an error unless `state` is one of the table, and tidelog knows which files it needs.

    Raises UnsupportedFeatureError for a table that tidelog cannot write, since an unknown feature may need files that
    tidelog does not know. Raises TableReplacedError if the path now holds a different table, TableNotFoundError if the
    table was dropped.
    """
    require_current(store.url, table_id, state.head, advice="open it again if it is the table to clean up")
    require_writable(state.head.protocol, state.head.metadata, store.url)

"""What the clean-up of the log and of data files have in common: opening a table from which files will be deleted."""

from __future__ import annotations

from tidelog.log import Table
from tidelog.log.commit.table_identity import require_same_table
from tidelog.log.format.protocol import require_writable
from tidelog.log.state.head import Head
from tidelog.log.state.loader import load


def refresh(table: Table | str) -> tuple[Table, Head]:
    """The table at its newest version, and that version's head as the log has it now.

    Raises UnsupportedFeatureError for a table that tidelog cannot write: a feature that it does not know may rest on
    files that it does not know. Raises TableReplacedError where another table took this one's place.
    """
    opened = (Table.open(table) if isinstance(table, str) else table).refresh()
    head = load(opened.store, opened.version).head
    require_same_table(opened.path, opened.id, head.metadata.id, advice="open it anew, if it is the one to clean up")
    require_writable(head.protocol, head.metadata, opened.path)
    return opened, head

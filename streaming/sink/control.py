"""The columns of a change record beside those of its table, as `tidelog.streaming.capture` makes them."""

from __future__ import annotations

from tidelog.streaming.sink.dead_letters import REASON

OPERATION, ORDER, TRANSACTION, UNCHANGED, RAW = "_op", "_order", "_transaction", "_unchanged", "_raw"
OLD_KEY = "_old_key"
"""A struct with the key that a row had before, of a record that leaves out values. Not all formats know it."""
REQUIRED = (OPERATION, ORDER, TRANSACTION, UNCHANGED, REASON, RAW)
CONTROL = (*REQUIRED, OLD_KEY)
NUMBER = "_tidelog_number"
"""The number of a record in its batch, within the sink."""
RESERVED = frozenset({*CONTROL, NUMBER})
"""Names that no column of a record has in the rows, in any case of letters."""
UPSERTS, DELETES, TRUNCATES = "u", "d", "t"

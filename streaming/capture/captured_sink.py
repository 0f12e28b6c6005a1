"""The sink for the rows that this package makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.log.format import properties as table_properties
from tidelog.streaming.sink.control import DELETES, OPERATION, ORDER
from tidelog.streaming.sink.settings import UPSERT
from tidelog.streaming.sink.sink import Sink

_SHARED = ("storage_options", "checkpoint", "on_reset", "writer")


def sink(
    path: str,
    *,
    keys: Sequence[str] = (),
    dead_letters: Sink | str | None = None,
    keep: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    **options: Any,
) -> Sink:
    """A sink that applies change records to a table, each by its order.

    Args:
        path: The table, which the first batch creates with the columns of the rows and `_order`.
        keys: The columns that identify a row. Default: the table's `tidelog.primaryKey`.
        dead_letters: A sink, or a path, for the records that cannot be applied, with the reason in `_reason`, and in
            `_raw` their bytes. Several tables can have one path. Without it such a record is a DataError, and the
            stream stops.
        keep: Further columns that a new table has: `_transaction`, the id of the transaction in the source. A table
            that has the column gets it in any case.
        properties: Table properties of a table that the sink creates. `tidelog.orderBy` is `_order` by default. A table
            of dead letters that it creates gets `delta.enableTypeWidening` as well.
        options: Further arguments of `Sink`, such as `name`, `partition_by` or `schema_evolution`.
    """
    if isinstance(dead_letters, str):
        shared = {name: options[name] for name in _SHARED if name in options}
        # Several tables can have one table of dead letters, in which each needs a name of its own.
        own = "-".join(["dead-letters", path.rstrip("/").rpartition("/")[2], *filter(None, [options.get("name")])])
        # It gets the columns of the rows, and so their wider types as well.
        widening = table_properties.ENABLE_TYPE_WIDENING
        own_properties = {key: value for key, value in (properties or {}).items() if key == widening}
        dead_letters = Sink(dead_letters, name=own, schema_evolution=True, properties=own_properties, **shared)
    return Sink(
        path,
        mode=UPSERT,
        keys=keys,
        order_by=ORDER,
        delete_where=f"{OPERATION} = '{DELETES}'",
        properties={table_properties.ORDER_BY: ORDER, **(properties or {})},
        dead_letters=dead_letters,
        captured=keep,
        **options,
    )

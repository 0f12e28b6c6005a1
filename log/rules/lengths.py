"""Columns of the type varchar(n): no text has more than n characters.

As in Spark, spaces at the end that are too many are cut off, and any other text that is too long is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.rules.declared import Length
from tidelog.log.rules.violations import require_short


def fitted(rows: pa.Table, rules: Iterable[Length], path: str, touched: Collection[str] | None = None) -> pa.Table:
    """The rows without spaces that are too many. Raises ConstraintViolationError for another text that is too long.

    With `touched`, only these columns are looked at. The rows can lack columns.
    """
    for rule in rules:
        if rule.column not in rows.column_names or (touched is not None and rule.column not in touched):
            continue
        texts = rows[rule.column]
        is_long = pc.fill_null(pc.greater(pc.utf8_length(texts), rule.limit), False)  # noqa: FBT003 - a value
        if not pc.any(is_long).as_py():
            continue
        beyond = pc.fill_null(pc.utf8_rtrim(pc.utf8_slice_codeunits(texts, rule.limit), " "), "")
        require_short(rule, pc.equal(beyond, "").combine_chunks(), rows, path)
        index = rows.schema.get_field_index(rule.column)
        cut = pc.utf8_slice_codeunits(texts, 0, rule.limit)
        rows = rows.set_column(index, rows.schema.field(index), cut)
    return rows

"""Changes of any format as rows for a sink: the columns of a schema, and what the sink has to know beside them.

A format gives a frame with a row for each change and the columns of `CHANGE`. The rest is the same for all of them:
values become values of their columns, and a change with one that does not fit becomes a dead letter.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StructField, StructType

from tidelog.streaming.capture.values import (
    Encoding,
    Meaning,
    as_text,
    is_given,
    json_path,
    needs_meaning,
    part_of,
    typed_value,
)
from tidelog.streaming.sink.captured import (
    DELETES,
    OPERATION,
    ORDER,
    RAW,
    TRANSACTION,
    UNCHANGED,
    UPSERTS,
)
from tidelog.streaming.sink.dead_letters import REASON

PLACEHOLDER = "__debezium_unavailable_value"

# The columns that a format gives for each change: `data` is a variant, `declared` what the record's schema says of its
# columns, and `unit` that of timestamps in a record without one.
CHANGE = ("op", "data", "declared", "unit", "order", "transaction", "reason", "raw")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The schema and the key of the rows, and how their values are written."""

    schema: StructType
    keys: Sequence[str]
    encoding: Encoding
    placeholder: str = PLACEHOLDER
    has_meaning: bool = False

    def of(self, changes: DataFrame) -> DataFrame:
        """A row for each change, with the columns of the schema and those of CONTROL."""
        places = range(len(self.schema))
        variants = [F.col(f"v{place}") for place in places]
        # Each step is a projection of its own, so that what several columns need is computed once.
        held = changes.select(
            *CHANGE,
            *(part_of(F.col("data"), json_path(of.name)).alias(f"v{place}") for place, of in enumerate(self.schema)),
        )
        is_row = F.col("op") == UPSERTS
        placeholders = _placeholders(self.placeholder)
        left_out = [
            F.lit(False)  # noqa: FBT003 - a value
            if of.name in self.keys
            else is_row & F.coalesce(as_text(value).isin(placeholders), F.lit(False))  # noqa: FBT003 - a value
            for of, value in zip(self.schema, variants, strict=True)
        ]
        held = held.select("*", *(column.alias(f"u{place}") for place, column in enumerate(left_out)))
        typed = []
        for place, of in enumerate(self.schema):
            found = typed_value(variants[place], of.dataType, self._meaning(of))
            applies = F.lit(True) if of.name in self.keys else is_row & ~F.col(f"u{place}")  # noqa: FBT003 - a value
            typed.append(F.when(applies, found).alias(f"t{place}"))
        held = held.select("*", *typed)
        problems = []
        for place, of in enumerate(self.schema):
            is_key = of.name in self.keys
            applies = F.col("op").isin(UPSERTS, DELETES) if is_key else is_row & ~F.col(f"u{place}")
            problems.append(F.when(applies, _problem(of, variants[place], F.col(f"t{place}"), is_key=is_key)))
        unchanged = [F.when(F.col(f"u{place}"), F.lit(of.name)) for place, of in enumerate(self.schema)]
        rows = held.select(
            *(F.col(f"t{place}").alias(of.name) for place, of in enumerate(self.schema)),
            F.col("op").alias(OPERATION),
            F.col("order").alias(ORDER),
            F.col("transaction").alias(TRANSACTION),
            F.array_compact(F.array(*unchanged)).alias(UNCHANGED),
            F.coalesce(F.col("reason"), *problems).alias(REASON),
            F.col("raw").alias(RAW),
        )
        return rows.withColumn(RAW, F.when(F.col(REASON).isNotNull(), F.col(RAW)))

    def _meaning(self, of: StructField) -> Meaning:
        own = self.encoding.units.get(of.name, self.encoding.unit)
        usual = F.col("unit") if own == "adaptive" else F.lit(own)
        if not self.has_meaning or not needs_meaning(of.dataType):
            return Meaning(self.encoding, None, usual)
        declared = F.filter(F.col("declared"), lambda column: column["field"] == of.name)
        return Meaning(self.encoding, F.try_element_at(declared, F.lit(1)), usual)


def _problem(of: StructField, value: Column, found: Column, *, is_key: bool) -> Column:
    """Why a value does not fit its column; null if it does."""
    name = of.name
    shown = F.concat(
        F.substring(as_text(value), 1, _SHOWN), F.when(F.length(as_text(value)) > _SHOWN, "...").otherwise("")
    )
    text = F.concat(F.lit(f"the column {name}: "), shown, F.lit(f" does not fit {of.dataType.simpleString()} exactly"))
    problem = F.when(is_given(value) & found.isNull(), text)
    if is_key or not of.nullable:
        kind = "is of the key" if is_key else "is NOT NULL"
        problem = problem.when(value.isNull(), F.lit(f"the column {name}, which {kind}, is missing"))
        problem = problem.when(F.is_variant_null(value), F.lit(f"the column {name}, which {kind}, is null"))
    return problem


def _placeholders(text: str) -> list[str]:
    """How Debezium writes that it left out a value: as a text, bytes, and in lists of these, numbers and UUIDs."""
    if not text:
        return []
    content = text.encode()
    coded = base64.b64encode(content).decode()
    digest = bytearray(hashlib.md5(content, usedforsecurity=False).digest())
    uuid = UUID(bytes=bytes(digest), version=3)
    lists = [[text], [coded], [str(uuid)], list(content)]
    return [
        text,
        coded,
        *(json.dumps(found, separators=(",", ":")) for found in lists),
        json.dumps({text: text}, separators=(",", ":")),
    ]

"""What Spark computes in tidelog's place, for a table with an expression that tidelog cannot evaluate.

Then Spark computes everything: the columns that the data lacks, and for each rule a column that says whether it holds.
So all expressions of a row are evaluated by one engine. The tasks that write the rows look at these columns.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.predicate import backquoted
from tidelog.log.rules.declared import declared
from tidelog.log.rules.expressions import depends_on_zone, is_evaluable
from tidelog.log.rules.row_rules import RowRules

_ANSWER = "__tidelog_rule_"


@dataclass(frozen=True, slots=True)
class SparkWork:
    """What to add to a DataFrame: `filled`, columns of the table with their SQL, then `answers`, conditions by name.

    A column can use those before it. `rules` are those for rows that have all of it. `reasons` are the expressions that
    made Spark necessary.
    """

    filled: tuple[tuple[pa.Field, str], ...]
    answers: tuple[tuple[str, str], ...]
    rules: RowRules
    reasons: tuple[str, ...]


def spark_work(rules: RowRules, names: Collection[str], *, in_utc: bool) -> SparkWork | None:
    """What Spark has to compute for data with columns of these names; None if tidelog can.

    tidelog evaluates in UTC. So with a session in another time zone (not `in_utc`), Spark also computes what depends
    on it. Raises SchemaMismatchError for a name that is needed for an answer.
    """
    schema, present = rules.schema, {name.lower() for name in names}
    # Not at tidelog's time: Spark has one of its own for a query, and its dates are those of the session's zone.
    own = declared(rules.writer.metadata, rules.path)
    lacking = [field for field in schema if field.name.lower() not in present]
    needed = {rule.column: rule.expression for rule in (*own.defaults, *own.generated)}
    filled = tuple((field, needed.get(field.name, "null")) for field in lacking)
    conditions = [check.expression for check in own.checks]
    for rule in own.generated:
        is_given = rule.column.lower() in present
        conditions.append(f"{backquoted(rule.column)} <=> ({rule.expression})" if is_given else "true")
    texts = [*(text for _, text in filled), *conditions]
    reasons = [
        text for text in texts if not is_evaluable(text, schema) or (not in_utc and depends_on_zone(text, schema))
    ]
    if not reasons:
        return None
    taken = [name for name in names if name.lower().startswith(_ANSWER)]
    if taken:
        raise SchemaMismatchError(
            f"the data's column {taken[0]!r} has a name that tidelog needs", advice="rename it", column=taken[0]
        )
    generated = {rule.column for rule in own.generated}
    ordered = sorted(filled, key=lambda entry: entry[0].name in generated)
    answers = tuple((f"{_ANSWER}{place}", text) for place, text in enumerate(conditions))
    ready = replace(rules, answers=tuple(name for name, _ in answers))
    return SparkWork(tuple(ordered), answers, ready, tuple(reasons))

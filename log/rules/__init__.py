"""The rules of a table for new rows: constraints, invariants, generated columns, defaults, identity columns, lengths.

Other engines make such rules. Every path on which new rows become files goes through `RowRules`: it fills the columns
that the data lacks, and refuses rows that break a rule. Rows that only move (compactions, survivors of a delete, a
RESTORE) are not looked at again.

- `declared`: the rules, as the table's metadata declares them.
- `row_rules`: the rules, applied to rows; columns of the type varchar(n); the errors for rows that break a rule.
- `expressions`: their SQL, evaluated on Arrow's rows, or refused if tidelog cannot evaluate it.
- `refusals`: what is refused whatever the rows are.
- `spark_work`: what Spark computes in tidelog's place, for expressions that tidelog cannot evaluate.
"""

from tidelog.log.rules.declared import declared
from tidelog.log.rules.row_rules import RowRules
from tidelog.log.rules.spark_work import SparkWork, spark_work

__all__ = ["RowRules", "SparkWork", "declared", "spark_work"]

"""delta-spark commits between our stage and our commit. Our commit gives the result of running it after that commit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.delta_spark import DeltaSpark
from tests.interop.foreign_winners import Winner, base_table, meet_all, rows_of, texts
from tidelog.log import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]

MERGE = "MERGE INTO {t} AS t USING (SELECT col1 AS k FROM VALUES (2), (5), (300)) AS s ON t.k = s.k "
NEW = "NOT MATCHED THEN INSERT (k, part, v) VALUES (s.k, 'a', 7)"
ROWS = "VALUES (2, 'a', 0), (300, 'a', 7), (302, 'a', 8)"
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"
# What `make test` runs; the others are nightly.
MAIN = {
    "append",
    "delete",
    "update",
    "merge",
    "optimize",
    "restore of files",
    "restore of a row",
    "insert overwrite, dynamic",
    "replace where, on data",
}
# A statement, or several if some only set up the one that commits.
THEIRS: Mapping[str, str | tuple[str, ...]] = {
    "append": "INSERT INTO {t} VALUES (2, 'a', 0), (3, 'b', 0), (300, 'a', 0), (301, 'b', 0)",
    "delete": "DELETE FROM {t} WHERE k IN (1, 2, 6)",
    "delete of files": "DELETE FROM {t} WHERE part = 'b'",
    "update": "UPDATE {t} SET v = v + 7 WHERE k IN (0, 5)",
    "merge": MERGE + "WHEN MATCHED THEN UPDATE SET v = -7 WHEN " + NEW,
    "insert-only merge": MERGE + "WHEN " + NEW,
    "optimize": "OPTIMIZE {t}",
    "z-order": "OPTIMIZE {t} ZORDER BY (v)",
    "new column": "ALTER TABLE {t} ADD COLUMNS (w BIGINT)",
    "property": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '77')",
    "property that matters": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    # The rows of version 2: the files of version 3 go, and so does the deletion of version 4.
    "restore of files": "RESTORE TABLE {t} TO VERSION AS OF 2",
    # The one row that version 4 deleted comes back to life.
    "restore of a row": "RESTORE TABLE {t} TO VERSION AS OF 3",
    "truncate": "TRUNCATE TABLE {t}",
    "insert overwrite": f"INSERT OVERWRITE {{t}} {ROWS}",
    "insert overwrite, dynamic": (f"SET {DYNAMIC} = dynamic", f"INSERT OVERWRITE {{t}} {ROWS}", f"RESET {DYNAMIC}"),
    "replace where, on partitions": f"INSERT INTO {{t}} REPLACE WHERE part = 'a' {ROWS}",
    "replace where, on data": "INSERT INTO {t} REPLACE WHERE k BETWEEN 1 AND 5 VALUES (2, 'a', 0), (5, 'b', 7)",
}
# A letter for each of our operations, in the order of OURS.
EXPECTED: Mapping[str, str] = {
    "append": "CCxCCCCCC",
    "delete": "CCCCCCCCC",
    "delete of files": "CCCCCCCCC",
    "update": "CCxCCCCCC",
    "merge": "CCxCCCCCC",
    "insert-only merge": "CCCCCCCCC",
    "optimize": "CxxxCCCSS",
    "z-order": "CxxxCCCSS",
    "new column": "CCCCCCCCC",
    "property": "CCCCCCCCC",
    "property that matters": "xxxxxxxxx",
    "restore of files": "CCxCCCCCC",
    "restore of a row": "CCxCCCCCC",
    "truncate": "CCCCCCCSS",
    "insert overwrite": "CCCCCCCSS",
    "insert overwrite, dynamic": "CCCCCCCCC",
    "replace where, on partitions": "CCCCCCCCC",
    "replace where, on data": "CCxCCCCCC",
}

# delta-spark reads only these results, because a query of it takes far longer than everything else here.
READ = ("update",)


@pytest.mark.parametrize(
    "theirs", [pytest.param(theirs, marks=[] if theirs in MAIN else pytest.mark.nightly) for theirs in THEIRS]
)
def test_our_operations_after_a_commit_of_delta_spark(theirs: str, tmp_path: Path, delta: DeltaSpark) -> None:
    winner = Winner(tmp_path / "before", tmp_path / "after")
    base_table(winner.before, "vectors")
    shutil.copytree(winner.before, winner.after)
    statements = THEIRS[theirs]
    for statement in [statements] if isinstance(statements, str) else statements:
        delta.sql(statement.format(t=f"delta.`{winner.after}`"))
    outcomes = meet_all(winner, tmp_path)
    for ours in READ:
        path = str(tmp_path / ours)
        assert texts(delta.arrow(path)) == rows_of(Table.open(path)), ours
    assert outcomes == EXPECTED[theirs]

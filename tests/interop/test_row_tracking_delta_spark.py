"""Row tracking in tables of delta-spark: what tidelog does to them, row by row, as delta-spark reads the ids."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pytest

from tests.interop.delta_spark import DeltaSpark
from tests.log import row_tracking
from tidelog.log import Table
from tidelog.log.state.loader import load

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]

Ids = dict[int, tuple[int, int]]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def made_by_delta_spark(delta: DeltaSpark, path: str, **properties: str) -> Table:
    """A table with row tracking in which delta-spark has inserted, deleted, updated and optimized rows."""
    given = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true", **properties}
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    delta.sql(f"CREATE TABLE delta.`{path}` (k BIGINT, v BIGINT) USING delta TBLPROPERTIES ({texts})")
    delta.sql(f"INSERT INTO delta.`{path}` SELECT id, 0 FROM range(0, 20)")
    delta.sql(f"INSERT INTO delta.`{path}` SELECT id, 0 FROM range(20, 30)")
    delta.sql(f"UPDATE delta.`{path}` SET v = 1 WHERE k % 4 = 1")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE k = 7")
    delta.sql(f"INSERT INTO delta.`{path}` SELECT id, 0 FROM range(30, 35)")
    return Table.open(path)


def theirs(delta: DeltaSpark, path: str) -> Ids:
    """The ids and commit versions as delta-spark reads them. Every id must be there once."""
    rows = delta.sql(f"SELECT k, _metadata.row_id AS id, _metadata.row_commit_version AS version FROM delta.`{path}`")
    assert len({row["id"] for row in rows}) == len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: (row["id"], row["version"]) for row in rows}


def ours(path: str) -> Ids:
    rows = row_tracking.rows_with_ids(Table.open(path)).to_pylist()
    return {row["k"]: (row["id"], row["version"]) for row in rows}


def data(*keys: int, v: int = 0) -> pa.Table:
    return pa.table({"k": list(keys), "v": [v] * len(keys)}, schema=SCHEMA)


class Check:
    """Runs one operation after the other, and compares the ids before and after each.

    delta-spark reads them after each if `often`, which takes long; else its answer at the end must do.
    """

    def __init__(self, delta: DeltaSpark, path: str, *, often: bool) -> None:
        self.delta, self.path, self.often = delta, path, often
        self.table = Table.open(path)
        self.known = theirs(delta, path)

    def do(
        self, operation: Callable[[Table], object], *, changed: Collection[int] = (), gone: Collection[int] = ()
    ) -> None:
        """All rows but the changed ones keep both, the changed ones keep their ids, and new rows get new ids."""
        highest = row_tracking.mark(self.table)
        operation(self.table.refresh())
        now = ours(self.path)
        version = self.table.refresh().version
        if self.often:
            assert now == theirs(self.delta, self.path)
        assert not set(now).intersection(gone)
        assert set(self.known).difference(gone) <= set(now)
        for key, (row_id, row_version) in now.items():
            if key not in self.known:
                assert row_id > highest
                assert row_version == version
            elif key in changed:
                assert (row_id, row_version) == (self.known[key][0], version)
            else:
                assert (row_id, row_version) == self.known[key]
        self.known = now


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="vectors", marks=pytest.mark.nightly),
        pytest.param({"delta.enableChangeDataFeed": "false"}, id="vectors, asked often", marks=pytest.mark.nightly),
        pytest.param({"delta.enableDeletionVectors": "false"}, id="copies", marks=pytest.mark.nightly),
        pytest.param(
            {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
            id="mapping and feed",
        ),
        pytest.param({"delta.columnMapping.mode": "id"}, id="mapping by id", marks=pytest.mark.nightly),
    ],
)
def test_rows_keep_their_ids_over_everything_that_tidelog_does(
    delta: DeltaSpark, path: str, properties: dict[str, str]
) -> None:
    protocol = load(made_by_delta_spark(delta, path, **properties).store).head.protocol
    check = Check(delta, path, often=bool(properties))
    check.do(lambda table: table.insert(data(40, 41)))
    check.do(lambda table: table.update("k IN (3, 33)", {"v": "k"}), changed={3, 33})
    check.do(lambda table: table.upsert(data(3, 4, 50, v=9), keys=["k"]), changed={3, 4})
    check.do(lambda table: table.delete("k IN (0, 34, 50)"), gone={0, 34, 50})
    check.do(lambda table: table.compact("minor"))
    check.do(lambda table: table.update("k = 5", {"v": "0"}), changed={5})
    check.do(lambda table: table.compact("major", cluster_by=["v", "k"]))
    check.do(lambda table: table.compact("major", purge=True))
    check.do(lambda table: table.checkpoint())
    check.do(lambda table: table.expire())
    check.do(lambda table: table.vacuum())
    table = Table.open(path)
    assert load(table.store).head.protocol == protocol
    before = check.known
    assert theirs(delta, path) == before
    delta.sql(f"UPDATE delta.`{path}` SET v = -1 WHERE k = 6")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (60, 0)")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    after = theirs(delta, path)
    assert after == ours(path)
    assert after[6][0] == before[6][0]
    assert after[60][0] > max(row_id for row_id, _ in before.values())
    assert {k: kept for k, kept in after.items() if k not in {6, 60}} == {
        k: kept for k, kept in before.items() if k != 6
    }
    Table.open(path).restore(version=table.version)
    assert theirs(delta, path) == before
    delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {table.version - 4}")
    Table.open(path).insert(data(70))
    assert ours(path) == theirs(delta, path)
    assert ours(path)[70][0] > after[60][0]
    mine = Table.open(path).begin().insert(data(71, 72))
    delta.sql(f"INSERT INTO delta.`{path}` SELECT id, 0 FROM range(80, 90)")
    mine.commit()
    assert ours(path) == theirs(delta, path)
    assert ours(path)[71][0] > max(row_id for key, (row_id, _) in ours(path).items() if key not in {71, 72})

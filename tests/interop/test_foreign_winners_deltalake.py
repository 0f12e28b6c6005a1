"""deltalake commits between our stage and our commit. Our commit gives the result of running it after that commit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from tests.interop.foreign_winners import OURS, SCHEMA, Winner, base_table, meet_all, row, rows_of, texts
from tests.interop.readers import by_delta_rs
from tidelog.log import Table

pytestmark = pytest.mark.interop


def data(*keys: int, v: int | None = None) -> pa.Table:
    return pa.Table.from_pylist([row(k) if v is None else {**row(k), "v": v} for k in keys], SCHEMA)


def merge(table: DeltaTable, source: pa.Table) -> deltalake.table.TableMerger:
    return table.merge(source, predicate="t.k = s.k", source_alias="s", target_alias="t")


THEIRS: Mapping[str, Callable[[DeltaTable], object]] = {
    "append": lambda table: deltalake.write_deltalake(table, data(2, 3, 300, 301), mode="append"),
    "append of other keys": lambda table: deltalake.write_deltalake(table, data(302, 304), mode="append"),
    "delete": lambda table: table.delete("k IN (1, 2, 6)"),
    "delete of other keys": lambda table: table.delete("k = 10"),
    "delete of a partition": lambda table: table.delete("part = 'b'"),
    "delete of all": lambda table: table.delete(),
    "update": lambda table: table.update(predicate="k IN (0, 5)", updates={"v": "v + 7"}),
    "merge": lambda table: (
        merge(table, data(2, 5, 300, v=-7)).when_matched_update_all().when_not_matched_insert_all().execute()
    ),
    "insert-only merge": lambda table: merge(table, data(4, 50, 300)).when_not_matched_insert_all().execute(),
    "merge that deletes": lambda table: merge(table, data(3, 4)).when_matched_delete().execute(),
    "optimize": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["v"]),
    "new column": lambda table: table.alter.add_columns([Field("w", PrimitiveType("long"))]),
    "property": lambda table: table.alter.set_table_properties({"delta.checkpointInterval": "77"}),
    "property that matters": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "restore": lambda table: table.restore(2),
    "overwrite": lambda table: deltalake.write_deltalake(table, data(1, 400), mode="overwrite"),
    "replace where": lambda table: deltalake.write_deltalake(
        table, data(400, 404), mode="overwrite", predicate="part = 'a'"
    ),
}
# What `make test` runs.
MAIN = {("vectors", theirs) for theirs in ("append", "delete", "update", "merge", "optimize", "overwrite", "restore")}
# A letter for each of our operations, in the order of OURS.
EXPECTED: Mapping[tuple[str, str], str] = {
    ("vectors", "append"): "CCxCCCCCC",
    ("vectors", "append of other keys"): "CCCCCCCCC",
    ("vectors", "delete"): "CCCCCCCCC",
    ("vectors", "delete of other keys"): "CCCCCCCCC",
    ("vectors", "delete of a partition"): "CCCCCCCCC",
    ("vectors", "delete of all"): "CCCCCCCSS",
    ("vectors", "update"): "CCxCCCCCC",
    ("vectors", "merge"): "CCxCCCCCC",
    ("vectors", "insert-only merge"): "CCCCCCCCC",
    ("vectors", "merge that deletes"): "CCxCCCCCC",
    ("vectors", "optimize"): "CxxxCCCSS",
    ("vectors", "z-order"): "CxxxCCCSS",
    ("vectors", "new column"): "CCCCCCCCC",
    ("vectors", "property"): "xxxxxxxxx",
    ("vectors", "property that matters"): "xxxxxxxxx",
    ("vectors", "restore"): "CCxCCCCCC",
    ("vectors", "overwrite"): "CCxCCCCSS",
    ("vectors", "replace where"): "CCCCCCCCC",
    ("copies, feed", "append"): "CxxxCCCCC",
    ("copies, feed", "append of other keys"): "CCCCCCCCC",
    ("copies, feed", "delete"): "CxxxCCCSS",
    ("copies, feed", "delete of other keys"): "CCCCCCCCC",
    ("copies, feed", "delete of a partition"): "CxxCCCCCC",
    ("copies, feed", "delete of all"): "CxxxCCCSS",
    ("copies, feed", "update"): "CxxxCCCSS",
    ("copies, feed", "merge"): "CxxxCCCSS",
    ("copies, feed", "insert-only merge"): "CxCxCCCCC",
    ("copies, feed", "merge that deletes"): "CxxCCCCSS",
    ("copies, feed", "optimize"): "CxxxCCCSS",
    ("copies, feed", "z-order"): "CxxxCCCSS",
    ("copies, feed", "new column"): "CCCCCCCCC",
    ("copies, feed", "property"): "xxxxxxxxx",
    ("copies, feed", "property that matters"): "xxxxxxxxx",
    ("copies, feed", "restore"): "CxxCCCCSS",
    ("copies, feed", "overwrite"): "CxxxCCCSS",
    ("copies, feed", "replace where"): "CxCxCCCCC",
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A table of each kind that deltalake can write."""
    paths = {kind: tmp_path_factory.mktemp("base") / "table" for kind in {kind for kind, _ in EXPECTED}}
    for kind, path in paths.items():
        base_table(path, kind, **{"delta.enableInCommitTimestamps": False})
    return paths


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [pytest.param(*pair, marks=[] if pair in MAIN else pytest.mark.full) for pair in EXPECTED],
)
def test_our_operations_after_a_commit_of_deltalake(
    kind: str, theirs: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    winner = Winner(bases[kind], tmp_path / "after")
    shutil.copytree(winner.before, winner.after)
    THEIRS[theirs](DeltaTable(str(winner.after)))
    outcomes = meet_all(winner, tmp_path)
    for ours in OURS:
        path = str(tmp_path / ours)
        assert texts(by_delta_rs(path)) == rows_of(Table.open(path)), ours
    assert outcomes == EXPECTED[kind, theirs]

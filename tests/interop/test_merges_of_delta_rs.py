"""The merges of delta-rs' own tests that go by keys, said as upserts: the rows and changes are those of deltalake.

The data are not theirs. If deltalake's ON has more than the keys, tidelog says it in the rules for matched rows, or,
if a column is compared with a constant, by another key.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger

from tests.interop.deltalake_merges import merge_of_deltalake, with_rules
from tests.interop.deltalake_rows import check_same
from tidelog.log import Table
from tidelog.log.errors import (
    AppendOnlyError,
    ConfigurationError,
    ConflictError,
    ConstraintViolationError,
    DuplicateKeyError,
    SchemaMismatchError,
    TidelogError,
)

pytestmark = pytest.mark.interop

FEED = {"delta.enableChangeDataFeed": "true"}
Rule = tuple[str | None, str | Mapping[str, str]]
UPDATE: Rule = (None, "update")
DELETE: Rule = (None, "delete")
INSERT: Rule = (None, "insert")


@dataclass(frozen=True)
class Case:
    """A merge. Whatever is not said apart is the same for both.

    `on` is deltalake's whole condition, `also` what it says beside the keys: tidelog says it in the rules for matched
    rows. `theirs` are deltalake's rules, `options` those of its merge. `own` is the source of tidelog, `form` what the
    data are given as. `adds` are columns that tidelog's table gets first, while deltalake merges schemas.
    """

    before: pa.Table
    source: pa.Table
    matched: Sequence[Rule] = ()
    new: Sequence[Rule] = ()
    rest: Sequence[Rule] = ()
    keys: Sequence[str] = ("name",)
    partition_by: Sequence[str] = ()
    on: str = ""
    also: str = ""
    theirs: Callable[[TableMerger], TableMerger] | None = None
    own: pa.Table | None = None
    form: Callable[[pa.Table], Any] = lambda data: data
    options: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    adds: Sequence[pa.Field] = ()
    times: int = 1

    def by_deltalake(self, path: str) -> None:
        on = self.on or " AND ".join(f"target.`{key}` = source.`{key}`" for key in self.keys)
        evolves = {"merge_schema": True} if self.adds else {}
        options = {**self.options, **evolves}
        merge = merge_of_deltalake(path, self.form(self.source), f"{on} {self.also and 'AND ' + self.also}", **options)
        rules = {"when_matched": self.matched, "when_not_matched": self.new, "when_not_matched_by_source": self.rest}
        (self.theirs(merge) if self.theirs else with_rules(merge, rules)).execute()

    def by_tidelog(self, path: str) -> None:
        table = Table.open(path)
        if self.adds:
            table.add_columns(self.adds)
        matched = self.matched
        if self.also:
            matched = [(self.also if text is None else f"{self.also} AND ({text})", act) for text, act in matched]
        table.upsert(
            self.form(self.source if self.own is None else self.own),
            keys=self.keys,
            when_matched=list(matched),
            when_not_matched=list(self.new),
            when_not_matched_by_source=list(self.rest),
        )


def of(columns: str, *rows: tuple[Any, ...]) -> pa.Table:
    """A table, by the names and types of its columns. A "!" after a type forbids nulls."""
    pairs = [column.split(":") for column in columns.split()]
    fields = [pa.field(name, pa.type_for_alias(kind.rstrip("!")), nullable="!" not in kind) for name, kind in pairs]
    columns_ = zip(*rows, strict=True) if rows else [()] * len(fields)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns_, fields, strict=True)], schema=pa.schema(fields))


def to_set(*names: str, **values: str) -> dict[str, str]:
    return {**{name: f"source.{name}" for name in names}, **values}


WHO = "name:string pay:int64 days:int32 away:bool"
CREW = of(WHO, ("ann", 0, 1, False), ("bob", 20, 2, False), ("cid", 30, 3, True), ("dan", 40, None, False))
NEWS = of(WHO, ("cid", 31, 7, True), ("dan", 41, 8, False), ("eve", 50, 9, None), ("fay", 600, 6, False))
NOTED = of(WHO + " note:string", ("cid", 31, 7, True, "x"), ("dan", 41, 8, False, "y"), ("eve", 50, 9, None, "z"))
HIRED = of("name:string rate:double until:date32", *((name, 1.0, date(9999, 1, 1)) for name in "ab"))
PATHS = "name:string v:int32 __delta_rs_path:string"

MATCHED = {
    "deletes, and the data has another column": Case(CREW, of("name:string weight:int32", ("bob", 80)), [DELETE]),
    "deletes by a condition": Case(CREW, NOTED, [("source.away = true", "delete")]),
    "deletes by two conditions": Case(
        CREW, NOTED, [("source.away = True", "delete"), ("source.away = false", "delete")]
    ),
    "sets some columns": Case(CREW, NEWS.drop(["away"]), [(None, to_set("pay", "days"))]),
    "sets all, without a column that only the data has": Case(
        CREW, NOTED, [(None, to_set(*CREW.column_names))], theirs=lambda merge: merge.when_matched_update_all(),
    ),
    "sets all except one": Case(
        CREW, NOTED, [(None, to_set("name", "pay", "away"))],
        theirs=lambda merge: merge.when_matched_update_all(except_cols=["days"]),
    ),
    "sets by a condition": Case(CREW, NEWS, [("source.away = False", to_set("pay", "days"))]),
    "sets by two conditions": Case(
        CREW, NEWS, [("source.away = false", to_set("pay", "days")), ("source.away = true", to_set("days", pay="0"))],
    ),
    "sets all by two conditions": Case(CREW, NEWS, [("source.pay > 40", "update"), ("source.pay <= 40", "update")]),
    "if a boolean of the table is true": Case(CREW, NEWS, [(None, to_set("pay"))], also="target.away = true"),
    "if a column is null": Case(CREW, NEWS, [(None, to_set("days", pay="target.pay"))], also="target.days IS NULL"),
    "if a column is null, in partitions": Case(
        CREW, NEWS, [(None, to_set("days", away="target.away"))], also="target.days IS NULL", partition_by=["away"],
    ),
    "in partitions of numbers": Case(CREW, NEWS, [UPDATE], also="target.pay IN (30, 20)", partition_by=["pay"]),
    "in partitions of text": Case(CREW, NEWS, [UPDATE], also="target.name IN ('ann', 'dan')", partition_by=["name"]),
    "by a key and a partition": Case(
        CREW, NEWS, [(None, to_set("pay"))], keys=["name", "away"], partition_by=["away"]
    ),
    "a null is no key": Case(
        of("name:string b:int64 c:int64", ("x", 1, 1), ("y", 2, 1), (None, 3, None), (None, None, None)),
        of("name:string b:int64 c:int64", ("x", 10, 10), (None, 9, 9)),
        [UPDATE], properties={"delta.dataSkippingStatsColumns": "name,c"},
    ),
    "a hyphen in a name": Case(of("name:int64 v--1:int64", (1, 4), (2, 5)), of("name:int64", (2,), (9,)), [DELETE]),
    "a column with a name of the engine": Case(
        of(PATHS, ("a", 1, "p"), ("b", 2, "q")), of(PATHS, ("b", 20, "r")), [(None, to_set("v"))]
    ),
    "a struct": Case(
        pa.table({"name": ["a", "b"], "at": [{"x": 1, "y": "l"}, {"x": 2, "y": "r"}]}),
        pa.table({"name": ["b"], "at": [{"x": 5, "y": None}]}), [UPDATE], form=lambda data: data.to_pandas(),
    ),
    "a list with a null in it": Case(
        pa.table({"name": ["a", "b"], "l": [[1, None], []]}),
        pa.table({"name": ["a", "b"], "l": [[None, 7, None], None]}), [(None, to_set("l"))],
    ),
    "with a limit for spilling": Case(CREW, NEWS, [UPDATE], options={"max_spill_size": 100_000_000}),
    "an interval of a history ends": Case(
        HIRED, HIRED.set_column(1, "rate", [[1.5, 1.0]]),
        [("target.rate <> source.rate", {"until": "DATE '2026-05-01'"})], also="target.until = DATE '9999-01-01'",
    ),
}  # fmt: skip

SHORTS = pa.struct([("d", pa.int16()), ("e", pa.int16())])
ID_DAY = "name:int64 day:date32"
NOT_MATCHED = {
    "sets the columns": Case(CREW, NEWS, new=[(None, to_set("name", "pay", "days", away="False"))]),
    "sets by a condition": Case(CREW, NEWS, new=[("source.pay < 100", to_set("name", "pay", away="false"))]),
    "sets by two conditions": Case(
        CREW, NEWS, new=[("source.pay < 100", to_set("name", "pay")), ("source.pay > 100", to_set("name", "days"))],
    ),
    "inserts by a condition": Case(CREW, NEWS, new=[("source.pay < 100", "insert")]),
    "inserts all except one column": Case(
        CREW, NEWS, new=[(None, to_set("name", "pay", "away"))],
        theirs=lambda merge: merge.when_not_matched_insert_all(except_cols=["days"]),
    ),
    "spaces and digits in names": Case(
        pa.table({"1 id": ["a"], "sold items": [1]}), pa.table({"1 id": ["b", "c"], "sold items": [2, None]}),
        new=[("source.`sold items` < 50", "insert")], keys=["1 id"],
    ),
    "capital letters": Case(of("fooBar:string", ("a",)), of("fooBar:string", ("b",)), new=[INSERT], keys=["fooBar"]),
    "capital letters in rules": Case(
        of("Id:string vAlue:int32", ("a", 1)), of("Id:string vAlue:int32", ("a", 5), ("b", 6)),
        new=[(None, to_set("Id", vAlue="source.vAlue + 1"))], keys=["Id"],
    ),
    "a change feed with partitions": Case(
        of(ID_DAY), of(ID_DAY, (1, date(1970, 1, 1)), (2, date(1969, 12, 31))), new=[INSERT],
        partition_by=["name"], properties=FEED,
    ),
    "text that is a number": Case(
        CREW, of("name:string pay:string days:int32 away:bool", ("eve", "5", 1, None)), new=[INSERT],
        own=of(WHO, ("eve", 5, 1, None)),
    ),
    "columns stay without nulls": Case(
        of("name:string! v:int32! note:string"), of("name:string v:int32 note:string", ("a", 1, "x"), ("b", 2, None)),
        new=[(None, to_set("name", "v", "note"))],
    ),
    "a struct of small numbers": Case(
        pa.table({"name": [1], "s": pa.array([{"d": 1, "e": 2}], SHORTS)}),
        pa.table({"name": [0, 2], "s": [{"d": -55, "e": -32}, {"d": 0, "e": None}]}), new=[INSERT],
    ),
    "a schema that could grow, and does not": Case(
        CREW, NEWS, new=[INSERT], partition_by=["name"], options={"merge_schema": True}
    ),
}  # fmt: skip

BY_SOURCE = {
    "sets all": Case(CREW, NEWS, rest=[(None, {"days": "10"})]),
    "sets by a condition": Case(CREW, NEWS, rest=[("target.pay > 3", {"days": "10"})]),
    "only the first rule": Case(CREW, NEWS, rest=[(None, {"days": "10"}), (None, {"days": "100"})]),
    "deletes": Case(CREW, of("name:string weight:double", ("bob", 1.5), ("dan", 1.6)), rest=[DELETE]),
    "deletes by a condition": Case(CREW, NEWS, rest=[("target.pay > 3", "delete")]),
    "deletes in partitions": Case(CREW, NEWS, rest=[DELETE], partition_by=["away"]),
    "deletes in partitions by a condition": Case(
        CREW, NEWS, rest=[("target.pay > 3", "delete")], partition_by=["pay"], options={"merge_schema": True}
    ),
    "a change feed of deletes": Case(CREW, NEWS, rest=[("target.pay > 3", "delete")], properties=FEED),
}  # fmt: skip

AT = datetime(2026, 3, 20, 12, 30)  # noqa: DTZ001 - a time without a zone
V_DAY = "name:string v:int32 day:string"
DAYS = of(V_DAY, ("a", 1, "d1"), ("b", 10, "d1"), ("c", 10, "d2"), ("d", 100, "d2"))
LATER = of(V_DAY, ("b", 10, "d2"), ("c", 20, "d4"), ("x", 30, "d4"))
RENAMED = LATER.rename_columns(["source_name", "source_v", "source_day"])
SET_RENAMED = {"v": "source_v", "day": "source_day"}
BOTH: dict[str, Any] = {"matched": [UPDATE], "new": [INSERT]}
THREE: dict[str, Any] = {
    "matched": [(None, to_set("v", "day"))],
    "new": [(None, to_set("name", "v", "day"))],
    "rest": [("target.v = 1", {"v": "target.v + 1"})],
}
OLD = [*THREE["rest"], ("target.day = 'd1'", {"v": "target.v - 1"})]
# The constant that deltalake compares the partition with is the key here.
ON_D2: dict[str, Any] = {
    "own": LATER.set_column(2, "day", [["d2"] * 3]).append_column("later", LATER["day"]),
    "keys": ["name", "day"],
    "partition_by": ["day"],
    "matched": [(None, to_set("v", day="source.later"))],
    "new": [(None, to_set("name", "v", day="source.later"))],
    "rest": OLD,
    "theirs": lambda merge: with_rules(
        merge, {"when_matched": THREE["matched"], "when_not_matched": THREE["new"], "when_not_matched_by_source": OLD}
    ),
}


def stamped(zone: str | None, *times: datetime) -> pa.Table:
    text = pa.array([str(number) for number in range(len(times))], pa.string())
    return pa.table({"name": pa.array(times, pa.timestamp("us", zone)), "v": text})


def with_height(digits: int, *heights: str) -> pa.Table:
    values = pa.array([Decimal(height) for height in heights], pa.decimal128(digits, 1))
    return pa.table({"at": pa.array([AT] * len(heights), pa.timestamp("us")), "height": values})


def many(first: int, end: int, value: int) -> pa.Table:
    names = range(first, end)
    return pa.table({"name": names, "v": [value] * len(names), "part": [name % 4 for name in names]})


TIMES: dict[str, Any] = {**BOTH, "partition_by": ["name"], "times": 2}
SEVERAL = {
    "three kinds of rules": Case(DAYS, LATER, **THREE),
    "three kinds of rules, and a change feed": Case(DAYS, LATER, **THREE, properties=FEED),
    "large text, and a schema that could grow": Case(
        DAYS, of("name:large_string v:int32 day:string", ("b", 9, "d2")), **THREE, options={"merge_schema": True}
    ),
    "views of text in partitions": Case(
        DAYS, of("name:string v:int32 day:string_view", ("b", 9, "d2"), ("x", 30, "d3")), **THREE,
        partition_by=["day"], options={"merge_schema": True},
    ),
    "names without a side": Case(
        DAYS, RENAMED, [(None, SET_RENAMED)], [(None, to_set("name", **SET_RENAMED))],
        [("v = 1", {"v": "target.v + 1"})],
        on="name = source_name", own=RENAMED.rename_columns(["name", "source_v", "source_day"]),
        theirs=lambda merge: (
            merge.when_matched_update(SET_RENAMED)
            .when_not_matched_insert({"name": "source_name", **SET_RENAMED})
            .when_not_matched_by_source_update({"v": "v + 1"}, "v = 1")
        ),
    ),
    "with one partition": Case(DAYS, LATER, **ON_D2, on="target.name = source.name AND target.day = 'd2'"),
    "with one partition of a list": Case(
        DAYS, LATER, **ON_D2,
        on="target.name = source.name AND target.name IN (source.name, source.day) AND target.day IN ('d2')",
    ),
    "with one partition that all data is in": Case(
        DAYS, of(V_DAY, ("b", 10, "d2"), ("c", 20, "d2")), **BOTH, keys=["name", "day"], partition_by=["day"],
        on="target.name = source.name AND target.day = 'd2'",
    ),
    "keys as partitions": Case(DAYS, LATER, THREE["matched"], THREE["new"], partition_by=["name"]),
    "with a bound of the keys": Case(
        DAYS, of(V_DAY, ("c", 9, None), ("e", 8, None)), **BOTH, on="target.name = source.name AND target.name >= 'c'",
    ),
    "an empty table": Case(
        DAYS[:0], LATER, **BOTH, partition_by=["day"], on="target.name = source.name AND target.day = 'd2'"
    ),
    "dates as partitions": Case(
        of("name:date32 a:string"), of("name:date32 a:string", (date(2026, 2, 1), "b")), **TIMES
    ),
    "times as partitions": Case(stamped(None), stamped(None, AT), **TIMES),
    "times in a zone as partitions": Case(stamped("UTC"), stamped("UTC", AT), **TIMES),
    "times of another zone": Case(
        stamped("UTC", AT, AT.replace(hour=17)), stamped("America/Chicago", AT.replace(hour=17), AT.replace(hour=1)),
        **BOTH, form=lambda data: data.to_pandas(),
    ),
    "a column without nulls": Case(of("name:int64! a:string"), of("name:int64 a:string", (12, "a")), **BOTH, times=2),
    "a time and a decimal as keys": Case(
        with_height(6, "150.5", "7.0"), with_height(4, "150.5", "8.0"), **BOTH, keys=["at", "height"]
    ),
    "numbers that become text": Case(
        of("name:string v:string", ("a", "old")), of("name:string v:int64", ("a", 99), ("b", 100)),
        [(None, {"v": "CAST(source.n AS string)"})],
        [(None, {"name": "source.name", "v": "CAST(source.n AS string)"})],
        theirs=lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
        own=of("name:string n:int64", ("a", 99), ("b", 100)),
    ),
    "a frame of Polars": Case(CREW, NEWS, **BOTH, form=pl.from_arrow),
    "a stream that can be read once": Case(CREW, NEWS, **BOTH, form=lambda data: data.to_reader()),
    "binary values": Case(
        of("name:string b:binary", ("a", b"1"), ("b", b"2")), of("name:string b:binary", ("b", b"\0"), ("c", b"")),
        **BOTH,
    ),
    "many rows": Case(many(0, 9000, 1), many(5000, 9500, 2), **BOTH),
    "many rows in several files": Case(many(0, 9000, 1), many(5000, 9500, 2), **BOTH, partition_by=["part"]),
    "many rows that stay": Case(
        many(0, 9000, 1), many(0, 9500, 1), [("target.v <> source.v", to_set("v"))], [(None, to_set("name", "v"))]
    ),
    **{
        f"a partition {value!r}": Case(
            of("name:string v:double at:string"),
            of("name:string v:double at:string", ("a", 1.0, value), ("b", 2.5, value)),
            **BOTH, keys=["at", "name"], partition_by=["at"], times=2,
        )
        for value in ("foo bar", "2026/02/01", "2026%02")
    },
}  # fmt: skip

GENERATED = pa.schema(
    [
        pa.field("name", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("year", pa.date32(), metadata={"delta.generationExpression": "TRUNC(day, 'YEAR')"}),
        pa.field("five", pa.int32(), metadata={"delta.generationExpression": "5"}),
    ]
)
DATED = of(ID_DAY, (1, date(2020, 6, 15)), (2, date(2021, 8, 20)))
NOTE: dict[str, Any] = {"adds": [pa.field("note", pa.string())]}
NEW_COLUMNS = {
    "generated": Case(GENERATED.empty_table(), DATED, new=[(None, to_set("name", "day"))]),
    "generated, of whole rows": Case(GENERATED.empty_table(), DATED, new=[INSERT]),
    "generated, and the schema could grow": Case(
        GENERATED.empty_table(), DATED, new=[INSERT], options={"merge_schema": True}
    ),
    "set": Case(CREW, NOTED, [(None, to_set("pay", "note", days="source.days + 10"))], **NOTE),
    "set and inserted": Case(CREW, NOTED, [(None, to_set("pay", "note"))], [INSERT], **NOTE),
    "inserted by a condition": Case(
        CREW, NOTED, new=[("source.pay < 100", to_set("name", "note", away="False"))], **NOTE
    ),
    "inserted without another one": Case(
        CREW, NOTED, new=[(None, to_set("name", "pay", "away", "note"))], **NOTE,
        theirs=lambda merge: merge.when_not_matched_insert_all(except_cols=["days"]),
    ),
    "in an empty table": Case(CREW[:0], NOTED, new=[INSERT], partition_by=["away"], **NOTE),
    "a struct": Case(
        of("name:string", ("a",)), pa.table({"name": ["b"], "s": [{"n": 1}]}), new=[INSERT],
        adds=[pa.field("s", pa.struct([("n", pa.int64())]))],
    ),
}  # fmt: skip
SAME = {
    "matched": MATCHED,
    "not matched": NOT_MATCHED,
    "by source": BY_SOURCE,
    "several": SEVERAL,
    "new columns": NEW_COLUMNS,
}


def twins(folder: Path, case: Case) -> tuple[str, str]:
    theirs, ours = str(folder / "deltalake"), str(folder / "tidelog")
    write_deltalake(theirs, case.before, partition_by=list(case.partition_by), configuration=dict(case.properties))
    shutil.copytree(theirs, ours)
    return theirs, ours


def rows(path: str) -> list[str]:
    """The rows, which tidelog and deltalake read alike."""
    ours = sorted(map(str, Table.open(path).scan().to_arrow().to_pylist()))
    assert ours == sorted(map(str, DeltaTable(path).to_pyarrow_table().to_pylist()))
    return ours


def changes(path: str) -> list[str]:
    found = Table.open(path).changes(after=0).to_arrow()
    return sorted(map(str, found.drop(["_commit_timestamp"]).to_pylist()))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{kind}: {name}") for kind, cases in SAME.items() for name, case in cases.items()]
)
def test_both_give_the_same_rows(tmp_path: Path, case: Case) -> None:
    theirs, ours = twins(tmp_path, case)
    before = rows(ours)
    for _ in range(case.times):
        case.by_deltalake(theirs)
        case.by_tidelog(ours)
    assert rows(ours) == rows(theirs) != before
    if not case.adds:
        assert DeltaTable(ours).schema() == DeltaTable(theirs).schema()
    if case.properties == FEED:
        assert changes(ours) == changes(theirs)


def test_mapped_columns(tmp_path: Path) -> None:
    case = Case(of("name:string v:string"), of("name:string v:string", ("a", "1"), ("b", "2")), **BOTH, times=2)
    theirs, ours = twins(tmp_path, case)
    for path in (theirs, ours):
        log = Path(path, "_delta_log", f"{0:020}.json")
        actions = {name: action for line in log.read_text().splitlines() for name, action in json.loads(line).items()}
        metadata, schema = actions["metaData"], json.loads(actions["metaData"]["schemaString"])
        for number, column in enumerate(schema["fields"], start=1):
            names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            column["metadata"] = names
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"] = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        actions["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        log.write_text("\n".join(json.dumps({name: action}) for name, action in actions.items()))
    for _ in range(case.times):
        case.by_deltalake(theirs)
        case.by_tidelog(ours)
    for path in (theirs, ours):
        check_same(Table.open(path), case.source.to_pylist())


# --- errors -----------------------------------------------------------------------------------------------------------

TWICE = of(WHO, ("dan", 1, 1, True), ("dan", 2, 2, True))
TEXT = of("name:int64 v:string", (1, "abc"), (2, "5"))
NUMBERS = of("name:int64 v:int64", (1, 10))
SET_V: list[Rule] = [(None, to_set("v"))]
WRONG_FIVE = pa.table([[1], [date(2020, 6, 15)], [date(2020, 1, 1)], [6]], schema=GENERATED)
DUPLICATE = (DuplicateKeyError, "duplicate relevant WHEN MATCHED")
NO_NUMBER = (SchemaMismatchError, "Cannot cast string 'abc'")
INVALID = "Invalid data found|failed validation"
REFUSED: dict[str, tuple[Case, tuple[type[TidelogError], str]]] = {
    "two rows set one": (Case(CREW, TWICE, [("source.away = true", to_set("pay"))]), DUPLICATE),
    "two rows set all of one": (Case(CREW, TWICE, [("source.away = true", "update")]), DUPLICATE),
    "two rows set one without a condition": (Case(CREW, TWICE, [(None, to_set("pay"))]), DUPLICATE),
    "two rows delete one by a condition": (Case(CREW, TWICE, [("source.away = true", "delete")]), DUPLICATE),
    "a null for a column without nulls": (
        Case(of("name:int64! v:bool!"), of("name:int64 v:bool", (1, True), (2, None)), **BOTH),
        (SchemaMismatchError, INVALID),
    ),
    "text for a number": (Case(NUMBERS, TEXT, **BOTH), NO_NUMBER),
    "text for a number by a rule": (Case(NUMBERS, TEXT, SET_V, [(None, to_set("name", "v"))]), NO_NUMBER),
    "text for a number, and the schema could grow": (
        Case(NUMBERS, TEXT, SET_V, options={"merge_schema": True}), NO_NUMBER,
    ),
    "text for a number without nulls": (
        Case(of("name:int64! v:int64!", (1, 10)), TEXT, SET_V, options={"error_on_type_mismatch": False}),
        (SchemaMismatchError, INVALID),
    ),
    "a table for appends only": (
        Case(CREW, NEWS, rest=[DELETE], properties={"delta.appendOnly": "true"}), (AppendOnlyError, "append"),
    ),
    "a column of the data is set": (
        Case(CREW, NEWS, [(None, {"source.pay": "source.pay"})]), (ConfigurationError, "source"),
    ),
    "a wrong generated value": (
        Case(GENERATED.empty_table(), WRONG_FIVE, new=[INSERT]), (ConstraintViolationError, INVALID),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_deltalake_refuses_is_refused(tmp_path: Path, name: str) -> None:
    case, (error, message) = REFUSED[name]
    theirs, ours = twins(tmp_path, case)
    before = rows(ours)
    with pytest.raises(Exception, match=message):  # of several types
        case.by_deltalake(theirs)
    with pytest.raises(error):
        case.by_tidelog(ours)
    assert rows(ours) == rows(theirs) == before


SAFE: dict[str, Any] = {"options": {"error_on_type_mismatch": False}}
STRICTER: dict[str, tuple[Case, type[TidelogError]]] = {
    "two rows of a key, and one has no effect": (
        Case(CREW, TWICE, [("source.pay = 2", to_set("pay"))], properties=FEED), DuplicateKeyError,
    ),
    "two rows of a key that delete": (Case(CREW, TWICE, [DELETE]), DuplicateKeyError),
    "all columns, and another that no rule reads": (Case(CREW, NOTED, [UPDATE]), SchemaMismatchError),
    "numbers for text": (
        Case(of("name:int64 v:string", (1, "old")), of("name:int64 v:int64", (1, 99)), [UPDATE]), SchemaMismatchError,
    ),
    "numbers in text": (Case(NUMBERS, TEXT[1:], new=[INSERT]), SchemaMismatchError),
    "no number in text": (Case(NUMBERS, TEXT, **BOTH, **SAFE), SchemaMismatchError),
    "no number in text, and a change feed": (Case(NUMBERS, TEXT, SET_V, **SAFE, properties=FEED), SchemaMismatchError),
    "no number in the text of a rule": (
        Case(NUMBERS, TEXT[1:].drop(["v"]), rest=[(None, {"v": "'abc'"})], **SAFE), SchemaMismatchError,
    ),
    "a number that is too large": (
        Case(of("name:int64 v:int32", (1, 10)), of("name:int64 v:int64", (1, 2**31)), SET_V, **SAFE),
        SchemaMismatchError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(STRICTER))
def test_where_tidelog_is_stricter(tmp_path: Path, name: str) -> None:
    """The data have one row of a key, and no value is changed, or set to null, to fit its column."""
    case, error = STRICTER[name]
    theirs, ours = twins(tmp_path, case)
    before = rows(ours)
    case.by_deltalake(theirs)
    with pytest.raises(error):
        case.by_tidelog(ours)
    assert rows(ours) == before != rows(theirs)


FIRST = of(V_DAY, ("c", 11, "d2"), ("d", 20, "d2"))


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("keys", [["name"], ["name", "day"]], ids=["one key", "two keys"])
@pytest.mark.parametrize("second", [FIRST, of(V_DAY, ("e", 10, "d3"))], ids=["same rows", "other rows"])
def test_merges_at_the_same_time(tmp_path: Path, second: pa.Table, keys: list[str], partition_by: list[str]) -> None:
    """The second one was staged before the first one was committed, and fails if both change the same rows."""
    theirs, ours = twins(tmp_path, Case(DAYS, FIRST, partition_by=partition_by))
    on = " AND ".join(f"target.{key} = source.{key}" for key in keys)
    rules: dict[str, Any] = {"when_matched": [(None, to_set("v"))], "when_not_matched": [INSERT]}
    both = (FIRST, second)
    merges = [with_rules(merge_of_deltalake(theirs, data, on, streamed_exec=False), rules) for data in both]
    table = Table.open(ours)
    upserts = [table.begin().upsert(data, keys=keys, **rules) for data in both]
    merges[0].execute()
    upserts[0].commit()
    if second is FIRST:
        with pytest.raises(CommitFailedError):
            merges[1].execute()
        with pytest.raises(ConflictError):
            upserts[1].commit()
    else:
        merges[1].execute()
        upserts[1].commit()
    assert rows(ours) == rows(theirs)

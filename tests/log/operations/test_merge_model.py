"""Upserts with rules, and of some of the columns, compared with loops over dictionaries: rows, feed and row counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import KINDS
from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("w", pa.string())])
Row = dict[str, Any]

# Conditions and expressions, and what they are for a row of the source and one of the table.
CONDITIONS: dict[str | None, Any] = {
    None: lambda _s, _t: True,
    "source.v > target.v": lambda s, t: _known(s["v"], t["v"]) and s["v"] > t["v"],
    "target.v IS NULL OR source.w = target.w": lambda s, t: t["v"] is None or (s["w"] == t["w"] and s["w"] is not None),
    "op = 'd'": lambda s, _t: s["op"] == "d",
}
OF_SOURCE: dict[str | None, Any] = {
    None: lambda _s: True,
    "source.op <> 'd'": lambda s: s["op"] != "d",
    "v > 4 AND part = 'a'": lambda s: s["v"] is not None and s["v"] > 4 and s["part"] == "a",
}
OF_TARGET: dict[str | None, Any] = {
    "target.v < 3": lambda t: t["v"] is not None and t["v"] < 3,
    "w IS NULL": lambda t: t["w"] is None,
}
VALUES: dict[str, Any] = {
    "source.v": lambda s, _t: s["v"],
    "coalesce(target.v, 0) + coalesce(source.v, 0)": lambda s, t: (t["v"] or 0) + (s["v"] or 0),
    "7": lambda _s, _t: 7,
}


def _known(*values: object) -> bool:
    return None not in values


_NUMBER = st.one_of(st.none(), st.integers(0, 9))
_TEXT = st.sampled_from([None, "x", "y"])
_PART = st.sampled_from(["a", "b", None])
_ROW = st.fixed_dictionaries({"part": _PART, "v": _NUMBER, "w": _TEXT})
_GIVEN = st.sets(st.sampled_from(["part", "v", "w"]))
_SOURCE = st.dictionaries(st.integers(0, 9), st.tuples(_ROW, st.sampled_from(["u", "d"]), _GIVEN), max_size=6)
_WITH_OP = pa.schema([*SCHEMA, ("op", pa.string())])
_MATCHED = st.tuples(st.sampled_from(list(CONDITIONS)), st.sampled_from(["update", "delete", *VALUES]))
_NEW = st.tuples(st.sampled_from(list(OF_SOURCE)), st.sampled_from(["insert", "values"]))
_OLD = st.tuples(st.sampled_from(list(OF_TARGET)), st.sampled_from(["delete", "values"]))
_STEP = st.tuples(
    st.sampled_from(["rules", "rules", "partial", "insert", "delete", "compact"]),
    _SOURCE,
    st.lists(_MATCHED, max_size=3),
    st.lists(_NEW, max_size=2),
    st.lists(_OLD, max_size=2),
)


def _merged(before: list[Row], source: dict[int, Row], step: Any) -> list[Row]:
    _, _, matched, new, old = step
    after = []
    for row in before:
        if row["k"] in source:
            given_row = source[row["k"]]
            action = next((action for name, action in matched if CONDITIONS[name](given_row, row)), None)
            if action == "update":
                after.append({name: given_row[name] for name in SCHEMA.names})
            elif action is None:
                after.append(row)
            elif action != "delete":
                after.append({**row, "v": VALUES[action](given_row, row)})
        else:
            action = next((action for name, action in old if OF_TARGET[name](row)), None)
            if action == "values":
                after.append({**row, "w": "old"})
            elif action is None:
                after.append(row)
    known = {row["k"] for row in before}
    for key, given_row in source.items():
        if key in known:
            continue
        action = next((action for name, action in new if OF_SOURCE[name](given_row)), None)
        if action == "insert":
            after.append({name: given_row[name] for name in SCHEMA.names})
        elif action == "values":
            after.append({"k": key, "part": None, "v": given_row["v"], "w": "new"})
    return after


def _partial(before: list[Row], rows: list[Row]) -> list[Row]:
    given_rows = {row["k"]: row for row in rows}
    known = {row["k"] for row in before}
    after = []
    for row in before:
        change = given_rows.get(row["k"])
        if change is None:
            after.append(row)
        elif change["op"] != "d":
            after.append({**row, **{name: value for name, value in change.items() if name != "op"}})
    for key, row in given_rows.items():
        if key not in known and row["op"] != "d":
            after.append({name: row.get(name) for name in SCHEMA.names})
    return after


def _bag(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in SCHEMA.names) for row in rows)


def _applied(bag: Counter[tuple[Any, ...]], changes: pa.Table) -> Counter[tuple[Any, ...]]:
    bag = Counter(bag)
    for row in changes.to_pylist():
        sign = 1 if row["_change_type"] in {"insert", "update_postimage"} else -1
        bag[tuple(row[name] for name in SCHEMA.names)] += sign
    assert all(count >= 0 for count in bag.values())
    return +bag


def _written(action: str, condition: str | None, values: dict[str, str]) -> tuple[str | None, Any]:
    return condition, values if action in {"values", *VALUES} else action


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(KINDS)), st.sampled_from([[], ["part"]]), st.lists(_STEP, min_size=1, max_size=6))
def test_upserts_by_rules_behave_like_loops(kind: str, partition_by: list[str], steps: list[Any]) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=partition_by, properties=KINDS[kind])
    model: list[Row] = []
    for step in steps:
        name, changes, matched, new, old = step
        source = {key: {"k": key, **row, "op": op} for key, (row, op, _) in changes.items()}
        before, version = _bag(model), table.version
        match name:
            case "rules" if matched or new or old:
                rules: dict[str, Any] = {
                    "when_matched": [_written(act, where, {"v": act}) for where, act in matched],
                    "when_not_matched": [
                        _written(act, where, {"k": "source.k", "v": "source.v", "w": "'new'"}) for where, act in new
                    ],
                    "when_not_matched_by_source": [_written(act, where, {"w": "'old'"}) for where, act in old],
                }
                names = [*SCHEMA.names, *(["op"] if "op" in str(rules) else [])]
                rows = pa.Table.from_pylist(list(source.values()), _WITH_OP).select(names)
                table.upsert(rows, keys=["k"], **rules)
                model = _merged(model, source, step)
            case "partial":
                rows = [
                    {"k": key, "op": op, **{column: row[column] for column in given_columns}}
                    for key, (row, op, given_columns) in changes.items()
                ]
                table.upsert(rows, keys=["k"], columns="partial", delete_where="op = 'd'")
                model = _partial(model, rows)
            case "insert":
                rows = [{name: row[name] for name in SCHEMA.names} for row in source.values()]
                table.insert(rows)
                model += rows
            case "delete":
                table.delete("v = 5")
                model = [row for row in model if row["v"] != 5]
            case "compact":
                groups: dict[str, list[Any]] = {}
                for file in live_files(table):
                    if file.deletion_vector is None:
                        groups.setdefault(str(file.partition_values), []).append(file)
                if groups:
                    stage_compaction(table, *groups.values()).commit()
            case _:
                continue
        table.refresh()
        assert _bag(table.scan().to_arrow().to_pylist()) == _bag(model)
        if table.version > version:
            assert _applied(before, table.changes(after=version).to_arrow()) == _bag(model)
    assert _bag(reopen(table).scan().to_arrow().to_pylist()) == _bag(model)

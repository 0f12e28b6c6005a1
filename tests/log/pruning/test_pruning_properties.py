"""Pruning never drops a matching row: a scan returns what filtering all rows returns."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.log.predicate.strategies import FAMILIES, VALUES, Case, cases
from tests.log.support import live_files, memory_store, new_table, put_foreign, put_vector, remove
from tidelog.log import Table, predicate
from tidelog.log.errors import PredicateError


def filled(case: Case) -> Table:
    table = new_table(memory_store(), case.schema, partition_by=case.partition_by)
    for rows in case.inserts:
        table.insert(pa.Table.from_pylist(rows, case.schema))
    return table


def filtered(table: Table, where: str) -> list[Any]:
    """All rows filtered by `where`. Rejects the example if the predicate fails on them (types, overflow)."""
    rows = table.scan().to_arrow()
    try:
        found = rows.filter(predicate.Condition(predicate.parse(where, table.schema), table.schema).mask(rows))
    except PredicateError:
        assume(False)
        raise
    return found.to_pylist()  # type: ignore[no-any-return]


def check(table: Table, where: str) -> None:
    expected = filtered(table, where)
    # Compared as text, in which NaN equals itself and -0.0 differs from 0.0.
    assert repr(table.scan(where).to_arrow().to_pylist()) == repr(expected)
    assert table.scan(where).count() == len(expected)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_scan_returns_what_filtering_all_rows_returns(family: str, data: st.DataObject) -> None:
    case = data.draw(cases(FAMILIES[family]))
    table = filled(case)
    check(table, case.where)
    expected = filtered(table, case.where)
    changes = table.changes(where=case.where, columns=[*case.schema.names, *_NO_COMMIT]).to_arrow()
    assert repr(changes.to_pylist()) == repr(expected)


@settings(max_examples=30, deadline=None)
@given(cases(FAMILIES["anything"]), st.data())
def test_files_with_deleted_rows_and_wide_bounds(case: Case, data: st.DataObject) -> None:
    table = filled(case)
    for number, file in enumerate(live_files(table)):
        stats = msgspec.json.decode(file.stats or "{}")
        dead = data.draw(st.sets(st.integers(0, stats["numRecords"] - 1)))
        if not dead:
            continue
        vector = put_vector(table.store, sorted(dead), f"dv{number}.bin")
        # Edit the JSON as text: decoding the bounds would round them.
        wide = (file.stats or "").replace('"tightBounds":true', '"tightBounds":false')
        put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector, stats=wide))
    check(table.refresh(), case.where)


_NO_COMMIT = ["-_change_type", "-_commit_version", "-_commit_timestamp"]
_DELTALAKE_KINDS = [kind for kind in VALUES if kind != pa.binary()]


@pytest.mark.full
@pytest.mark.interop
@settings(max_examples=60, deadline=None)
@given(cases(_DELTALAKE_KINDS))
def test_statistics_of_deltalake(case: Case) -> None:
    # deltalake can still be writing a file of a batch that it rejected.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = str(Path(folder, "table"))
        for rows in case.inserts:
            data = pa.Table.from_pylist(rows, case.schema)
            try:
                deltalake.write_deltalake(path, data, mode="append", partition_by=case.partition_by or None)
            except (ValueError, OSError, deltalake.exceptions.DeltaError):
                assume(False)
        check(Table.open(path), case.where)


# --- counts of nulls that are wrong -----------------------------------------------------------------------------------

# Fields with the names of parts of a list or map, beside a list and a map.
_BESIDE = [
    ("value", pa.int64()),
    ("item", pa.string()),
    ("key", pa.int64()),
    ("element", pa.int64()),
    ("n", pa.int64()),
    ("l", pa.list_(pa.int64())),
    ("m", pa.map_(pa.string(), pa.int64())),
]
_MISCOUNTED = pa.schema([*_BESIDE, ("s", pa.struct([*_BESIDE, ("t", pa.struct(_BESIDE))]))])
_NUMBERS = st.none() | st.integers(0, 3)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("value", "key", "element", "n"), _NUMBERS),
    "item": st.none() | st.sampled_from("ab"),
    "l": st.none() | st.lists(_NUMBERS, max_size=3),
    "m": st.none() | st.dictionaries(st.sampled_from("ab"), _NUMBERS),
}
_INNER = st.none() | st.fixed_dictionaries({**_FIELDS, "t": st.none() | st.fixed_dictionaries(_FIELDS)})
_SOME = st.fixed_dictionaries({**_FIELDS, "s": _INNER})
_PREFIXES = st.sampled_from(["", "s.", "s.t."])
_TESTS = st.builds(
    "{0}{1} {2}".format, _PREFIXES, st.sampled_from(list(_FIELDS)), st.sampled_from(["IS NULL", "IS NOT NULL"])
) | st.builds(
    "{0}{1}".format,
    _PREFIXES,
    st.sampled_from(
        [
            "value = 1",
            "value IN (1, 2)",
            "item = 'a'",
            "item LIKE 'a%'",
            "n <> 1",
            "n <=> NULL",
            "n >= 0",
            "key < 9",
            "element = 2",
        ]
    ),
)


def _deltalake_nulls(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What deltalake up to 1.6.0 counts: the nulls inside of lists and maps, under the names of their parts.

    It does so at the top of a schema only. Here it is the same in structs, which is worse.
    """
    found: dict[str, Any] = {name: sum(row[name] is None for row in rows) for name in ("value", "item", "n")}
    found["item"] = found["l"] = sum(row["l"] is None or None in row["l"] or not row["l"] for row in rows)
    pairs = [value for row in rows for value in (row["m"] or {}).values()]
    found |= {"key": 0, "element": found["l"], "value": sum(value is None for value in pairs)}
    for name in {"s", "t"} & rows[0].keys():
        inner = [row[name] or dict.fromkeys((*_FIELDS, *("t" if name == "s" else ""))) for row in rows]
        found[name] = _deltalake_nulls(inner)
    return found


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(_SOME, min_size=1, max_size=4), min_size=1, max_size=3), _TESTS, _TESTS, st.data())
def test_counts_of_nulls_that_are_wrong_lose_no_row(
    inserts: list[list[dict[str, Any]]], left: str, right: str, data: st.DataObject
) -> None:
    check_wrong_counts(inserts, left, right, data)


@pytest.mark.nightly
@settings(max_examples=500, deadline=None)
@given(st.lists(st.lists(_SOME, min_size=1, max_size=4), min_size=1, max_size=3), _TESTS, _TESTS, st.data())
def test_many_counts_of_nulls_that_are_wrong_lose_no_row(
    inserts: list[list[dict[str, Any]]], left: str, right: str, data: st.DataObject
) -> None:
    check_wrong_counts(inserts, left, right, data)


def check_wrong_counts(inserts: list[list[dict[str, Any]]], left: str, right: str, data: st.DataObject) -> None:
    """The rows that a predicate finds are those that it finds without statistics."""
    table = new_table(memory_store(), _MISCOUNTED)
    for rows in inserts:
        table.insert(pa.Table.from_pylist(rows, _MISCOUNTED))
    for file, rows in zip(live_files(table), inserts, strict=True):
        stats = msgspec.json.decode(file.stats or "{}")
        stats["nullCount"] = _deltalake_nulls(rows)
        for name in set(stats["minValues"]) - {"s"}:
            if data.draw(st.integers(0, 3)):
                lies = [stats["numRecords"], stats["numRecords"] + 3, -1]
                stats["nullCount"][name] = data.draw(st.sampled_from(lies))
        put_foreign(table, remove(file), msgspec.structs.replace(file, stats=msgspec.json.encode(stats).decode()))
    for where in (left, f"{left} OR {right}", f"{left} AND NOT ({right})", f"NOT ({left})"):
        check(table.refresh(), where)

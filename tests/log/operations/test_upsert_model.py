"""UPSERT compared with a dictionary: rows and change feed after random operations."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import KINDS
from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction
from tidelog.log import Table

MODEL_SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("part", pa.float64()),
        ("v", pa.int32()),
        ("s", pa.struct([("x", pa.date32())])),
    ]
)


_KEY = st.tuples(st.integers(0, 5), st.sampled_from(["", "x", "y"]), st.sampled_from([0.0, -0.0, 1.5, math.nan]))


_STEP = st.tuples(
    st.sampled_from(["upsert", "upsert", "upsert", "delete", "compact", "checkpoint"]),
    st.dictionaries(_KEY, st.tuples(st.integers(0, 99), st.booleans()), max_size=8),
)


def _plain(key: tuple[int, str, float]) -> tuple[int, str, str]:
    return key[0], key[1], str(key[2] + 0.0)


def _rows_of(table: Table) -> dict[tuple[int, str, str], int]:
    found = table.scan().to_arrow().to_pylist()
    result = {_plain((row["a"], row["b"], row["part"])): row["v"] for row in found}
    assert len(result) == len(found)
    assert all((row["s"] is None) == (row["v"] % 2 == 0) for row in found)
    return result


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(list(KINDS)), st.sampled_from([[], ["part"]]), st.lists(_STEP, min_size=1, max_size=6))
def test_upserts_behave_like_a_dictionary(
    kind: str, partition_by: list[str], steps: list[tuple[str, dict[Any, tuple[int, bool]]]]
) -> None:
    """Compare rows and change feed after upserts with keys of several columns, deletes and compactions."""
    table = new_table(memory_store(), MODEL_SCHEMA, partition_by=partition_by, properties=KINDS[kind])
    model: dict[tuple[int, str, str], int] = {}
    for name, changes in steps:
        before, version = dict(model), table.version
        known = {_plain(key): (key, *change) for key, change in changes.items()}
        match name:
            case "upsert":
                data = [
                    {
                        "a": key[0],
                        "b": key[1],
                        "part": key[2],
                        "v": v,
                        "s": {"x": None} if v % 2 else None,
                        "gone": gone,
                    }
                    for key, v, gone in known.values()
                ]
                table.upsert(data, keys=["a", "b", "part"], delete_where="gone = true")
                for key, (_, v, gone) in known.items():
                    model.pop(key, None) if gone else model.__setitem__(key, v)
            case "delete":
                table.delete("a < 2")
                model = {key: v for key, v in model.items() if key[0] >= 2}
            case "compact":
                _compact(table)
            case _:
                table.checkpoint()
        assert _rows_of(table) == model == _rows_of(reopen(table))
        if "feed" in kind and name == "upsert" and table.version > version:
            _check_feed(table, before, model, known)


def _check_feed(table: Table, before: dict[Any, int], after: dict[Any, int], touched: Any) -> None:
    expected: Counter[tuple[str, Any, int]] = Counter()
    for key in touched:
        old, new = before.get(key), after.get(key)
        if old is not None:
            expected["delete" if new is None else "update_preimage", key, old] += 1
        if new is not None:
            expected["insert" if old is None else "update_postimage", key, new] += 1
    found = table.changes(after=table.version - 1).to_arrow().to_pylist()
    assert expected == Counter(
        (change["_change_type"], _plain((change["a"], change["b"], change["part"])), change["v"]) for change in found
    )


def _compact(table: Table) -> None:
    parts = {str(add.partition_values) for add in live_files(table)}
    for part in parts:
        group = [add for add in live_files(table) if str(add.partition_values) == part and not add.deletion_vector]
        if group:
            stage_compaction(table, group).commit()
            table.refresh()

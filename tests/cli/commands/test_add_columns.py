"""`tidelog add-columns`."""

from __future__ import annotations

import json

import pyarrow as pa

from tests.cli.support import run
from tidelog.log import Table


def test_add_columns(small_files: Table) -> None:
    result = run("add-columns", small_files.path, "country string, `the place` struct<x: double, y: double>")
    assert (result.exit_code, result.stdout) == (0, f"{small_files.path}: version 4: added country, the place\n")
    added = small_files.refresh().schema
    assert added.names == ["part", "n", "country", "the place"]
    assert added.field("the place").type == pa.struct([("x", pa.float64()), ("y", pa.float64())])
    assert small_files.scan(columns=["country"]).to_arrow()["country"].to_pylist() == [None] * 3


def test_add_columns_as_json(small_files: Table) -> None:
    result = run("add-columns", small_files.path, "c bigint", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["changed"], report["version"]) == (0, True, 4)


def test_a_column_that_cannot_be_null_is_refused(small_files: Table) -> None:
    result = run("add-columns", small_files.path, "c bigint not null")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'c'" in result.stderr
    assert small_files.refresh().version == 3

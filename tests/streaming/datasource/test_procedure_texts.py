"""Statements as text, and the procedures that they mean."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidelog.log.errors import ConfigurationError, PredicateError
from tidelog.streaming.datasource.procedure_texts import procedure_call


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("OPTIMIZE a.b", "compact", {"table": "`a`.`b`"}),
        ("optimize '/data/x'", "compact", {"table": "/data/x"}),
        (
            "OPTIMIZE tidelog.`/d` WHERE day >= '2026-01-01' AND s = 'it''s' ZORDER BY (a, `b`);",
            "compact",
            {
                "table": "`tidelog`.`/d`",
                "where": "day >= '2026-01-01' AND s = 'it''s'",
                "level": "major",
                "cluster_by": "a, b",
            },
        ),
        ("OPTIMIZE t\nZORDER BY a", "compact", {"table": "`t`", "level": "major", "cluster_by": "a"}),
        ("VACUUM t", "vacuum", {"table": "`t`"}),
        ("VACUUM t FULL", "vacuum", {"table": "`t`"}),
        (
            "VACUUM t LITE RETAIN 0.5 HOURS DRY RUN",
            "vacuum",
            {"table": "`t`", "listing": False, "older_than": timedelta(minutes=30), "dry_run": True},
        ),
        ("RESTORE t VERSION AS OF 3", "restore", {"table": "`t`", "version": 3}),
        ("RESTORE TABLE t TO TIMESTAMP AS OF '2026-01-31'", "restore", {"table": "`t`", "timestamp": "2026-01-31"}),
        ("DESCRIBE HISTORY t", "history", {"table": "`t`"}),
        ("desc history t LIMIT 5", "history", {"table": "`t`", "limit": 5}),
        ("DESC DETAIL `a``b`", "detail", {"table": "`a``b`"}),
        ("CALL tidelog.system.history('/d', 3)", "history", {"table": "/d", "limit": 3}),
        (
            "call TIDELOG.SYSTEM.Compact(cluster_by => array('a', 'b'), table => 't', purge => true, where => NULL)",
            "compact",
            {"cluster_by": ["a", "b"], "table": "t", "purge": True, "where": None},
        ),
        ("CALL tidelog.system.vacuum('t', INTERVAL 3 DAYS)", "vacuum", {"table": "t", "older_than": "3 DAYS"}),
    ],
)
def test_a_call(text: str, name: str, values: dict[str, Any]) -> None:
    found = procedure_call(text)
    assert found is not None
    assert (found.name, found.values) == (name, values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "DESCRIBE t",
        "DESCRIBE HISTORY",
        "DESC DETAIL",
        "CALL other.system.compact('x')",
        "CALL f(",
        "VACUUM 't",
    ],
)
def test_another_statement(text: str) -> None:
    assert procedure_call(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("OPTIMIZE t FULL", "'FULL' is not supported here"),
        ("VACUUM t USING INVENTORY x", "'USING INVENTORY x' is not supported here"),
        ("VACUUM t RETAIN soon HOURS", "'soon' is not a number"),
        ("RESTORE t VERSION AS OF 1.5", "1.5 is not a whole number"),
        ("RESTORE t VERSION AS OF", "ends too early"),
        ("RESTORE t TO yesterday", "'yesterday' is not supported here"),
        ("DESCRIBE HISTORY t LIMIT 1 OFFSET 2", "'OFFSET 2' is not supported here"),
        ("CALL tidelog.system.history(upper('x'))", "is not a constant"),
    ],
)
def test_a_part_that_no_procedure_has(text: str, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        procedure_call(text)


@pytest.mark.parametrize(
    "text", ["nothing('x')", "history('x', 1, 2)", "history(what => 1)", "history('x', table => 'y')"]
)
def test_an_argument_or_a_procedure_that_is_not_there(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"its parameters are table, limit|use one of compact, detail"):
        procedure_call(f"CALL tidelog.system.{text}")


def test_the_statement_call_that_an_error_shows() -> None:
    found = procedure_call("VACUUM `it's` RETAIN 48 HOURS DRY RUN")
    assert str(found) == r"CALL tidelog.system.vacuum(table => '`it\'s`', older_than => '48 hours', dry_run => true)"

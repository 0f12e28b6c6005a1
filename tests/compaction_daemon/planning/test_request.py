"""A compaction is described once, by its request: all ways to ask for one take the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from tests.compaction_daemon.support import memory_table, put
from tidelog.cli.commands.compact import compact_command
from tidelog.cli.commands.plan import plan_command
from tidelog.cli.plans import request_of
from tidelog.compaction_daemon import Budget, CompactionRequest, compact, plan, stage
from tidelog.compaction_daemon.planning.request import LEVELS
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.properties import CLUSTER_ORDERS
from tidelog.streaming.executors.spark_table import SparkTable

FIELDS = [field.name for field in fields(CompactionRequest)]


@pytest.mark.parametrize("function", [plan, stage, compact, Table.compact, SparkTable.compact])
def test_a_compaction_is_asked_for_by_the_fields_of_its_request(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name in FIELDS] == FIELDS
    assert {name: parameters[name].default for name in FIELDS} == {
        name: getattr(CompactionRequest(), name) for name in FIELDS
    }
    described = inspect.getdoc(function) or ""
    assert "`CompactionRequest`" in described
    assert not [name for name in FIELDS if f"\n    {name}: " in described], "the request describes it"
    assert all(f"\n    {name}: " in (inspect.getdoc(CompactionRequest) or "") for name in FIELDS)


@pytest.mark.parametrize("command", [compact_command, plan_command])
def test_the_commands_have_its_fields_as_options(command: Callable[..., Any]) -> None:
    """But for growth, which is that of a daemon at the level `auto`, and 1.0 else."""
    hints = get_type_hints(command, include_extras=True)
    assert set(FIELDS) - hints.keys() == {"growth"}
    choices = {name: get_args(hints[name])[-1].metavar for name in ("level", "cluster_order")}
    assert choices == {"level": "|".join(LEVELS), "cluster_order": "|".join(CLUSTER_ORDERS)}


@pytest.mark.parametrize(("level", "growth"), [("minor", 1.0), ("auto", 2.0)])
def test_the_options_become_a_request(level: str, growth: float) -> None:
    given = request_of(level, None, None, None, purge=False)
    assert list(given) == FIELDS
    assert CompactionRequest(**given) == CompactionRequest(level, growth=growth)


def test_a_table_passes_all_arguments_on() -> None:
    table = memory_table()
    for number, part in enumerate("aabb"):
        put(table, number, part=part)
    assert not table.compact(growth=100.0).did_anything
    assert table.compact(budget=Budget(size_bytes=1)).groups_left == 1


@pytest.mark.parametrize("growth", [0.99, -1, float("nan"), float("inf"), 10**400, True, "2"])
def test_a_growth_that_means_nothing_is_refused(growth: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"growth is .*; give a number from 1 up to 1,000,000"):
        CompactionRequest(growth=growth)


def test_equal_requests_are_equal_however_the_columns_come() -> None:
    assert CompactionRequest("major", cluster_by=["a", "b"]) == CompactionRequest("major", cluster_by=("a", "b"))
    with pytest.raises(ConfigurationError, match=r"must be a list of column names, not a string; give a list: \['a'\]"):
        CompactionRequest("major", cluster_by="a")

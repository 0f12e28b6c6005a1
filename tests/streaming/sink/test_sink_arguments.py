"""What the constructor of a Sink refuses, before any batch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog.log.errors import ConfigurationError, PredicateError, StoreNotSupportedError, TidelogError
from tidelog.streaming import Sink

UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ["k"]}


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"name": ""}, ConfigurationError, "'' is not a valid sink name; use 1 to 100 letters"),
        ({"name": "a/b"}, ConfigurationError, "'a/b' is not a valid sink name"),
        ({"name": "x" * 101}, ConfigurationError, "use 1 to 100 letters, digits, dots, dashes and underscores"),
        ({"on_reset": "ignore"}, ConfigurationError, "on_reset='ignore' is not supported; use one of error, adopt"),
        ({"properties": {"delta.nonsense": 1}}, ConfigurationError, "unknown table property 'delta.nonsense'; use one"),
        ({"properties": {"tidelog.minorSpan": "soon"}}, ConfigurationError, "it must be a duration such as '1 day'"),
        ({"path": "ftp://bucket/t"}, StoreNotSupportedError, "use a local path, file://, memory://, s3://"),
        (
            {"path": "hdfs://host/t"},
            StoreNotSupportedError,
            "commits need one that creates a file only if it is absent",
        ),
    ],
)
def test_a_sink_with_an_invalid_name_property_or_path_is_refused(
    arguments: dict[str, Any], kind: type[TidelogError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        Sink(**{"path": "/data/t", **arguments})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "merge"}, "mode='merge' is not supported; use one of append, upsert, overwrite-partitions"),
        ({"mode": "upserts"}, "mode='upserts' is not supported; did you mean 'upsert'? use one of"),
        ({"key": ["k"]}, "a Sink has no argument 'key'; did you mean 'keys'? the arguments are path, name, mode"),
        ({"writer": "jvm"}, "writer='jvm' is not supported; use one of auto, driver, spark"),
        ({"keys": ["k"]}, "keys needs mode='upsert', but the mode is 'append'"),
        ({"order_by": "k"}, "order_by needs mode='upsert'"),
        ({"other_keys": True}, "other_keys needs mode='upsert'"),
        ({"mode": "upsert", "other_keys": True}, "no keys are given"),
        ({"mode": "upsert", "append_complete": True}, "append_complete needs mode='append', but the mode is 'upsert'"),
        (
            {"mode": "upsert", "keys": ["amount"], "properties": {"tidelog.primaryKey": "id, day"}},
            "keys=['amount'] are not the table's primary key, ['id', 'day'] (tidelog.primaryKey)",
        ),
        (
            {"mode": "upsert", "keys": ["amount"], "properties": {"tidelog.primaryKey": "id"}},
            "leave keys out, or pass other_keys=True",
        ),
        ({"mode": "overwrite-partitions", "delete_where": "k = 1"}, "delete_where needs mode='upsert'"),
        ({"mode": "upsert", "keys": "k"}, "keys must be a list of column names, not a string; pass ['k']"),
        ({"mode": "upsert", "keys": ["k", "k"]}, "keys=['k', 'k'] has an empty or repeated name; name each column"),
        ({"partition_by": "day"}, "partition_by must be a list of column names, not a string; pass ['day']"),
        ({"adopt_txn": ""}, "adopt_txn is empty; pass the application id"),
        ({"path": "memory://modes", "writer": "spark"}, "is in this process's memory"),
        ({"throttle": 5}, "throttle must be a Throttle, not int; pass Throttle(max_debt_files=..., max_delay_s=...)"),
    ],
)
def test_arguments_that_contradict_each_other_or_are_unknown_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Sink(**{"path": "/data/t", **arguments})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense(", "cannot be parsed near '(' (line 1, column 9)"),
        ("", "the predicate cannot be parsed"),
        ("op = 'd' AND", "the predicate cannot be parsed"),
        ("initcap(op) = 'D'", "the function 'initcap' is not supported in a predicate"),
        (["op"], "a predicate must be SQL text, not list"),
    ],
)
def test_a_delete_where_that_is_not_a_predicate_is_refused(text: Any, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        Sink("/data/t", delete_where=text, **UPSERT)
    assert message in str(caught.value)


def test_the_columns_of_delete_where_are_not_checked_without_a_batch() -> None:
    assert Sink("/data/t", delete_where="op = 'd' AND at.hour > 3", **UPSERT).last is None


# --- without Java ----------------------------------------------------------------------------------------------------

WITHOUT_JAVA = """
from pyspark.sql import SparkSession
from tidelog.log.errors import TidelogError
from tidelog.streaming import Sink, register

for use in (lambda: Sink("/data/t"), lambda: register(SparkSession.builder)):
    try:
        use()
        print("ok")
    except TidelogError as error:
        print(error)
"""


def without_java(tmp_path: Path, **environment: str) -> list[str]:
    """What a program prints that finds no Java; `apt-get` is the only program on its PATH."""
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    known = {name: text for name, text in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_GATEWAY_PORT"}}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA],
        env={**known, "PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_without_java_a_sink_and_register_say_how_to_install_it(tmp_path: Path) -> None:
    lines = without_java(tmp_path)
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("TIDELOG_PREREQUISITE: ")
        assert "sudo apt-get install -y openjdk-17-jre-headless" in line


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"])
def test_java_is_not_required_if_another_process_runs_the_jvm(tmp_path: Path, name: str) -> None:
    """The JVM of spark-submit started this process; that of Spark Connect is remote."""
    created, registered = without_java(tmp_path, **{name: "1"})
    assert created == "ok"
    assert registered.startswith("TIDELOG_CONFIGURATION: ")


def test_a_sink_shows_its_arguments_without_credentials() -> None:
    assert repr(Sink("/data/t")) == "Sink('/data/t')"
    upsert = Sink("/data/t", **UPSERT, order_by="at", storage_options={"key": "secret"}, writer="spark", name="a")
    assert repr(upsert) == "Sink('/data/t', name='a', mode='upsert', keys=['k'], order_by=['at'], writer='spark')"
    assert repr(pickle.loads(pickle.dumps(upsert))) == repr(upsert)
    assert "secret" not in repr(Sink("/data/t", properties={"my.page": "https://me:secret@host"}))

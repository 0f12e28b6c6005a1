"""The options of a stream's sink: what each one stands for, and errors that name the wrong one."""

from __future__ import annotations

import inspect

import pytest

from tidelog.log.errors import ConfigurationError
from tidelog.streaming import Sink
from tidelog.streaming.datasource.sink_options import _ARGUMENTS, parse_sink
from tidelog.streaming.datasource.stream_sinks import with_name_of_flow

PATH = {"path": "/data/t"}


def test_defaults() -> None:
    parsed = parse_sink(PATH | {"checkpointLocation": "/data/cp", "queryName": "q"})
    assert (parsed.path, parsed.arguments, parsed.checkpoint) == ("/data/t", {}, "/data/cp")
    assert parsed.dead_letters is None
    assert parsed.throttle is None


def test_all_options() -> None:
    parsed = parse_sink(
        PATH
        | {
            "mode": " Upsert ",
            "sinkName": "orders",
            "KEYS": "id, day",
            "otherKeys": "true",
            "orderBy": '["at", "a,b"]',
            "deleteWhere": "op = 'd'",
            "columns": "partial",
            "adoptTxn": "app",
            "partitionBy": "day",
            "mergeSchema": "TRUE",
            "writer": "driver",
            "onReset": "adopt",
            "throttle": "200",
            "maxDelaySeconds": "2.5",
            "property.delta.enableChangeDataFeed": "true",
            "storageOption.Key": "secret",
            "deadLetters": "/data/dead",
            "deadLetters.sinkName": "dead",
            "deadletters.property.Team": "a",
            "deadLetters.storageOption.Key": "other",
        },
        output_mode="Update",
    )
    assert parsed.arguments == {
        "mode": "upsert",
        "name": "orders",
        "keys": ("id", "day"),
        "other_keys": True,
        "order_by": ("at", "a,b"),
        "delete_where": "op = 'd'",
        "columns": "partial",
        "adopt_txn": "app",
        "partition_by": ("day",),
        "schema_evolution": True,
        "writer": "driver",
        "on_reset": "adopt",
        "properties": {"delta.enableChangeDataFeed": "true"},
        "storage_options": {"Key": "secret"},
    }
    assert parsed.throttle == {"max_debt_files": 200, "max_delay_s": 2.5}
    assert parsed.dead_letters is not None
    assert parsed.dead_letters.path == "/data/dead"
    assert parsed.dead_letters.arguments == {
        "name": "dead",
        "properties": {"Team": "a"},
        "storage_options": {"Key": "other"},
    }
    assert "secret" not in repr(parsed)
    assert "other" not in repr(parsed)


def test_every_argument_of_a_sink_has_an_option() -> None:
    """But for those of Spark Connect's batch functions and of change capture."""
    known = {name for name, _ in _ARGUMENTS.values()}
    known |= {"path", "properties", "storage_options", "dead_letters", "throttle"}
    assert known == set(inspect.signature(Sink).parameters) - {"checkpoint", "captured"}


def test_an_empty_order_is_no_order() -> None:
    assert parse_sink(PATH | {"orderBy": " "}).arguments == {"order_by": ()}


def test_partition_columns_of_the_writer() -> None:
    assert parse_sink(PATH, partitions=["a,b"]).arguments == {"partition_by": ("a,b",)}
    with pytest.raises(ConfigurationError, match=r"'partitionBy' and \.partitionBy\(\.\.\.\) say the same"):
        parse_sink(PATH | {"partitionBy": "a"}, partitions=["a"])


UPSERT = PATH | {"mode": "upsert"}


@pytest.mark.parametrize(
    ("raw", "output_mode"),
    [
        (PATH, "Append"),
        (UPSERT, "Append"),
        (UPSERT, "Update"),
        (UPSERT, "Complete"),
        (PATH | {"mode": "overwrite-partitions"}, "Append"),
        (PATH | {"mode": "overwrite-partitions"}, "Complete"),
        (PATH | {"appendComplete": "true"}, "Complete"),
    ],
)
def test_output_modes(raw: dict[str, str], output_mode: str) -> None:
    assert parse_sink(raw, output_mode=output_mode).path == "/data/t"


@pytest.mark.parametrize(
    ("raw", "output_mode", "message"),
    [
        ({}, "Append", r"Spark did not pass a table path; use \.start\("),
        (
            PATH | {"sinknam": "a"},
            "Append",
            r"unknown option 'sinknam'; did you mean 'sinkName'\? use one of mode, sinkName",
        ),
        (PATH | {"name": "a"}, "Append", "a sink's name is the option 'sinkName'"),
        (PATH | {"order_by": "a"}, "Append", "use 'orderBy'"),
        (PATH | {"startingVersion": "1"}, "Append", "'startingVersion' is for reads only; leave it out"),
        (PATH | {"txnAppId": "a"}, "Append", "the sink records each batch itself; 'adoptTxn'"),
        (PATH | {"delta.appendOnly": "true"}, "Append", "is the option 'property.delta.appendOnly'"),
        (PATH | {"asyncProgressTrackingEnabled": "true"}, "Append", "could not be told from another one"),
        (PATH | {"mergeSchema": "true", "schemaEvolution": "true"}, "Append", "say the same; leave one of them out"),
        (PATH | {"mergeSchema": "yes"}, "Append", "'mergeSchema' cannot be 'yes'; give true or false"),
        (PATH | {"throttle": "many"}, "Append", "'throttle' cannot be 'many'; give a number"),
        (PATH | {"maxDelaySeconds": "5"}, "Append", "'maxDelaySeconds' needs 'throttle'"),
        (PATH | {"deadLetters.sinkName": "a"}, "Append", "'deadLetters.sinkName' has no table; give its path"),
        (PATH | {"deadLetters": "/d", "deadLetters.path": "/e"}, "Append", "'deadLetters' itself is the path"),
        (PATH | {"deadLetters": "/d", "deadLetters.kes": "/e"}, "Append", "unknown option 'kes'; did you mean 'keys'"),
        (PATH, "Update", r"mode 'append' does not replace .*; use \.option\('mode', 'upsert'\)"),
        (PATH | {"mode": "overwrite-partitions"}, "Update", "mode 'overwrite-partitions' does not replace"),
        (PATH, "Complete", r"which would be appended each time; use \.option\('mode', 'upsert'\)"),
        (PATH | {"appendComplete": "false"}, "Complete", "would be appended each time"),
    ],
)
def test_an_error_names_the_wrong_option(raw: dict[str, str], output_mode: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_sink(raw, output_mode=output_mode)
    assert caught.value.advice


def test_an_error_does_not_show_storage_options() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_sink(PATH | {"storageOption.secret": "hunter2", "nonsense": "1"})
    assert "hunter2" not in str(caught.value)


# --- flows of a pipeline ----------------------------------------------------------------------------------------------


def name_of_flow(checkpoint: str, *, is_table: bool = True, **options: str) -> str:
    named = with_name_of_flow({**PATH, "checkpointLocation": checkpoint, **options}, is_table=is_table)
    return str(parse_sink(named).arguments["name"])


def test_each_flow_and_each_full_refresh_has_a_name_of_its_own() -> None:
    root = "file:///storage/_checkpoints/tidelog/db/t"
    assert name_of_flow(f"{root}/first/0") == "first.0"
    assert name_of_flow(f"{root}/first/1/") == "first.1"
    assert name_of_flow(f"{root}/first/1", is_table=False) == "first"
    assert name_of_flow(f"{root}/first/0", sinkName="own") == "own"


def test_a_flow_can_have_any_name() -> None:
    names = ["é", "a b", "a\tb", "a_b", "x" * 200, "x" * 201, "\N{SNOWMAN}" * 200]
    found = [Sink("/data/t", name=name_of_flow(f"/s/{name}/10")).settings.name for name in names]
    assert len(set(found)) == len(names)
    assert found[3] == "a_b.10"


def test_a_flow_without_a_checkpoint_keeps_its_options() -> None:
    assert with_name_of_flow(PATH, is_table=True) == PATH

"""`tidelog adopt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import Result

from tests.cli.support import run
from tests.log.support import put_foreign
from tidelog.log import Table, Transaction
from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format.actions import Protocol, SetTransaction
from tidelog.log.operations import convert

ROWS = pa.table({"n": [1, 2, 3]})
OLD = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
UPGRADES = ["delta.enableInCommitTimestamps", "delta.enableDeletionVectors"]


def found(result: Result, code: int = 0) -> dict[str, Any]:
    assert (result.exit_code, result.stderr) == (code, "")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def footprint(path: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A table of delta-rs with two small files and a stream."""
    path = tmp_path / "foreign"
    for _ in range(2):
        write_deltalake(path, ROWS, mode="append", configuration={"delta.setTransactionRetentionDuration": "9 days"})
    put_foreign(Table.open(str(path)), SetTransaction(app_id="their stream", version=41))
    return path


def test_nothing_is_changed_without_apply(foreign: Path) -> None:
    before = footprint(foreign)
    shown = found(run("adopt", foreign, "--json"))
    assert footprint(foreign) == before
    assert (shown["kind"], shown["version"], shown["applied"]) == ("table", 2, False)
    assert {entry["key"]: entry["why_not"] for entry in shown["properties"]} == {
        **dict.fromkeys(UPGRADES, "needs --allow-protocol-upgrade"),
        "delta.setTransactionRetentionDuration": None,
        "delta.enableExpiredLogCleanup": None,
        "tidelog.cleanUp": None,
    }
    assert shown["streams"] == [
        {"app_id": "their stream", "batch": 41, "continue_with": f"Sink({str(foreign)!r}, adopt_txn='their stream')"}
    ]
    engine = next(entry for entry in shown["writers"] if entry["engine"].startswith("delta-rs"))
    assert engine["locked_out_by"] == UPGRADES[:1]
    assert shown["debt"]["small_files"] == 2
    assert shown["first"] == "rewrite 2 files of 2, the first of 1 group"


def test_apply_sets_all_in_one_commit_and_then_there_is_nothing_to_do(foreign: Path) -> None:
    before = Table.open(str(foreign))
    shown = found(run("adopt", foreign, "--apply", "--json"))
    table = Table.open(str(foreign))
    assert (shown["applied"], shown["version"]) == (True, table.version)
    assert table.version == before.version + 1
    assert table.head.protocol == before.head.protocol
    assert dict(table.properties) == {"delta.enableExpiredLogCleanup": "false", "tidelog.cleanUp": "true"}
    again = found(run("adopt", foreign, "--apply", "--json"), 4)
    assert (again["applied"], again["version"]) == (False, table.version)
    shown = found(run("adopt", foreign, "--apply", "--allow-protocol-upgrade", "--json"))
    table.refresh()
    assert table.properties["delta.enableInCommitTimestamps"] == "true"
    assert (table.head.protocol.min_reader_version, table.head.protocol.min_writer_version) == (3, 7)
    table.delete("n = 2")
    assert table.scan().to_arrow().num_rows == 4
    assert found(run("adopt", foreign, "--json"), 4)["properties"] == []


@pytest.mark.parametrize("moment", ["after the look", "before the commit"])
def test_what_another_writer_sets_meanwhile_stays(foreign: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"tidelog.cleanUp": False, "delta.enableExpiredLogCleanup": True}
    where, name = {"after the look": (Table, "begin"), "before the commit": (Transaction, "set_properties")}[moment]
    real = getattr(where, name)

    def racing(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(where, name, real)
        result = None if moment == "after the look" else real(*args, **options)
        Table.open(str(foreign)).set_properties(theirs)
        return result or real(*args, **options)

    monkeypatch.setattr(where, name, racing)
    before = dict(Table.open(str(foreign)).properties)
    result = run("adopt", foreign, "--apply", "--json")
    assert (result.exit_code, result.stdout) == (3, "")
    if moment == "after the look":
        assert "changed what decides about delta.enableExpiredLogCleanup, tidelog.cleanUp of" in result.stderr
        assert "nothing was set" in result.stderr
    after = dict(Table.open(str(foreign)).properties)
    assert after == {**before, "tidelog.cleanUp": "false", "delta.enableExpiredLogCleanup": "true"}


@pytest.mark.parametrize("moment", ["after the look", "before the commit"])
def test_rows_that_another_writer_adds_meanwhile_do_no_harm(
    foreign: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name = {"after the look": (Table, "begin"), "before the commit": (Transaction, "set_properties")}[moment]
    real = getattr(where, name)

    def racing(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(where, name, real)
        write_deltalake(foreign, ROWS, mode="append")
        return real(*args, **options)

    monkeypatch.setattr(where, name, racing)
    shown = found(run("adopt", foreign, "--apply", "--json"))
    assert (shown["applied"], shown["version"]) == (True, 4)
    assert Table.open(str(foreign)).properties["tidelog.cleanUp"] == "true"


def test_a_property_can_be_skipped(foreign: Path) -> None:
    run("adopt", foreign, "--apply", "--skip", "tidelog.cleanUp")
    table = Table.open(str(foreign))
    assert "tidelog.cleanUp" not in table.properties
    assert "delta.setTransactionRetentionDuration" not in table.properties
    wrong = run("adopt", foreign, "--skip", "tidelog.nonsense")
    assert wrong.exit_code == 2
    assert "--skip names tidelog.nonsense" in wrong.stderr


def test_in_words(foreign: Path) -> None:
    text = " ".join(run("adopt", foreign).stdout.split())
    assert "left as it is, needs --allow-protocol-upgrade: delta.enableInCommitTimestamps = true (now not set)" in text
    assert "would set tidelog.cleanUp = true (now not set)" in text
    assert "would set delta.setTransactionRetentionDuration = nothing (now 9 days)" in text
    assert "their stream, batch 41: stop it, then Sink(" in text
    assert "could no longer write with delta.enableInCommitTimestamps" in text
    assert "2 of 2" in text


@pytest.mark.parametrize("reads", [True, False])
def test_a_table_that_tidelog_cannot_write_or_read_is_a_failure(foreign: Path, reads: bool) -> None:
    features = ("another",) if reads else ("catalogManaged",)
    protocol = Protocol(
        min_reader_version=1 if reads else 3,
        min_writer_version=7,
        reader_features=None if reads else features,
        writer_features=features,
    )
    put_foreign(Table.open(str(foreign)), protocol)
    before = footprint(foreign)
    shown = found(run("adopt", foreign, "--apply", "--json"), 1)
    assert [(entry["doing"], entry["what"]) for entry in shown["obstacles"]] == [
        ("write" if reads else "read", features[0])
    ]
    assert (shown["properties"], shown["applied"]) == ([], False)
    assert footprint(foreign) == before
    assert f"cannot {'write' if reads else 'read'}: {features[0]}" in run("adopt", foreign).stdout


def test_a_rule_for_which_new_rows_are_refused_is_in_the_way_of_these_only(tmp_path: Path) -> None:
    foreign, rows = tmp_path / "foreign", ROWS.rename_columns(["N"])
    write_deltalake(foreign, rows)
    DeltaTable(foreign).alter.add_constraint({"positive": '"N" > 0'})
    shown = found(run("adopt", foreign, "--apply", "--json"), 1)
    assert [(entry["doing"], entry["what"]) for entry in shown["obstacles"]] == [("insert", '"N" > 0')]
    assert shown["applied"]
    table = Table.open(str(foreign))
    assert table.properties["tidelog.cleanUp"] == "true"
    with pytest.raises(UnsupportedFeatureError):
        table.insert(rows)
    assert "cannot insert: \"N\" > 0: the constraint 'positive' of" in " ".join(run("adopt", foreign).stdout.split())
    DeltaTable(foreign).alter.drop_constraint("positive")
    assert found(run("adopt", foreign, "--json"), 4)["obstacles"] == []


def test_a_folder_of_parquet_files_becomes_a_table(tmp_path: Path) -> None:
    for month in ("07", "11"):
        folder = tmp_path / "day=2026-01-31" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(ROWS, folder / "f.parquet")
    options = ["--partition-by", "day, month int"]
    before = footprint(tmp_path)
    shown = found(run("adopt", tmp_path, *options, "--json"))
    assert footprint(tmp_path) == before
    assert (shown["kind"], shown["applied"], shown["version"], shown["files"], shown["rows"]) == (
        "folder",
        False,
        None,
        2,
        6,
    )
    assert shown["schema"][1:] == [
        {"name": "day", "type": "date32[day]", "nullable": True},
        {"name": "month", "type": "int32", "nullable": True},
    ]
    assert "would become a table (--apply)" in run("adopt", tmp_path, *options).stdout
    shown = found(run("adopt", tmp_path, *options, "--apply", "--json"))
    assert (shown["applied"], shown["version"]) == (True, 0)
    table = Table.open(str(tmp_path))
    assert table.scan("month = 7").to_arrow().num_rows == 3
    assert before.items() <= footprint(tmp_path).items()


def test_partition_columns_with_any_name_and_type_and_the_command_can_run_again(tmp_path: Path) -> None:
    folder = tmp_path / "my%20price=1.50" / "a%2C`b=x" / "day=1"
    folder.mkdir(parents=True)
    pq.write_table(ROWS, folder / "f.parquet")
    options = ["--partition-by", "`my price` decimal(5, 2),`a,``b`, day", "--apply", "--json"]
    shown = found(run("adopt", tmp_path, *options))
    assert shown["partition_by"] == ["my price", "a,`b", "day"]
    assert [field["type"] for field in shown["schema"]] == ["int64", "decimal128(5, 2)", "string", "int64"]
    before = footprint(tmp_path)
    again = found(run("adopt", tmp_path, *options), 4)
    assert (again["kind"], again["applied"], again["version"]) == ("table", False, 0)
    assert footprint(tmp_path) == before


def test_without_apply_a_folder_is_refused_for_all_for_which_it_would_be(tmp_path: Path) -> None:
    """The table would have no column in its files."""
    (tmp_path / "n=1").mkdir()
    pq.write_table(ROWS, tmp_path / "n=1" / "f.parquet")
    results = [run("adopt", tmp_path, "--partition-by", "n", *more) for more in ([], ["--apply"])]
    assert results[0].exit_code == 2
    assert "every column is a partition column" in results[0].stderr
    assert results[0].stderr == results[1].stderr


def test_a_partition_value_of_another_type_is_named_without_a_word_about_logs(tmp_path: Path) -> None:
    (tmp_path / "k=x").mkdir()
    pq.write_table(ROWS, tmp_path / "k=x" / "f.parquet")
    result = run("adopt", tmp_path, "--partition-by", "k int")
    assert result.exit_code == 2
    assert "partition value 'x' of 'k', in the path k=x/f.parquet, is not of the type int32; pass" in result.stderr
    assert "log" not in result.stderr.replace(str(tmp_path), "")


def test_a_partition_folder_of_a_table_is_no_folder_of_its_own(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "a": ["x", "y"], "b": [1, 1]})
    write_deltalake(tmp_path / "t", rows, partition_by=["a", "b"])
    pq.write_to_dataset(rows, tmp_path / "files", partition_cols=["a"])
    for folder in (tmp_path / "t" / "a=x", tmp_path / "t" / "a=x" / "b=1"):
        before = footprint(tmp_path)
        result = run("adopt", folder, "--partition-by", "b", "--apply")
        assert result.exit_code == 2
        assert f"{folder} is a partition folder of the table at {tmp_path / 't'}, whose" in result.stderr
        assert footprint(tmp_path) == before
    assert found(run("adopt", tmp_path / "files" / "a=x", "--apply", "--json"))["applied"]


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        result = run("adopt", path, "--apply")
        assert result.exit_code == 2
        assert "TIDELOG_TABLE_NOT_FOUND: there is no table at" in result.stderr


def test_what_is_said_of_a_converted_folder_is_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each footer is read once, and no file that comes after the look is missed in the report."""
    pq.write_table(ROWS, tmp_path / "a.parquet")
    real = convert.survey

    def racing(*args: Any) -> convert.Folder:
        pq.write_table(ROWS, tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
        return real(*args)

    monkeypatch.setattr(convert, "survey", racing)
    shown = found(run("adopt", tmp_path, "--apply", "--json"))
    table = Table.open(str(tmp_path))
    assert (shown["files"], shown["rows"]) == (2, 6) == (table.at().num_files, table.at().num_rows)
    assert shown["bytes"] == sum(table.at().files()["size"].to_pylist())


def test_it_says_where_new_files_go(tmp_path: Path) -> None:
    rows = ROWS.append_column("day", pa.array(["a", "b", "b"]))
    path = str(tmp_path / "theirs")
    write_deltalake(path, rows, partition_by=["day"])
    own = Table.create(str(tmp_path / "own"), rows.schema, partition_by=["day"], properties=OLD)
    own.insert(rows)
    assert found(run("adopt", own.path, "--json"), 4)["placement"]["in_folders"] is False
    assert "go into folders with random names: none of its files" in " ".join(run("adopt", own.path).stdout.split())
    write_deltalake(own.path, rows, mode="append")
    text = " ".join(run("adopt", own.path).stdout.split())
    assert "go into partition folders: its files are in such folders" in text
    assert f"2 of 4 files are outside of them, and Polars cannot read such a table: tidelog compact {own.path}" in text
    assert found(run("adopt", path, "--json"))["placement"] == {
        "in_folders": True,
        "reason": "its files are in such folders",
        "files": 2,
        "outside": 0,
    }


def test_the_folder_of_a_file_sink_says_how_to_go_on(tmp_path: Path) -> None:
    for name in ("a.parquet", "failed.parquet"):
        pq.write_table(ROWS, tmp_path / name)
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    entry = {"path": (tmp_path / "a.parquet").as_uri(), "size": (tmp_path / "a.parquet").stat().st_size}
    (log / "0").write_text(f"v1\n{json.dumps({**entry, 'action': 'add'})}")
    shown = found(run("adopt", tmp_path, "--json"))
    assert (shown["files"], shown["left_out"], shown["newest_batch"]) == (1, 1, 0)
    text = " ".join(run("adopt", tmp_path).stdout.split())
    assert "batch 0 is the newest; 1 file not committed" in text
    assert "adopt_txn='_spark_metadata'" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--partition-by", "p"], "leave partition_by out"),
        (["--partition-by", "day nonsense"], "--partition-by cannot be 'day nonsense'"),
    ],
)
def test_wrong_use(tmp_path: Path, options: list[str], words: str) -> None:
    pq.write_table(ROWS, tmp_path / "f.parquet")
    result = run("adopt", tmp_path, *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_partition_columns_are_for_folders(foreign: Path) -> None:
    result = run("adopt", foreign, "--partition-by", "n")
    assert result.exit_code == 2
    assert "is a table" in result.stderr


def test_a_table_of_tidelog_has_nothing_to_do(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "own"), ROWS.schema)
    shown = found(run("adopt", table.path, "--json"), 4)
    assert (shown["properties"], shown["first"]) == ([], None)

"""`tidelog conflicts`: the matrices, and the ledger of a table."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.log.support import NUMBERS, START_MS, add, numbers, put_commit
from tidelog import cli
from tidelog.log import Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import Lost, LostRace
from tidelog.log.conflict.policies import POLICIES
from tidelog.log.system import REAL_SYSTEM

MATRICES = Path(__file__).parent.parent / "log" / "conflict" / "matrices"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["conflicts", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def published(name: str) -> dict[tuple[str, str], str]:
    with (MATRICES / f"{name}.csv").open(newline="") as file:
        return {(row["earlier"], row["later"]): row["verdict"] for row in csv.DictReader(file)}


# --- the matrix ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["delta-table", "transactional-table"])
def test_the_matrix_is_printed_cell_for_cell(name: str) -> None:
    title, _, header, *rows, note = run("--policy", name).stdout.splitlines()
    assert title.startswith(f"{name} (MaxCompute")
    found = {
        (row.split()[0], later): verdict
        for row in rows
        for later, verdict in zip(header.split(), row.split()[1:], strict=True)
    }
    assert found == published(name)
    assert "tidelog.metadataRetry" in note
    as_json = lines(run("--policy", name, "--json"))
    assert {(cell["earlier"], cell["later"]): cell["verdict"] for cell in as_json} == published(name)
    assert {cell["policy"] for cell in as_json} == {name}


def test_the_default_policy_is_the_tables_default() -> None:
    assert run().stdout == run("--policy", "delta-table").stdout
    assert run("--json").stdout == run("--policy", "delta-table", "--json").stdout


@pytest.mark.parametrize("name", ["write-serializable", "serializable"])
def test_deltas_levels_name_their_errors(name: str) -> None:
    cells = {(cell["earlier"], cell["later"]): cell for cell in lines(run("--policy", name, "--json"))}
    assert len(cells) == 16
    inserted = cells["INSERT", "UPDATE_DELETE"]
    expected = ["ConcurrentAppendException"] if name == "serializable" else []
    assert (inserted["verdict"], inserted["errors"]) == ("fail" if expected else "ok", expected)
    assert "files" in run("--policy", name).stdout.splitlines()[1]


@pytest.mark.parametrize("arguments", [["--policy", "anarchy"], ["--policy", ""]])
def test_an_unknown_policy_is_one_line_that_names_the_others(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert all(name in result.stderr for name in POLICIES)


def test_a_table_and_a_policy_exclude_each_other(tmp_path: Path) -> None:
    result = run(tmp_path, "--policy", "serializable")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "leave one out" in result.stderr


# --- the ledger ------------------------------------------------------------------------------------------------------


def loss(number: int, later: str, earlier: str, **more: Any) -> LostRace:
    values: dict[str, Any] = {
        "base_version": 0,
        "winning_version": 1,
        "policy": "delta-table",
        "operation": "DELETE",
        "outcome": Lost.CONFLICT,
        "error": "ConflictError",
        "evidence": "it wrote a.parquet",
        "wasted_rows": 1000,
        "wasted_bytes": 2048,
        "wasted_seconds": 0.25,
        "loser": "host:17",
    }
    return LostRace(when_ms=START_MS + number, later=later, earlier=earlier, **{**values, **more})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), NUMBERS)
    made.insert(numbers([1]))
    stamp = int(made.at().timestamp.timestamp() * 1000) + 1
    info = {"inCommitTimestamp": stamp, "operation": "MERGE", "engineInfo": "Other/1 \x1b[31m"}
    put_commit(made.store, 2, add("x"), info=info)
    losses = [
        loss(0, "UPDATE_DELETE", "INSERT"),
        loss(1, "UPDATE_DELETE", "INSERT", winning_version=2),
        loss(2, "MINOR", "OVERWRITE", outcome=Lost.SUPERSEDED, error=None, policy=None, operation="OPTIMIZE"),
        loss(3, "INSERT", "INSERT", winning_version=99, evidence="two\nlines"),
    ]
    for each in losses:
        conflict_ledger.append(made.store, REAL_SYSTEM, each)
    return made


def test_the_ledger_says_who_lost_to_whom_and_why(table: Table) -> None:
    header, *rows, summary = run(table.path).stdout.splitlines()
    assert header.split() == "when lost to version winner outcome rows bytes seconds loser why".split()  # noqa: SIM905
    assert len(rows) == 4
    newest, compaction, merged, oldest = (re.split(r"  +", row) for row in rows)
    assert newest == [
        "2023-11-14T22:13:20.003000Z",
        "INSERT DELETE",
        "INSERT",
        "99",
        "conflict",
        "1,000",
        "2,048",
        "0.2",
        "host:17",
        r"ConflictError: two\nlines",
    ]
    assert compaction[1:3] == ["MINOR OPTIMIZE", "OVERWRITE"]
    assert compaction[-1] == "it wrote a.parquet"
    assert r"MERGE Other/1 \x1b[31m" in merged
    assert oldest[4].startswith("WRITE tidelog/")
    assert summary == (
        "4 losses: 2 UPDATE_DELETE to INSERT, 1 INSERT to INSERT, 1 MINOR to OVERWRITE; "
        "wasted 4,000 rows, 8,192 bytes, 1.0 s"
    )


def test_the_ledger_as_json_is_whole(table: Table) -> None:
    newest, compaction, merged, oldest = lines(run(table.path, "--json"))
    assert newest == {
        "timestamp": "2023-11-14T22:13:20.003000Z",
        "base_version": 0,
        "winning_version": 99,
        "policy": "delta-table",
        "earlier": "INSERT",
        "later": "INSERT",
        "operation": "DELETE",
        "outcome": "conflict",
        "error": "ConflictError",
        "evidence": "two\nlines",
        "wasted_rows": 1000,
        "wasted_bytes": 2048,
        "wasted_seconds": 0.25,
        "loser": "host:17",
        "winner_operation": None,
        "winner_engine": None,
    }
    assert (compaction["outcome"], compaction["error"], compaction["policy"]) == ("superseded", None, None)
    assert (merged["winner_operation"], merged["winner_engine"]) == ("MERGE", "Other/1 \x1b[31m")
    assert oldest["winner_operation"] == "WRITE"


def test_the_limit_counts_from_the_newest(table: Table) -> None:
    assert [each["winning_version"] for each in lines(run(table.path, "--json", "--limit", 3))] == [99, 1, 2]
    text = run(table.path, "--limit", 1).stdout.splitlines()
    assert (len(text), text[-1]) == (3, "1 loss: 1 INSERT to INSERT; wasted 1,000 rows, 2,048 bytes, 0.2 s")


def test_a_winner_whose_commit_is_damaged_is_left_open(table: Table) -> None:
    # The checksum of version 1 lets the table open all the same.
    Path(table.path, "_delta_log", f"{1:020d}.json").write_bytes(b"{")
    assert lines(run(table.path, "--json"))[-1]["winner_operation"] is None
    assert run(table.path).exit_code == 0


def test_a_table_without_losses_says_so(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), NUMBERS)
    assert run(made.path).stdout == "no conflict was noted\n"
    assert lines(run(made.path, "--json")) == []


def test_a_narrow_terminal_cuts_the_ledger(table: Table) -> None:
    program = str(Path(sys.executable).parent / "tidelog")
    code = "import os, pty, sys\nstatus = pty.spawn(sys.argv[1:])\nsys.exit(os.waitstatus_to_exitcode(status))\n"
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    found = subprocess.run(
        [sys.executable, "-c", code, program, "conflicts", table.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", found.stdout)
    rows = [line.rstrip("\r") for line in text.splitlines() if line.strip()]
    assert len(rows) == 6
    assert all(len(row) <= 100 for row in rows[:5])

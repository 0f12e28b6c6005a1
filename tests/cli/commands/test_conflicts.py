"""`tidelog conflicts`: the matrices, and the ledger of a table."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli import support
from tests.cli.support import lines, on_terminal
from tests.log.support import NUMBERS, START_MS, add, numbers, put_commit
from tidelog.log import Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import Lost, LostRace
from tidelog.log.conflict.policies import POLICIES
from tidelog.log.system import REAL_SYSTEM

MATRICES = Path(__file__).parent.parent.parent / "log" / "conflict" / "matrices"


def run(*arguments: object) -> Result:
    return support.run("conflicts", *arguments)


def published(name: str) -> dict[tuple[str, str], str]:
    with (MATRICES / f"{name}.csv").open(newline="") as file:
        return {(row["earlier"], row["later"]): row["verdict"] for row in csv.DictReader(file)}


# --- the matrix ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["delta-table", "transactional-table"])
def test_the_matrix_is_printed_cell_for_cell(name: str) -> None:
    title, _, header, *rows, note = run("--policy", name).stdout.splitlines()
    assert title.startswith(f"{name} (MaxCompute")
    assert "No table was looked at: `tidelog conflicts PATH` prints the conflicts of one" in title
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
def test_delta_lakes_isolation_levels_name_their_errors(name: str) -> None:
    cells = {(cell["earlier"], cell["later"]): cell for cell in lines(run("--policy", name, "--json"))}
    assert len(cells) == 16
    inserted = cells["INSERT", "UPDATE_DELETE"]
    expected = ["ConcurrentAppendException"] if name == "serializable" else []
    assert (inserted["verdict"], inserted["errors"]) == ("fail" if expected else "ok", expected)
    assert "files" in run("--policy", name).stdout.splitlines()[1]


@pytest.mark.parametrize("arguments", [["--policy", "anarchy"], ["--policy", ""]])
def test_an_unknown_policy_is_one_line_that_names_the_known_ones(arguments: list[str]) -> None:
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


def test_the_ledger_shows_who_lost_to_whom_and_why(table: Table) -> None:
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


def test_a_winner_whose_commit_is_damaged_is_not_described(table: Table) -> None:
    # The checksum of version 1 lets the table open all the same.
    Path(table.path, "_delta_log", f"{1:020d}.json").write_bytes(b"{")
    assert lines(run(table.path, "--json"))[-1]["winner_operation"] is None
    assert run(table.path).exit_code == 0


def test_a_table_without_losses_says_so(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), NUMBERS)
    assert run(made.path).stdout == "no conflicts are recorded\n"
    assert lines(run(made.path, "--json")) == []


def test_a_wide_terminal_shows_the_ledger_as_a_table(table: Table) -> None:
    shown = on_terminal("conflicts", table.path, columns=150)
    assert shown.lines[0].split()[:3] == ["when", "lost", "to"]
    assert sum(line.startswith("2023-") for line in shown.lines) == 4
    assert all(len(line) <= 150 for line in shown.lines[:-1])
    assert "…" not in shown.text
    assert "2023-11-14T22:13:20.003000Z" in shown.lines[1], "a time is never cut"


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_narrow_terminal_shows_the_ledger_one_field_per_line(table: Table, columns: int) -> None:
    shown = on_terminal("conflicts", table.path, columns=columns)
    *fields, summary = shown.text.split("4 losses: ")
    assert "2 UPDATE_DELETE to INSERT" in " ".join(summary.split())
    (block,) = fields
    rows = [line.rstrip() for line in block.splitlines() if line.strip()]
    assert all(len(row) <= columns for row in rows)
    assert "…" not in block
    assert [row.split()[0] for row in rows if row[0] != " "] == [
        "when",
        "lost",
        "to",
        "version",
        "winner",
        "outcome",
        "rows",
        "bytes",
        "seconds",
        "loser",
        "why",
    ] * 4


def test_a_narrow_terminal_shows_the_matrix_in_blocks() -> None:
    shown = on_terminal("conflicts", columns=40)
    found: dict[tuple[str, str], str] = {}
    earlier = ""
    for words in (line.split() for line in shown.lines):
        if len(words) == 1:
            (earlier,) = words
        elif words[-1] in {"ok", "fail"}:
            found[earlier, words[0]] = words[1]
    assert found == published("delta-table")

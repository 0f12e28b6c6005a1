from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import conflict, contenders, loops
from benchmarks.audit import audit, expected_values, newest_version, unnamed_bytes
from benchmarks.harness import REPOSITORY, TIDELOG, Goal, Report
from benchmarks.loops import Refused, Tally
from tidelog.log import Table, Transaction
from tidelog.log.errors import CommitContentionError

CASES = {
    "machine",
    "statements_per_second",
    "statements_attempted",
    "statements_succeeded",
    "statements_failed",
    "statement_median",
    "statement_99th",
    "batches_appended",
    "batches_failed",
    "batch_median",
    "longest_without_a_commit",
    "writers_longest_without_a_commit",
    "writers_commits_per_second",
    "writers_rows_lost_or_doubled",
    "compactions",
    "compactions_failed",
    "compactions_written",
    "compactions_thrown_away",
    "versions",
    "rows",
    "rows_lost_doubled_or_wrong",
    "rebase_delete_rules",
    "rebase_delete_rules_cpu",
    "rebase_delete_between_puts",
    "rebase_delete_commit",
    "rebase_append_rules",
    "rebase_append_rules_cpu",
    "rebase_append_between_puts",
    "rebase_append_commit",
}


@pytest.mark.full
def test_a_quick_run_prints_every_case_and_finds_no_wrong_row(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.conflict", "--quick"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines.keys() == CASES
    assert lines["statements_succeeded"][TIDELOG] >= 2
    assert lines["batches_appended"][TIDELOG] >= 1
    assert lines["rows_lost_doubled_or_wrong"][TIDELOG] == 0
    assert lines["writers_rows_lost_or_doubled"][TIDELOG] == 0
    assert lines["writers_commits_per_second"][TIDELOG] > 0
    assert lines["statements_failed"]["tidelog_errors"] == {}
    assert not list((tmp_path / ".cache" / "tidelog-benchmarks").iterdir())


def test_each_group_of_cases_is_a_method() -> None:
    public = {name for name in vars(conflict.ConflictBench) if not name.startswith("_")}
    assert public - {"run"} == set(conflict.CASES)


def test_loops_have_separate_keys_and_use_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SEED_ROWS", 100)
    monkeypatch.setattr(loops, "BATCH_ROWS", 10)
    taken = {role: list(loops.keys(role, lambda: 3)) for role in loops.PARITY}
    assert len(taken["delete"]) == len(set(taken["delete"])) == 55
    assert set(taken["delete"]) == {*range(0, 100, 2), *range(130, 140, 2)}
    assert set(taken["update"]) == {*range(1, 100, 2), *range(131, 140, 2)}


def test_a_loop_uses_keys_of_the_newest_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SEED_ROWS", 100)
    monkeypatch.setattr(loops, "BATCH_ROWS", 10)
    newest = iter([-1, -1, 0, 0, 0, 0, 4, 4])
    chosen = islice(loops.keys("delete", lambda: next(newest)), 6)
    assert [key for key in chosen if key >= 100] == [100, 102]


def test_a_loop_counts_errors_by_name() -> None:
    answers = iter([None, Refused("A"), None, Refused("B"), Refused("A")])
    tally = loops.statements(lambda _: next(answers), [7, 8, 9, 10, 11], 60)
    assert (tally.attempted, tally.done, tally.errors, tally.failed) == (5, [7, 9], {"A": 2, "B": 1}, 3)
    assert loops.statements(lambda _: None, [7], 0).attempted == 0


@pytest.fixture
def tallies(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tally]:
    """The initial keys are 0 to 3, batch 1 has 6 and 7. Key 0 was deleted, 3 and 7 were updated."""
    monkeypatch.setattr(loops, "SEED_ROWS", 4)
    monkeypatch.setattr(loops, "BATCH_ROWS", 2)
    return {"append": Tally(done=[1]), "delete": Tally(done=[0]), "update": Tally(done=[3, 7])}


def test_the_tallies_give_the_expected_rows(tallies: dict[str, Tally]) -> None:
    assert expected_values(tallies) == {1: 0, 2: 0, 3: 1, 6: 0, 7: 1}


@pytest.mark.parametrize(
    ("rows", "differences"),
    [
        ({}, (0, 0, 0)),
        ({"gone": 2}, (1, 0, 0)),
        ({"extra": (0, 0)}, (0, 1, 0)),
        ({"extra": (2, 0)}, (0, 1, 0)),
        ({"changed": (3, 2)}, (0, 0, 1)),
        ({"changed": (2, 1)}, (0, 0, 1)),
    ],
)
def test_the_audit_finds_lost_doubled_and_wrong_rows(
    tallies: dict[str, Tally], rows: dict[str, Any], differences: tuple[int, int, int]
) -> None:
    found = list(expected_values(tallies).items())
    found = [(key, value) for key, value in found if key != rows.get("gone")]
    found = [rows["changed"] if rows.get("changed", (None,))[0] == key else (key, value) for key, value in found]
    found += [rows["extra"]] if "extra" in rows else []
    table = pa.table({"k": [key for key, _ in found], "v": [value for _, value in found]})
    result = audit(table, tallies)
    assert (result.lost, result.too_many, result.wrong) == differences
    assert result.differences == sum(differences)
    assert result.rows == len(found)


def test_files_that_no_commit_names_are_found(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), pa.schema([("k", pa.int64())]))
    table.insert([{"k": 1}])
    table.delete("k = 1")
    assert (newest_version(tmp_path), unnamed_bytes(tmp_path)) == (2, 0)
    (tmp_path / "leftover.parquet").write_bytes(b"12345")
    assert unnamed_bytes(tmp_path) == 5


def test_bytes_of_a_failed_compaction_are_counted_as_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    table = Table.create(path, contenders.SCHEMA)
    for number in range(3):
        table.insert(contenders.rows(range(number, number + 1)))

    def lose(self: Transaction, *, metadata_retry: bool | None = None) -> None:
        del self, metadata_retry
        raise CommitContentionError("lost", advice="", path=path, attempts=1, head_version=3)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", lose)
        failed = contenders.Contender(path).run("compact", 0.01)
    assert failed.errors == {"CommitContentionError": 1}
    # Both compactions write the same rows to one file.
    succeeded = contenders.Contender(path).run("compact", 0.01)
    assert failed.counts == {"bytes_thrown_away": succeeded.counts["bytes_written"]}
    assert (succeeded.counts["commits"], succeeded.counts["bytes_thrown_away"], succeeded.failed) == (1, 0, 0)


def test_statements_that_start_again_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    Table.create(path, contenders.SCHEMA).insert(contenders.rows(range(4)))
    commit = Transaction.commit
    waiting = [True]

    def lose_once(self: Transaction, *, metadata_retry: bool | None = None) -> object:
        if waiting:
            waiting.pop()
            # Matching rows, so that the statement must start again.
            Table.open(path).insert(contenders.rows(range(0, 4, 2)))
        return commit(self, metadata_retry=metadata_retry)

    contender = contenders.Contender(path)
    assert contender._update(1) is None
    assert contender._counts.counts["run_again"] == 0
    monkeypatch.setattr(Transaction, "commit", lose_once)
    assert contender._update(2) is None
    assert contender._counts.counts["run_again"] == 1


def test_a_process_that_does_not_get_ready_is_an_error() -> None:
    with pytest.raises(subprocess.SubprocessError, match="is not ready"):
        conflict.race([["benchmarks.contenders", "nobody"]], 1)


def test_a_goal_can_be_a_lower_limit(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("test", peer="delta_spark")
    goal = Goal(10, at_least=True)
    report.figure("more", "1/s", {TIDELOG: 20.0, "delta_spark": 2.0, "deltalake": 1.0}, goal)
    report.figure("less", "1/s", {TIDELOG: 19.0, "delta_spark": 2.0}, goal)
    more, less = map(json.loads, capsys.readouterr().out.splitlines())
    assert (more["ratio"], more["met"], more["goal_is"]) == (10.0, True, ">=")
    assert less["met"] is False

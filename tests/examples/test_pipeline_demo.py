"""`make demo-pipeline`, run as a person runs it; and its files, which the guide shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from examples.pipeline.departures import Announcements
from examples.pipeline.folder import Folder
from examples.pipeline.run import run
from examples.shared.departures import Departures
from tests.examples.support import EXAMPLES, demo, verdicts
from tidelog.log import Table

PAGE = EXAMPLES.parent / "docs" / "guides" / "spark-connect.md"


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_each_run_leaves_what_was_announced(tmp_path: Path) -> None:
    printed = demo("pipeline", tmp_path / "data", patience_s=1500)  # it starts three servers and seven clients
    assert verdicts(printed) == ["ok"] * 20
    assert "server and pipeline killed after a commit to announcements" in printed
    assert "server and pipeline killed after a commit to flights" in printed


def test_the_guide_shows_the_pipeline() -> None:
    files = [path for path in (EXAMPLES / "pipeline" / "project").rglob("*") if path.suffix in {".yml", ".py", ".sql"}]
    assert len(files) == 3
    page = PAGE.read_text()
    for path in files:
        assert f"\n{path.read_text()}```\n" in page, path


@pytest.mark.full
def test_a_missing_or_wrong_row_is_noticed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    given = Announcements(folder, Departures(days=2))
    given.happen(0)
    given.plan(0)  # older than what is known
    given.plan(1)
    tables = {"announcements": given.rows, "flights": given.flights, "delays": given.delays}
    for name, rows in tables.items():
        Table.create(str(folder.table_of(name)), rows.schema).insert(rows)
    assert [check.holds for check in given.checks()] == [True] * 3
    assert {*pa.compute.unique(given.flights["status"]).to_pylist()} == {"departed", "scheduled"}
    for name, rows in tables.items():
        Table.open(str(folder.table_of(name))).insert(rows.slice(0, 1))
    assert [check.holds for check in given.checks()] == [False] * 3


def test_an_older_spark_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    assert run(["--data", str(tmp_path / "data")]) == 2
    assert "AutoCDC needs Spark 4.2 or later" in capsys.readouterr().out

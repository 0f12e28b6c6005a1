"""`make demo-update`, run as a person runs it; and its scenes with a stream that is only imitated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.shared.check import same_rows
from examples.shared.departures import Departures
from examples.update_beside_stream.flights import Flights
from examples.update_beside_stream.folder import Folder
from examples.update_beside_stream.full_speed import finish
from examples.update_beside_stream.run import run
from examples.update_beside_stream.scenes import play
from tests.examples.support import demo, verdicts
from tidelog.log import Table


@pytest.mark.spark
@pytest.mark.nightly
def test_all_writers_at_once_leave_what_they_would_one_after_the_other(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    printed = demo("update_beside_stream", folder.root, "--seconds", "2")
    assert verdicts(printed) == ["ok"] * 3
    assert "lost with TIDELOG_CONCURRENT_APPEND" in printed
    assert "superseded by version" in printed
    assert f"tidelog conflicts {folder.table}" in printed
    assert re.search(r"\d+ losses: .*1 MINOR to MINOR", printed)
    assert Table.open(str(folder.table)).scan("status = 'cancelled'").count() == 0


class ImitatedStream(Flights):
    """The table without Spark: an announced day is committed at once."""

    def announce_day(self) -> None:
        super().announce_day()
        Table.open(self.path).insert(self._day(self.days - 1))


@pytest.fixture
def flights(tmp_path: Path) -> ImitatedStream:
    found = ImitatedStream(Folder(tmp_path / "data"), Departures(days=9))
    for _ in range(2):
        found.announce_day()
    return found


def test_each_scene_ends_as_it_says(flights: Flights) -> None:
    said: list[str] = []
    play(flights, said.append)
    ends = [line.strip().split(";")[0] for line in said[1::2]]
    assert [end.split(" ")[0] for end in ends] == ["committed", "committed", "lost", "committed", "superseded"]
    assert ends[0] == "committed as version 5, rebased over 3, 4"
    assert "(0 left)" in said[1]
    assert "lost with TIDELOG_CONCURRENT_APPEND" in ends[2]
    assert all(line.startswith("  ") for line in said)


def test_the_expected_rows_are_those_of_the_table(flights: Flights) -> None:
    play(flights, lambda _: None)
    finish(flights)
    rows = flights.table.refresh().scan().to_arrow()
    assert flights.days == 7
    assert same_rows(rows, flights.expected().cast(rows.schema))
    flights.check_day(1)  # an update that did not happen
    assert not same_rows(rows, flights.expected().cast(rows.schema))


def test_cleaning_removes_what_a_demo_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "data")
    for path in (folder.table, folder.incoming, folder.checkpoints, folder.logs, folder.scratch):
        path.mkdir(parents=True)
    assert run(["--data", str(folder.root), "--clean"]) == 0
    assert not folder.root.exists()
    assert run(["--data", str(folder.root), "--clean"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_without_java_there_is_one_line_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(["--data", str(tmp_path / "data")]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("demo: TIDELOG_PREREQUISITE: ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "data").exists()

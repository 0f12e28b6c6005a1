"""`make demo-cdc`, run as a user runs it, with a real PostgreSQL, Debezium and Kafka; and its comparison."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from examples.cdc.compare import arrow_type, differing_rows
from examples.cdc.run import run
from tests.examples.support import demo, verdicts


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.server
@pytest.mark.crash
def test_the_tables_are_equal_after_kills(tmp_path: Path) -> None:
    printed = demo("cdc", tmp_path / "data", "--seconds", "30", "--kills", "5")
    assert verdicts(printed) == ["ok"] * 7, printed
    for part in ("database", "connector", "broker", "stream", "daemon"):
        assert f"the {part} is killed and restarted" in printed
    found = re.search(r"([\d,]+) transactions, \d+ of them interrupted by a kill, and (\d+) changes", printed)
    assert found, printed
    assert found[2] == "6"


def test_without_postgresql_the_demo_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("examples.cdc.postgres._DEBIAN", tmp_path / "none")
    monkeypatch.setattr("examples.shared.command.require_java", lambda: None)
    assert run(["--data", str(tmp_path / "data")]) == 2
    assert "apt-get install postgresql" in capsys.readouterr().out


def test_every_difference_is_told() -> None:
    wanted = pa.table({"id": [1, 2, 3], "x": [1.0, float("nan"), 0.0], "t": ["a", None, "c"]})
    assert list(differing_rows(wanted, wanted, ["id"])) == []
    held = pa.table({"id": [1, 1, 3, 4], "x": [1.0, 1.0, -0.0, 1.0], "t": ["a", "a", "C", "d"]})
    assert list(differing_rows(wanted, held, ["id"])) == [
        "the row 1 is there 2 times, not once",
        "the row 2 is there 0 times, not once",
        "the row 3 has x = -0.0, the database 0.0",
        "the row 3 has t = 'C', the database 'c'",
        "the row 4 is not in the database",
    ]


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("numeric(12,2)", pa.decimal128(12, 2)),
        ("timestamp(3) without time zone", pa.timestamp("us")),
        ("timestamp with time zone", pa.timestamp("us", tz="UTC")),
        ("text[]", pa.list_(pa.string())),
        ("character varying(200)", pa.string()),
        ("order_state", pa.string()),
    ],
)
def test_the_type_of_a_copy(kind: str, held: pa.DataType) -> None:
    assert arrow_type(kind) == held

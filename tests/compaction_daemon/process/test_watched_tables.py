"""The tables of a daemon, as its sources and its settings change."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.compaction_daemon.support import SCHEMA, PassingClock
from tidelog.compaction_daemon import Daemon, DaemonConfig, TableSource
from tidelog.compaction_daemon.process.watched_tables import WatchedTables
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import REAL_SYSTEM


def test_a_table_gets_a_new_handle_if_its_storage_options_change(tmp_path: Path) -> None:
    path, config = str(tmp_path / "t"), DaemonConfig()
    tables = WatchedTables([TableSource(path)], config, REAL_SYSTEM, keep_handles=True)
    (first,) = tables
    tables.follow([TableSource(path, storage_options={})], config)
    assert [*tables] == [first]
    tables.follow([TableSource(path, storage_options={"key": "new"})], config)
    assert [*tables] != [first]
    assert tables.storage_options(path) == {"key": "new"}


def test_a_watched_table_can_be_opened_by_its_path(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), SCHEMA)
    daemon = Daemon([f"{tmp_path}/*"])
    with pytest.raises(TableNotFoundError, match="is watched"):
        daemon.open_table(made.path)
    daemon.step()
    assert daemon.open_table(made.path).id == made.id


def test_what_a_search_says_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = PassingClock()
    tables = WatchedTables([f"{tmp_path}/*"], DaemonConfig(discovery_interval_s=60), clock, keep_handles=False)

    def events() -> list[str]:
        """Those of two searches."""
        caplog.clear()
        for _ in range(2):
            clock.pass_s(60)
            tables.search_if_due()
        return [record.tidelog["event"] for record in caplog.records]  # type: ignore[attr-defined]

    with caplog.at_level("INFO", "tidelog"):
        assert events() == ["source_empty"]
        with monkeypatch.context() as broken:
            broken.setattr(LocalStore, "folders", Mock(side_effect=OSError(5, "Input/output error")))
            assert events() == ["search_failed"]
            assert [error.source for error in tables.search_errors] == [f"{tmp_path}/*"]
        assert events() == ["search_recovered", "source_empty"]
        assert tables.search_errors == ()
        Table.create(str(tmp_path / "t"), SCHEMA)
        assert events() == ["found"]

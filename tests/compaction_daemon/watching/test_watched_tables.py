"""The tables of a daemon, as its sources and its settings change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA
from tidelog.compaction_daemon import Daemon, DaemonConfig, TableSource
from tidelog.compaction_daemon.watching.watched_tables import WatchedTables
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError
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

"""RESTORE: rows, schema and properties of an older version, by a new commit."""

from __future__ import annotations

import msgspec
import pytest

from tests.log.operations.changing_rows import KINDS, bag, filled, keys, rows
from tests.log.support import (
    live_files,
    memory_store,
    new_table,
    put_foreign,
    reopen,
)
from tidelog.log import OperationClass, Table
from tidelog.log.errors import (
    ConfigurationError,
    HistoryExpiredError,
    MetadataChangedException,
)
from tidelog.log.format import paths
from tidelog.log.state.loader import load


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_restore_by_version_and_by_time(table: Table) -> None:
    wanted = table.version
    expected = bag(table.scan().to_arrow())
    table.delete("k < 3")
    table.update("k > 10", {"v": "0"})
    table.overwrite(rows(range(40, 42)), where="part = 'a'")
    committed = table.restore(version=wanted)
    assert bag(table.scan().to_arrow()) == expected == bag(reopen(table).scan().to_arrow())
    assert committed.version == wanted + 4
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    assert table.restore(version=wanted).version == committed.version
    table.restore(timestamp=table.at(version=wanted + 1).timestamp)
    assert keys(table) == list(range(3, 13))


def test_restore_fails_if_files_were_vacuumed(table: Table) -> None:
    doomed = live_files(table)
    table.overwrite(rows(range(1)))
    for add in doomed[:1]:
        table.store.delete(paths.to_storage_path(add.path))
    with pytest.raises(HistoryExpiredError, match="no longer exists"):
        table.restore(version=table.version - 1)
    assert keys(table.refresh()) == [0]
    with pytest.raises(HistoryExpiredError):
        table.restore(version=99)
    with pytest.raises(ConfigurationError, match="exactly one"):
        table.restore()


def test_restore_keeps_transaction_ids(table: Table) -> None:
    table.insert(rows(range(50, 51)), idempotency_key=("app", 7))
    table.restore(version=0)
    assert keys(table) == []
    assert table.transactions == {"app": 7}


def test_a_concurrent_schema_change_is_a_conflict() -> None:
    table = new_table(memory_store())
    table.insert([{"n": 1}])
    restoring = table.begin().restore(version=0)
    old = load(table.store).head.metadata
    wider = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}},'
    wider += '{"name":"c","type":"long","nullable":true,"metadata":{}}]}'
    put_foreign(table, msgspec.structs.replace(old, schema_string=wider))
    with pytest.raises(MetadataChangedException):
        restoring.commit()

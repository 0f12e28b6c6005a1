"""Tables whose protocol has features that tidelog lacks."""

from __future__ import annotations

import msgspec
import pytest

from tests.log.support import (
    add,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    read_numbers,
    reopen,
)
from tidelog.log import Table
from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, Protocol
from tidelog.log.state.loader import load


def test_a_refresh_fails_if_the_new_protocol_cannot_be_read() -> None:
    table = new_table(memory_store())
    put_foreign(
        table,
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=("later",), writer_features=("later",)),
    )
    with pytest.raises(UnsupportedFeatureError, match="later"):
        table.refresh()
    with pytest.raises(UnsupportedFeatureError, match="later"):
        reopen(table)


def test_a_table_with_an_unknown_writer_feature_is_read_only() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    protocol = load(table.store).head.protocol
    writers = (*(protocol.writer_features or ()), "somethingNew", "another")
    put_foreign(table, msgspec.structs.replace(protocol, writer_features=writers))
    assert read_numbers(table.refresh()) == [1]
    with pytest.raises(UnsupportedFeatureError, match="another, somethingNew"):
        table.insert(numbers([2]))


def test_a_table_with_an_unknown_writer_feature_gets_no_checkpoint() -> None:
    store = memory_store()
    features = ("domainMetadata", "somethingNew")
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":3}', removed=False)
    put_commit(store, 0, metadata(), protocol, mark)
    put_commit(store, 1, add("a"))
    with pytest.raises(UnsupportedFeatureError):
        Table(store, load(store)).checkpoint()
    assert not [status for status in store.list(filenames.LOG_FOLDER) if "checkpoint" in status.name]

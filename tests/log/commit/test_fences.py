"""Commits that carry the epoch of a lease: refused once the log has a higher one, wherever it appears."""

from __future__ import annotations

from functools import partial

import pytest

from tests.log.faults import Paused
from tests.log.support import live_files, memory_store, new_table, numbers, put_foreign, read_numbers, stage_compaction
from tidelog.log import Committed, Superseded, Table
from tidelog.log.errors import ConfigurationError, FencedError, LeaseLostError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

APP = "tidelog.daemon/0"


def epoch(number: int, app: str = APP) -> SetTransaction:
    return SetTransaction(app_id=app, version=number, last_updated=1)


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store())
    for number in range(3):
        table.insert(numbers([number]))
    return table


def data_files(store: Store) -> set[str]:
    return {path for path, _ in store.walk() if path.endswith(".parquet")}


def test_the_epoch_is_written_with_the_commit(table: Table) -> None:
    committed = stage_compaction(table, live_files(table)).fenced(epoch(4)).commit()
    assert isinstance(committed, Committed)
    assert table.refresh().transactions[APP] == 4


@pytest.mark.parametrize("known", [3, 4])
def test_its_own_and_lower_epochs_do_not_keep_it_out(table: Table, known: int) -> None:
    put_foreign(table, epoch(known))
    table.refresh()
    transaction = stage_compaction(table, live_files(table)).fenced(epoch(4))
    put_foreign(table, epoch(known))
    assert isinstance(transaction.commit(), Committed)
    assert table.refresh().transactions[APP] == 4


def test_a_higher_epoch_before_the_transaction_began(table: Table) -> None:
    """It was told to compact before it was replaced, and began after that."""
    before = data_files(table.store)
    put_foreign(table, epoch(5))
    table.refresh()
    transaction = stage_compaction(table, live_files(table)).fenced(epoch(4))
    assert data_files(table.store) > before
    with pytest.raises(LeaseLostError, match=r"version 4 of memory.* has epoch 5 of tidelog.daemon/0") as raised:
        transaction.commit()
    assert "stop this process" in str(raised.value)
    assert data_files(table.store) == before
    assert table.refresh().version == 4


def test_a_higher_epoch_while_it_was_at_work(table: Table) -> None:
    before = data_files(table.store)
    transaction = stage_compaction(table, live_files(table)).fenced(epoch(4))
    put_foreign(table, epoch(5))
    with pytest.raises(LeaseLostError, match=r"the winner began epoch 5 of tidelog.daemon/0") as raised:
        transaction.commit()
    assert "stop this process" in str(raised.value)
    assert raised.value.path == table.path
    assert data_files(table.store) == before
    assert table.refresh().version == 4


def test_a_higher_epoch_at_any_moment_of_the_commit(table: Table) -> None:
    """It sleeps before each call to the store. If the other one commits first, nothing of its own is ever committed."""
    refused = 0
    for before in range(40):
        copy = memory_store()
        copy._files.update(table.store._files)  # type: ignore[attr-defined]
        original = Table(copy, load(copy))
        files, version = data_files(copy), original.version
        store = Paused(copy, before=before, meanwhile=partial(put_foreign, original, epoch(5)))
        transaction = stage_compaction(Table(store, load(copy)), live_files(original)).fenced(epoch(4))
        try:
            outcome = transaction.commit()
        except LeaseLostError:
            refused += 1
            assert original.refresh().version == version + 1
            assert data_files(copy) == files
        else:
            assert isinstance(outcome, Committed)
            assert outcome.version == version + 1
        assert read_numbers(original.refresh()) == [0, 1, 2]
    assert 3 < refused < 40


def test_the_epoch_of_another_shard_or_application_does_not_matter(table: Table) -> None:
    transaction = stage_compaction(table, live_files(table)).fenced(epoch(4))
    put_foreign(table, epoch(5, "tidelog.daemon/1"), epoch(6, "daemon"))
    assert isinstance(transaction.commit(), Committed)


def test_a_compaction_with_nothing_left_writes_no_epoch(table: Table) -> None:
    transaction = stage_compaction(table, live_files(table)).fenced(epoch(4))
    table.overwrite(numbers([7]))
    assert isinstance(transaction.commit(), Superseded)
    assert APP not in table.refresh().transactions


def test_nothing_staged_stays_nothing(table: Table) -> None:
    transaction = table.begin().delete("n > 99").fenced(epoch(4))
    assert isinstance(transaction.commit(), Committed)
    assert table.refresh().version == 3
    transaction = table.begin().fenced(epoch(4))
    with pytest.raises(ConfigurationError, match="nothing is staged"):
        transaction.commit()
    assert isinstance(stage_compaction(table, live_files(table)).fenced(None).commit(), Committed)
    assert APP not in table.refresh().transactions


def test_an_epoch_can_be_a_commit_of_its_own(table: Table) -> None:
    append_only = new_table(memory_store(), properties={"delta.appendOnly": True})
    for each in (table, append_only):
        committed = each.begin().stage_fence(epoch(2), operation="HEARTBEAT").commit()
        assert isinstance(committed, Committed)
        assert each.refresh().transactions[APP] == 2
        assert each.history()[0].operation == "HEARTBEAT"
        assert each.time_version != committed.timestamp
        with pytest.raises(LeaseLostError):
            each.begin().stage_fence(epoch(1), operation="HEARTBEAT").commit()


def test_the_fence_of_another_application_is_a_plain_error(table: Table) -> None:
    put_foreign(table, epoch(5, "daemon"))
    with pytest.raises(FencedError) as raised:
        table.begin().stage_fence(epoch(4, "daemon"), operation="TEST").commit()
    assert not isinstance(raised.value, LeaseLostError)

"""A replica refuses every batch of changes that does not fit: one was missed, or came twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.replica import Change, Replica, ReplicaError, position_of, rows_of
from tests.soak.rows import Row

OLD, NEW, OTHER = (Row("a", number, 0, state, 0, "x") for number, state in ((1, "new"), (1, "seventh"), (2, "new")))
INSERT = Change(1, "insert", OLD)
UPDATE = [Change(2, "update_postimage", NEW), Change(2, "update_preimage", OLD)]


def replica(path: Path) -> Replica:
    found = Replica(path / "replica")
    assert found.apply(0, 1, [INSERT])
    return found


def test_changes_are_applied_with_the_position(tmp_path: Path) -> None:
    copy = replica(tmp_path)
    moved = OTHER._replace(part=1)
    changes = [*UPDATE, Change(3, "insert", moved), Change(2, "insert", OTHER), Change(3, "delete", OTHER)]
    assert copy.apply(1, 3, changes)
    assert sorted(rows_of(tmp_path / "replica")) == [NEW, moved]
    position = position_of(tmp_path / "replica")
    assert position is not None
    assert (position.batch, position.version, position.batches, position.changes) == (1, 3, 2, 6)


def test_a_batch_that_comes_again_is_skipped(tmp_path: Path) -> None:
    copy = replica(tmp_path)
    assert not copy.apply(0, 1, [INSERT])
    assert copy.position.replays == 1
    with pytest.raises(ReplicaError, match="came again with other changes"):
        copy.apply(0, 1, [])


@pytest.mark.parametrize(
    ("batch", "changes", "message"),
    [
        (2, [], "batch 2 came after batch 0"),
        (1, [INSERT], "1 is done"),
        (1, [Change(2, "insert", OLD)], "its key is there"),
        (1, [Change(2, "delete", NEW)], "it is not there"),
        (1, [Change(2, "delete", OTHER)], "it is not there"),
    ],
)
def test_what_does_not_fit_changes_nothing(batch: int, changes: list[Change], message: str, tmp_path: Path) -> None:
    copy = replica(tmp_path)
    with pytest.raises(ReplicaError, match=message):
        copy.apply(batch, 2, [*changes, Change(2, "insert", OTHER)])
    assert list(rows_of(tmp_path / "replica")) == [OLD]
    assert copy.position.batch == 0


def test_a_replica_that_is_not_there_has_no_position(tmp_path: Path) -> None:
    assert position_of(tmp_path / "replica") is None

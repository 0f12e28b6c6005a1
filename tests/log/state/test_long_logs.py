"""Logs whose listing takes many requests: if that is enough, only what follows a checkpoint is listed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection

import pytest

from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TableNotFoundError, TidelogError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load
from tidelog.log.state.segment import find_segment, list_segment
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore

NEWEST = 9


class Paged(MemoryStore):
    """A store whose listings have pages of four names. `asked` is where listings began."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []

    def names(self, folder: str) -> Collection[str]:
        self.asked.append("")
        return super().names(folder)

    def recent_names(self, folder: str, since: Callable[[], str]) -> tuple[Collection[str], str]:
        names = super().names(folder)
        start = since() if len(names) > 4 else ""
        self.asked.append(start)
        return [name for name in names if name >= start], start


@pytest.fixture
def store() -> Paged:
    """The store of a table with versions 0 to 9 and checkpoints of 3 and 6."""
    table = Table.create(f"memory://{uuid.uuid4()}", NUMBERS)
    for number in range(NEWEST):
        table.insert(numbers([number]))
        if number + 1 in (3, 6):
            table.checkpoint()
    return Paged(table.path)


def point(store: Store, text: str) -> None:
    store.replace(filenames.LAST_CHECKPOINT, text.encode())


def outcome(find: Callable[[], object]) -> object:
    try:
        return find()
    except TidelogError as error:
        return type(error), str(error)


def test_a_part_of_the_log_is_enough(store: Paged) -> None:
    assert load(store).head.version == NEWEST
    assert load(store, 7).head.version == 7
    assert store.asked == [filenames.start_of(6)] * 2
    assert read_numbers(Table(store, load(store))) == list(range(NEWEST))
    whole = list_segment(store)
    assert (found := find_segment(store)).checkpoint == whole.checkpoint
    assert (found.version, found.checksum_versions) == (whole.version, whole.checksum_versions)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": -1}',
        '{"version": 0}',
        '{"version": "6"}',
        '{"version": 5}',
        '{"version": 8}',
        '{"version": 10}',
        '{"version": 9223372036854775807}',
        f'{{"version": {10**30}}}',
    ],
)
def test_a_pointer_to_no_checkpoint_does_no_harm(store: Paged, text: str) -> None:
    point(store, text)
    assert find_segment(store) == list_segment(store)
    store.delete(filenames.LAST_CHECKPOINT)
    assert find_segment(store) == list_segment(store)


def test_an_old_pointer_still_finds_the_newest_checkpoint(store: Paged) -> None:
    point(store, '{"version": 3}')
    assert find_segment(store).checkpoint == list_segment(store).checkpoint
    assert store.asked[0] == filenames.start_of(3)


@pytest.mark.parametrize("missing", [None, *range(NEWEST + 1)])
def test_each_version_is_found_or_refused_as_with_all_of_the_log(store: Paged, missing: int | None) -> None:
    if missing is not None:
        store.delete(filenames.commit_path(missing))
    for version in (None, *range(-1, NEWEST + 2)):
        whole, part = outcome(lambda: list_segment(store, version)), outcome(lambda: find_segment(store, version))  # noqa: B023 - called at once
        if isinstance(whole, tuple):
            assert part == whole
            assert whole[0] in (CorruptLogError, HistoryExpiredError)
        else:
            assert load(store, version).head == load(MemoryStore(store.url), version).head


def test_a_checkpoint_that_is_damaged_or_vanishes_is_left_for_an_older_one(store: Paged) -> None:
    path = next(
        f"{filenames.LOG_FOLDER}/{name}" for name in store.names("_delta_log") if name.startswith(f"{6:020}.check")
    )
    for version in range(NEWEST + 1):
        store.delete(filenames.checksum_path(version))
    store.replace(path, b"nonsense")
    assert read_numbers(Table(store, load(store))) == list(range(NEWEST))
    store.delete(path)
    assert read_numbers(Table(store, load(store))) == list(range(NEWEST))


def test_a_folder_without_a_log_has_no_table(store: Paged) -> None:
    for name in store.names("_delta_log"):
        if filenames.parse_log_file(name):
            store.delete(f"_delta_log/{name}")
    for number in range(5):
        store.replace(f"_delta_log/.{number}", b"")
    with pytest.raises(TableNotFoundError):
        load(store)

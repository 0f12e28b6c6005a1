"""Rows of numbered files, beside writers that sleep.

The stores that fail are in `tests/log/consumers/test_record_files.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from tests.log.faults import Around
from tests.log.support import Clock, memory_store
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.numbered_files import KEPT, LatestRecord, NumberedFiles, before_others
from tidelog.log.storage import Store

ROW: NumberedFiles[bytes] = NumberedFiles("_tidelog/row", "a test", lambda record: record, lambda content: content)
CLOCK = Clock()


@pytest.fixture
def store() -> Store:
    return memory_store()


def put(store: Store, latest: LatestRecord[bytes], text: str) -> LatestRecord[bytes] | None:
    return ROW.put_after(store, CLOCK, latest, text.encode())


def filled(store: Store, count: int, name: str) -> list[LatestRecord[bytes]]:
    """Put records until the newest number is `count`. Returns what each writer then knew."""
    known = [ROW.latest(store)]
    while known[-1].number < count:
        written = put(store, known[-1], f"{name} {known[-1].number + 1}")
        assert written
        known.append(written)
    return known


def numbers(store: Store) -> list[int]:
    return sorted(int(name[:20]) for name in store.names(ROW.folder))


def test_the_newest_counts_and_few_are_kept(store: Store) -> None:
    filled(store, 9, "a")
    assert numbers(store) == [6, 7, 8, 9]
    assert len(numbers(store)) == KEPT
    assert ROW.latest(store).record == b"a 9"
    assert ROW.highest_number(store) == 9


def test_one_of_two_writers_wins(store: Store) -> None:
    known = filled(store, 2, "a")[-1]
    assert put(store, known, "b") is not None
    assert put(store, known, "c") is None
    assert ROW.latest(store).record == b"b"


def test_a_number_that_was_deleted_is_not_taken_again(store: Store) -> None:
    known = filled(store, 2, "a")[-1]
    filled(store, 9, "b")
    assert put(store, known, "late") is None
    assert ROW.latest(store).record == b"b 9"


def test_two_sleepers_do_not_help_each_other(store: Store) -> None:
    """The first one's file has the number before the second one's, and is not the file that the second one knows."""
    *_, known, next_known = filled(store, 3, "a")
    filled(store, 12, "b")
    assert put(store, known, "late") is None
    assert put(store, next_known, "later") is None
    assert ROW.latest(store).record == b"b 12"


def test_a_number_that_was_deleted_is_not_taken_again_behind_another_tables(store: Store) -> None:
    """Nobody deletes the records of a table that was dropped, so the one before says nothing."""
    filled(store, 1, "dropped")
    after = replace(ROW, decode=lambda content: None if content.startswith(b"dropped") else content)
    known = after.latest(store)
    latest: LatestRecord[bytes] | None = known
    for number in range(2, 9):
        assert latest is not None
        latest = after.put_after(store, CLOCK, latest, b"a %d" % number)
    assert numbers(store) == [0, 1, 5, 6, 7, 8]
    assert after.put_after(store, CLOCK, known, b"late") is None
    assert after.latest(store).record == b"a 8"


class LatePut(Around):
    """Keeps the first put of a path that is not answered, until somebody carries it out."""

    def __init__(self, inner: Store, path: str) -> None:
        super().__init__(inner)
        self._path = path
        self.kept: bytes | None = None

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path == self._path and self.kept is None:
            self.kept = content
            raise StoreUnavailableError("no answer", advice="wait", path=path)
        super().put_if_absent(path, content, durable=durable)

    def carry_out(self) -> None:
        assert self.kept is not None
        self.inner.put_if_absent(self._path, self.kept)


def test_a_late_put_of_a_record_is_not_that_record(store: Store) -> None:
    """A writer that slept knows the record, which was deleted since, and finds what the put without an answer made."""
    late = LatePut(store, ROW.path_of(2))
    *_, known = filled(late, 2, "a")
    filled(store, 9, "b")
    late.carry_out()
    assert put(store, known, "slept") is None
    assert ROW.latest(store).record == b"b 9"


@pytest.mark.parametrize("seen", [0, 2])
def test_a_late_put_is_not_the_newest_record_for_who_slept_amid_its_look(store: Store, seen: int) -> None:
    """It has listed the folder, and looks for what came after that."""
    late = LatePut(store, ROW.path_of(seen))
    filled(late, seen, "a")
    filled(store, seen + 9, "b")
    late.carry_out()

    class Slept(Around):
        looks = 0

        def names(self, folder: str) -> Collection[str]:
            self.looks += 1
            return [f"{number:020d}.json" for number in range(seen)] if self.looks == 1 else super().names(folder)

        def read(self, path: str) -> bytes:
            return b"gone since" if path == ROW.path_of(seen - 1) else super().read(path)

    slept = Slept(store)
    assert ROW.latest(slept).number == seen + 9


def test_a_put_without_an_answer_that_was_carried_out_is_the_record(store: Store) -> None:
    late = LatePut(store, ROW.path_of(1))

    class Answered(Around):
        def read(self, path: str) -> bytes:
            if path == ROW.path_of(1):
                late.carry_out()
            return super().read(path)

    known = filled(store, 0, "a")[-1]
    written = ROW.put_after(Answered(late), CLOCK, known, b"mine")
    assert written is not None
    assert (written.record, written.content) == (b"mine", store.read(ROW.path_of(1)))
    assert put(store, written, "next")


def test_what_sleepers_left_is_deleted_by_the_next_one_who_looks(store: Store) -> None:
    known = filled(store, 2, "a")[-1]
    filled(store, 9, "b")
    put(store, known, "late")
    assert 3 in numbers(store)
    assert put(store, ROW.latest(store), "c")
    assert numbers(store) == [7, 8, 9, 10]


@pytest.mark.parametrize("seen", [0, 3, 9])
def test_an_old_listing_is_completed_by_probing(store: Store, seen: int) -> None:
    filled(store, seen, "a")
    shown = list(store.names(ROW.folder))
    filled(store, seen + 3, "b")

    class Old(Around):
        def names(self, folder: str) -> Collection[str]:
            return shown if folder == ROW.folder else super().names(folder)

    assert ROW.latest(Old(store)).record == f"b {seen + 3}".encode()


def test_a_record_is_tried_until_it_comes_first() -> None:
    answers = iter([None, None, "mine"])
    assert before_others(lambda: next(answers), "the row", memory_store(), advice="stop them") == "mine"


def test_a_record_that_never_comes_first_is_given_up() -> None:
    tried = []

    def lost() -> str | None:
        tried.append(1)
        return None

    with pytest.raises(StoreUnavailableError, match=r"others wrote the record of the row of .* 10 times.*; stop them"):
        before_others(lost, "the row", memory_store(), advice="stop them")
    assert len(tried) == 10

"""Which log files make up a version, and loading a version from a damaged or incomplete log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import PROTOCOL, add, classic, memory_store, metadata, new_table, numbers, put_commit
from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TableNotFoundError
from tidelog.log.format import filenames
from tidelog.log.state import checkpoint_writer, files
from tidelog.log.state.loader import load
from tidelog.log.state.segment import Segment, list_segment, pointed_version
from tidelog.log.storage import Store


def log(commits: Iterable[int], checkpoints: Iterable[int] = (), checksums: Iterable[int] = ()) -> Store:
    """A log of empty files: finding a segment needs only their names."""
    store = memory_store()
    names = [filenames.commit_path(version) for version in commits]
    names += [filenames.checkpoint_path(version) for version in checkpoints]
    names += [filenames.checksum_path(version) for version in checksums]
    for name in names:
        store.put_if_absent(name, b"")
    return store


def real_log(last: int, checkpoints: Sequence[int] = ()) -> Store:
    """A log whose version n has the files f1 to fn."""
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    for version in range(1, last + 1):
        put_commit(store, version, add(f"f{version}"))
    for version in checkpoints:
        state = load(store, version)
        checkpoint_writer.write_checkpoint(store, state.head, state.files())
    return store


def paths_at(store: Store, version: int | None = None) -> list[str]:
    return [file.path for file in files.to_adds(load(store, version).files().adds)]


def test_without_a_log_there_is_no_table() -> None:
    store = memory_store()
    store.put_if_absent("part-1.parquet", b"")
    store.put_if_absent("_delta_log/_last_checkpoint", b"{}")
    store.put_if_absent("_delta_log/00000000000000000000.crc", b"{}")
    with pytest.raises(TableNotFoundError) as raised:
        list_segment(store)
    assert raised.value.fields == {"path": store.url}


def test_without_a_checkpoint_all_commits_are_replayed() -> None:
    assert list_segment(log(range(4))) == Segment(3, None, (), 0)
    assert list(list_segment(log(range(4))).commit_versions) == [0, 1, 2, 3]


def test_the_base_is_the_newest_checkpoint_up_to_the_version() -> None:
    store = log(range(10), checkpoints=[2, 5, 8], checksums=[1, 4, 5, 6, 9])
    assert list_segment(store) == Segment(9, classic(8), (9,), 0)
    assert list_segment(store, 7) == Segment(7, classic(5), (5, 6), 0)
    assert list_segment(store, 5) == Segment(5, classic(5), (5,), 0)
    assert list_segment(store, 4) == Segment(4, classic(2), (4,), 0)
    assert list_segment(store, 1) == Segment(1, None, (1,), 0)
    assert list(list_segment(store, 5).commit_versions) == []
    assert list(list_segment(store, 7).commit_versions) == [6, 7]


def test_an_unreadable_checkpoint_is_skipped() -> None:
    store = log(range(10), checkpoints=[2, 5])
    assert list_segment(store, unreadable={classic(5)}).checkpoint == classic(2)
    assert list_segment(store, unreadable={classic(2), classic(5)}).checkpoint is None


@pytest.mark.parametrize("version", [None, 3, 5])
def test_a_missing_commit_is_named_in_the_error(version: int | None) -> None:
    store = log([0, 1, 3, 4, 5])
    with pytest.raises((CorruptLogError, HistoryExpiredError), match="2") as raised:
        list_segment(store, version)
    assert isinstance(raised.value, CorruptLogError)


def test_a_missing_commit_before_the_checkpoint_does_not_matter() -> None:
    store = log([0, 1, 3, 4, 5], checkpoints=[3])
    assert list_segment(store).checkpoint == classic(3)
    assert list_segment(store, 4).checkpoint == classic(3)


def test_a_missing_commit_after_the_checkpoint_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match="commit 5"):
        list_segment(log([3, 4, 6], checkpoints=[3]))


def test_the_error_after_a_cleanup_has_the_available_range() -> None:
    store = log(range(5, 9), checkpoints=[5])
    assert list_segment(store).earliest_version == 5
    for version in (0, 4, 9, -1):
        with pytest.raises(HistoryExpiredError, match="5 to 8") as raised:
            list_segment(store, version)
        assert raised.value.fields == {"path": store.url, "earliest_version": 5, "latest_version": 8}


def test_versions_before_the_first_remaining_checkpoint_are_gone() -> None:
    """A cleanup was interrupted: commits 3 and 4 exist, but no base to replay them on."""
    store = log(range(3, 9), checkpoints=[5, 7])
    assert list_segment(store).earliest_version == 5
    with pytest.raises(HistoryExpiredError):
        list_segment(store, 4)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000009.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000000.00000000000000000009.compacted.json",
        "00000000000000000009.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        ".00000000000000000009.json.crc",
        ".12345.tmp",
        "_commits",
    ],
)
def test_other_files_in_the_log_folder_are_ignored(name: str) -> None:
    store = log(range(3))
    store.put_if_absent(f"_delta_log/{name}", b"")
    assert list_segment(store) == Segment(2, None, (), 0)


@given(
    commits=st.sets(st.integers(0, 8)), checkpoints=st.sets(st.integers(0, 8), max_size=3), wanted=st.integers(-1, 9)
)
def test_a_segment_is_found_if_and_only_if_its_files_exist(
    commits: set[int], checkpoints: set[int], wanted: int
) -> None:
    # Every cleanup keeps the commit of a checkpoint together with the checkpoint.
    commits |= checkpoints
    store = log(commits, checkpoints)

    def can_rebuild(version: int) -> bool:
        bases = [base for base in (-1, *checkpoints) if base <= version]
        return version >= 0 and any(set(range(base + 1, version + 1)) <= commits for base in bases)

    try:
        segment = list_segment(store, wanted)
    except TableNotFoundError:
        assert not commits
        return
    except CorruptLogError:
        assert not can_rebuild(wanted)
        return
    except HistoryExpiredError as error:
        _check_range(error, wanted, max(commits), can_rebuild)
        return
    assert can_rebuild(wanted)
    assert segment.version == wanted
    assert set(segment.commit_versions) <= commits
    assert segment.checkpoint in (None, *map(classic, checkpoints))


def _check_range(error: HistoryExpiredError, wanted: int, newest: int, can_rebuild: Callable[[int], bool]) -> None:
    """Every version in the error's range can be rebuilt, unless none can."""
    assert error.latest_version == newest
    assert not error.earliest_version <= wanted <= newest
    assert not can_rebuild(newest) or all(map(can_rebuild, range(error.earliest_version, newest + 1)))


# --- loading a damaged log -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"x" * 1000])
@pytest.mark.parametrize("corrupt", [{6}, {3, 6}])
def test_a_corrupt_checkpoint_falls_back_to_an_older_one(damage: bytes, corrupt: set[int]) -> None:
    store = real_log(8, checkpoints=[3, 6])
    for version in corrupt:
        store.replace(filenames.checkpoint_path(version), damage)
    wanted: list[tuple[int | None, int]] = [(None, 8), (6, 6), (7, 7)]
    for at, last in wanted:
        state = load(store, at)
        assert state.head.version == last
        assert state.head.metadata == metadata()
        assert paths_at(store, at) == [f"f{number}" for number in range(1, last + 1)]


def test_a_truncated_checkpoint_falls_back_too() -> None:
    store = real_log(8, checkpoints=[3, 6])
    content = store.read(filenames.checkpoint_path(6))
    store.replace(filenames.checkpoint_path(6), content[: len(content) // 2] + content[-8:])
    assert paths_at(store) == [f"f{number}" for number in range(1, 9)]


def test_a_corrupt_checkpoint_without_a_fallback_is_an_error() -> None:
    store = real_log(8, checkpoints=[6])
    for version in range(6):
        store.delete(filenames.commit_path(version))
    store.replace(filenames.checkpoint_path(6), b"x")
    with pytest.raises(CorruptLogError):
        load(store)


def test_a_corrupt_commit_is_named_in_the_error() -> None:
    store = real_log(4)
    store.replace(filenames.commit_path(3), b'{"add":{"path":')
    with pytest.raises(CorruptLogError, match="commit 3"):
        load(store)
    assert load(store, 2).head.version == 2


@pytest.mark.parametrize("first", [[], [metadata()], [PROTOCOL]])
def test_a_log_without_protocol_or_metadata_is_corrupt(first: list[object]) -> None:
    store = memory_store()
    put_commit(store, 0, *first)  # type: ignore[arg-type]
    with pytest.raises(CorruptLogError, match=r"metadata|protocol"):
        load(store)


@pytest.mark.parametrize(
    "pointer",
    [None, b"", b"garbage", b'{"version":2,"size":3}', b'{"version":99,"size":1}', b'{"version":4,"parts":2}'],
)
def test_loading_does_not_depend_on_the_last_checkpoint_pointer(pointer: bytes | None) -> None:
    store = real_log(8, checkpoints=[2, 6])
    if pointer is None:
        store.delete(filenames.LAST_CHECKPOINT)
    else:
        store.replace(filenames.LAST_CHECKPOINT, pointer)
    assert paths_at(store) == [f"f{number}" for number in range(1, 9)]


@pytest.mark.parametrize(
    "pointer",
    [None, b"", b"garbage", b"[6]", b'{"version":"6"}', b'{"\xf8":6}', b'{"version":"\xf8"}', b"[" * 100_000],
)
def test_a_damaged_pointer_points_nowhere(pointer: bytes | None) -> None:
    """One that is not UTF-8 ended every look at the history with Python's own error."""
    store = real_log(8, checkpoints=[2, 6])
    assert pointed_version(store) == 6
    if pointer is None:
        store.delete(filenames.LAST_CHECKPOINT)
    else:
        store.replace(filenames.LAST_CHECKPOINT, pointer)
    assert pointed_version(store) is None


def test_the_remaining_versions_can_be_read_after_a_cleanup() -> None:
    store = real_log(8, checkpoints=[3, 6])
    for version in range(6):
        store.delete(filenames.commit_path(version))
    store.delete(filenames.checkpoint_path(3))
    assert paths_at(store) == [f"f{number}" for number in range(1, 9)]
    assert paths_at(store, 6) == [f"f{number}" for number in range(1, 7)]
    with pytest.raises(HistoryExpiredError, match="6 to 8"):
        load(store, 5)


def test_a_commit_that_disappears_during_loading_is_an_error() -> None:
    """With a checksum, loading the head reads no commits; they are read when the files are needed."""
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    state = load(table.store)
    table.store.delete(filenames.commit_path(2))
    with pytest.raises(CorruptLogError, match="commit 2"):
        state.files()

"""Finding tables: paths, globs and folders, on a disk, in memory and in an object store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.log.storage.faulty import behind_a_proxy
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, memory_url
from tidelog.compaction_daemon import TableSource
from tidelog.compaction_daemon.settings import sources
from tidelog.compaction_daemon.settings.sources import FoundTable, FoundTables, find_tables
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, StoreAccessError, StoreNotSupportedError
from tidelog.log.storage.local import LocalStore


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name / "_delta_log").mkdir(parents=True)


def found_in(folder: Path, *searched: TableSource, **options: Any) -> list[str]:
    """The paths below the folder of the tables that are found, without any error."""
    found = find_tables(searched, **options)
    assert found.errors == ()
    return [str(Path(table.path).relative_to(folder)) for table in found.tables]


# --- what is found ---------------------------------------------------------------------------------------------------


def test_a_path_is_kept_even_if_there_is_no_table_yet(tmp_path: Path) -> None:
    found = find_tables([TableSource(str(tmp_path / "later"))])
    assert found == FoundTables((FoundTable(str(tmp_path / "later"), None, str(tmp_path / "later")),))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["users"]),
        ("*/events", ["a/events", "b/events"]),
        ("a/*", ["a/clicks", "a/events"]),
        ("a/**", ["a/clicks", "a/deep/er/still", "a/events"]),
        ("**", ["a/clicks", "a/deep/er/still", "a/events", "b/events", "users"]),
        ("**/events", ["a/events", "b/events"]),
        ("**/_raw/*", ["a/_raw/t"]),
        ("[ab]/?vents", ["a/events", "b/events"]),
        ("*/missing", []),
    ],
)
def test_a_glob_finds_tables(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    make(tmp_path, "a/events", "a/clicks", "a/deep/er/still", "a/_raw/t", "b/events", "users", ".trash/events")
    (tmp_path / "b" / "no table").mkdir()
    (tmp_path / "file").write_text("")
    assert found_in(tmp_path, TableSource(f"{tmp_path}/{pattern}")) == expected


def test_a_folder_finds_all_tables_below_it_and_itself(tmp_path: Path) -> None:
    make(tmp_path, "lake/x/y", "lake/z", "other")
    assert found_in(tmp_path, TableSource(str(tmp_path / "lake"), folder=True)) == ["lake/x/y", "lake/z"]
    assert found_in(tmp_path, TableSource(str(tmp_path / "other"), folder=True)) == ["other"]


def test_a_search_does_not_look_into_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "t", "t/day=1/nested", "u")
    listed: list[str] = []
    honest = LocalStore.folders

    def folders(store: LocalStore, folder: str = "", *, until: str = "") -> Sequence[str]:
        listed.append(folder)
        return honest(store, folder, until=until)

    monkeypatch.setattr(LocalStore, "folders", folders)
    for pattern in ("**", "*/*/*"):
        listed.clear()
        assert found_in(tmp_path, TableSource(f"{tmp_path}/{pattern}")) == (["t", "u"] if pattern == "**" else [])
        assert sorted(listed) == ["", "t", "u"]


def test_include_and_exclude(tmp_path: Path) -> None:
    make(tmp_path, "sales/a", "sales/tmp/b", "hr/a", "hr/c", "tmp/d")
    lake = str(tmp_path)
    assert found_in(tmp_path, TableSource(lake, folder=True, exclude=("**/tmp",))) == ["hr/a", "hr/c", "sales/a"]
    assert found_in(tmp_path, TableSource(lake, folder=True, include=("*/a", "tmp/*"))) == ["hr/a", "sales/a", "tmp/d"]
    only = TableSource(f"{lake}/**", include=("sales/**",), exclude=("*/a",))
    assert found_in(tmp_path, only) == ["sales/tmp/b"]


def test_an_excluded_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a", "secret/x")
    honest = LocalStore.folders

    def folders(store: LocalStore, folder: str = "", *, until: str = "") -> Sequence[str]:
        assert "secret" not in folder
        return honest(store, folder, until=until)

    monkeypatch.setattr(LocalStore, "folders", folders)
    assert found_in(tmp_path, TableSource(str(tmp_path), folder=True, exclude=("secret",))) == ["a"]


def test_a_table_that_two_sources_have_is_one(tmp_path: Path) -> None:
    make(tmp_path, "t", "u")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    first = TableSource(f"{tmp_path}/x/../t", storage_options={"key": "first"})
    found = find_tables([first, TableSource(f"{tmp_path}/*"), TableSource(f"file://{tmp_path}/u/")])
    assert [table.path for table in found.tables] == [f"{tmp_path}/x/../t", f"{tmp_path}/u"]
    assert found.tables[0].storage_options == {"key": "first"}


def test_links_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    make(tmp_path, "a/t")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    assert found_in(tmp_path, TableSource(str(tmp_path), folder=True)) == ["a/t"]


@pytest.mark.parametrize("name", ["b/t", "*/t"])
def test_a_table_s_name_that_is_a_link_to_itself_harms_no_other(tmp_path: Path, name: str) -> None:
    make(tmp_path, "a/t")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "t").symlink_to("t")
    found = find_tables([TableSource(str(tmp_path / name)), TableSource(str(tmp_path / "a" / "t"))])
    assert str(tmp_path / "a" / "t") in [table.path for table in found.tables]


def test_relative_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a/t", "b/t")
    monkeypatch.chdir(tmp_path)
    assert found_in(tmp_path, TableSource("*/t")) == ["a/t", "b/t"]


def test_tables_appear_and_vanish(tmp_path: Path) -> None:
    source = TableSource(f"{tmp_path}/lake/*")
    first = find_tables([source])
    assert (first.tables, first.empty) == ((), (source.path,))
    Table.create(str(tmp_path / "lake" / "a"), NUMBERS)
    make(tmp_path, "lake/b")
    assert found_in(tmp_path, source, previous=first) == ["lake/a", "lake/b"]
    shutil.rmtree(tmp_path / "lake" / "a")
    second = find_tables([source], previous=first, known={f"{tmp_path}/lake/a", f"{tmp_path}/lake/b"})
    assert ([table.path for table in second.tables], second.empty) == ([f"{tmp_path}/lake/b"], ())


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_an_error_of_one_source_does_not_stop_the_others(tmp_path: Path) -> None:
    make(tmp_path, "t")
    found = find_tables([TableSource("ftp://host/lake/*"), TableSource(str(tmp_path / "t"))])
    assert [table.path for table in found.tables] == [f"{tmp_path}/t"]
    ((source, error),) = found.errors
    assert source == "ftp://host/lake/*"
    assert isinstance(error, StoreNotSupportedError)


def test_a_folder_that_cannot_be_read_keeps_the_tables_that_were_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/t", "b/t", "c/t")
    source = TableSource(str(tmp_path), folder=True)
    before = find_tables([source])
    honest = LocalStore._scan

    def scan(store: LocalStore, folder: str) -> Any:
        if folder == "b":
            raise StoreAccessError("cannot read b", path=store.url)
        return honest(store, folder)

    monkeypatch.setattr(LocalStore, "_scan", scan)
    shutil.rmtree(tmp_path / "c")
    now = find_tables([source], previous=before)
    assert [Path(table.path).parent.name for table in now.tables] == ["a", "b", "c"]
    assert [error.code for _, error in now.errors] == ["TIDELOG_STORE_ACCESS"]


def test_an_unexpected_error_of_the_system_becomes_one_of_tidelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "folders", lambda *_, **__: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    found = find_tables([TableSource(str(tmp_path), folder=True)])
    ((_, error),) = found.errors
    assert str(error) == (
        f"TIDELOG_STORE_UNAVAILABLE: cannot list {tmp_path}: Input/output error; check the folder and its permissions "
        f"[path={tmp_path}]"
    )


@pytest.mark.parametrize(
    ("name", "bound", "says", "tables"),
    [
        ("MAX_TABLES", 2, "has more than 2 tables", 2),
        ("MAX_FOLDERS", 3, "has more than 3 folders", 2),
        ("MAX_DEPTH", 1, "has folders more than 1 levels deep", 3),
    ],
)
def test_a_search_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int, says: str, tables: int
) -> None:
    make(tmp_path, "a", "b", "c", "d/e/f")
    monkeypatch.setattr(sources, name, bound)
    found = find_tables([TableSource(str(tmp_path), folder=True)])
    assert len(found.tables) == tables
    ((_, error),) = found.errors
    assert isinstance(error, ConfigurationError)
    assert says in str(error)
    assert "leave folders out with exclude" in str(error)


def test_the_errors_of_a_source_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
    honest = LocalStore.folders

    def folders(store: LocalStore, folder: str = "", *, until: str = "") -> Sequence[str]:
        if folder:
            raise OSError(5, "Input/output error")
        return honest(store, folder, until=until)

    monkeypatch.setattr(LocalStore, "folders", folders)
    assert len(find_tables([TableSource(str(tmp_path), folder=True)]).errors) == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"path": ""}, "has the path ''"),
        ({"path": "/data/t", "include": ("a",)}, "have no meaning for the single table /data/t"),
        ({"path": "/data/t", "exclude": ("a",)}, "have no meaning for the single table /data/t"),
        ({"path": "s3://*/lake"}, "stands where a bucket belongs"),
        ({"path": "s3://", "folder": True}, "stands where a bucket belongs"),
        ({"path": "s3://me:hunter22@bucket/lake/*"}, r"the path s3://\*\*\*@bucket/lake/\* contains credentials"),
    ],
)
def test_a_wrong_source_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        TableSource(**arguments)


def test_credentials_are_not_shown(tmp_path: Path) -> None:
    source = TableSource(str(tmp_path / "t"), storage_options={"secret": "hunter22"})
    found = find_tables([source])
    assert found.tables[0].storage_options == {"secret": "hunter22"}
    assert "hunter22" not in repr(source) + repr(found)


# --- other stores ----------------------------------------------------------------------------------------------------


def test_tables_in_memory() -> None:
    lake = memory_url()
    for name in ("a", "b/c"):
        Table.create(f"{lake}/{name}", NUMBERS)
    found = find_tables([TableSource(lake, folder=True)])
    assert [table.path for table in found.tables] == [f"{lake}/a", f"{lake}/b/c"]


def test_an_object_store_is_asked_once_for_each_folder(server_of: Callable[[str], Server]) -> None:
    with behind_a_proxy(server_of("moto")) as faulty:
        lake, options = faulty.store.url, faulty.options
        names = [f"events{number}" for number in range(5)]
        for name in (*names, "deep/er/t", "other"):
            faulty.store.put_if_absent(f"{name}/_delta_log/{0:020}.json", b"")
            faulty.store.put_if_absent(f"{name}/part=1/data/x.parquet", b"")
        faulty.store.put_if_absent("nothing/here/at/all", b"")

        def requests_of(path: str, expected: list[str], **more: Any) -> int:
            faulty.proxy.seen.clear()
            found = find_tables([TableSource(path, storage_options=options)], **more)
            assert [table.path for table in found.tables] == [f"{lake}/{name}" for name in expected]
            assert {request.split()[0] for request in faulty.proxy.seen} <= {"GET"}
            return len(faulty.proxy.seen)

        # The folder, and each folder in it.
        assert requests_of(f"{lake}/events*", names) == 1 + 5
        # What is known to be a table is not asked for again, but is noticed when it is gone.
        known = [f"{lake}/{name}" for name in names]
        assert requests_of(f"{lake}/events*", names, known=known) == 1
        assert requests_of(f"{lake}/events*", names, known=[*known, f"{lake}/events9"]) == 1
        # One for each folder above the tables, and one for each table; none below a table.
        assert requests_of(f"{lake}/**", ["deep/er/t", *names, "other"]) == 1 + 5 + 3 + 1 + 3
        assert requests_of(f"{lake}/*/er/t", ["deep/er/t"]) == 1 + 8
        assert requests_of(f"{lake}/later", ["later"]) == 0


def test_a_bucket_that_is_not_there_is_an_error(server_of: Callable[[str], Server]) -> None:
    moto = server_of("moto")
    found = find_tables([TableSource("s3://no-such-bucket/*", storage_options=moto.options)])
    assert found.tables == ()
    ((_, error),) = found.errors
    assert isinstance(error, StoreAccessError)

"""Which places are in which folders, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.storage.location import is_within


@pytest.mark.parametrize(
    ("place", "folder", "expected"),
    [
        ("s3://b/t/cp", "s3://b/t", True),
        ("s3a://b/t/cp/", "s3://b/t/", True),
        ("s3n://b/t", "s3n://b/t", True),
        ("s3a://b//t//cp", "s3://b/t", True),
        ("s3://b/t", "s3://b/t", True),
        ("s3://b/t", "s3://b", True),
        ("s3://b/table-cp", "s3://b/table", False),
        ("s3://b/t", "s3://b/t/cp", False),
        ("s3://c/t/cp", "s3://b/t", False),
        ("s3://b/t/cp", "gs://b/t", False),
        ("gs://b/t/cp", "gcs://b/t", True),
        ("abfss://c@account.dfs.core.windows.net/t/cp", "az://c/t", True),
        ("abfss://c@account.dfs.core.windows.net/t/cp", "abfs://c/other", False),
        ("hdfs://host:9000/t/cp", "s3://b/t", False),
        ("hdfs://host:9000/t/cp", "/t", False),
        ("s3://b/t", "/b/t", False),
        ("memory://t/cp", "/t", False),
        ("/t-cp", "/t", False),
        ("/t/../cp", "/t", False),
        ("/other/../t/./cp", "/t", True),
        ("file:/t/cp", "/t", True),
        ("file:///t/cp", "/t/", True),
        ("/t//cp", "file:/t", True),
        ("FILE:///t", "file://localhost/t", True),
        ("/t", "/", True),
    ],
)
def test_places(place: str, folder: str, expected: bool) -> None:
    assert is_within(place, folder) is expected


def test_links_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    (tmp_path / "out").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert is_within("link/cp", str(tmp_path / "table"))
    assert is_within(f"file:{tmp_path}/table/cp", "link")
    assert is_within("out/table/not/there", "table/")
    assert not is_within("out/other", "table")
    assert not is_within("link/../cp", "table")
    (tmp_path / "table" / "leads-out").symlink_to(tmp_path)
    assert not is_within("table/leads-out/cp", "table")


def test_a_folder_with_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that ignores case, or one that is mounted twice: the folder is the same one, by another name."""
    for name in ("table", "TABLE/cp"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(Path, "samefile", lambda one, other: str(one).lower() == str(other).lower())
    assert is_within(str(tmp_path / "TABLE" / "cp"), str(tmp_path / "table"))
    assert is_within(str(tmp_path / "TABLE" / "later"), str(tmp_path / "table"))
    assert not is_within(str(tmp_path / "others"), str(tmp_path / "table"))

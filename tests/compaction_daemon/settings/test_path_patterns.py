"""Patterns of paths."""

from __future__ import annotations

import pytest

from tidelog.compaction_daemon.settings.sources import is_pattern, names_match, split_pattern


@pytest.mark.parametrize(
    ("path", "folder", "names"),
    [
        ("/data/*/events", "/data", ("*", "events")),
        ("/data/lake/**", "/data/lake", ("**",)),
        ("/*", "/", ("*",)),
        ("*/events", ".", ("*", "events")),
        ("lake/ev[ae]nts", "lake", ("ev[ae]nts",)),
        ("~/lake/*", "~/lake", ("*",)),
        ("s3://bucket/lake/*/x/", "s3://bucket/lake", ("*", "x")),
        ("s3://bucket/*", "s3://bucket", ("*",)),
        ("s3://*/lake", "s3://", ("*", "lake")),
        ("file:///data/*", "file:///data", ("*",)),
        ("file:/data/*", "file:/data", ("*",)),
        ("/data//x?//y", "/data/", ("x?", "y")),
        ("/data/events", "/data/events", ()),
        ("/data/\x1b[31m/t", "/data/\x1b[31m/t", ()),
    ],
)
def test_a_pattern_has_a_folder_and_names(path: str, folder: str, names: tuple[str, ...]) -> None:
    assert split_pattern(path) == (folder, names)
    assert is_pattern(path) == bool(names)


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("", "", True),
        ("", "**", True),
        ("a", "**", True),
        ("a/b/c", "**", True),
        ("a/b/c", "**/c", True),
        ("c", "**/c", True),
        ("a/c/b", "**/c", False),
        ("a/b/c", "a/**/c", True),
        ("a/c", "a/**/c", True),
        ("a/x/y/c", "a/**/**/c", True),
        ("a/b", "*", False),
        ("a/b", "*/*", True),
        ("a", "*/*", False),
        ("events1", "events?", True),
        ("events", "events?", False),
        ("a", "[ab]", True),
        ("*", "[*]", True),
        ("x", "[*]", False),
        ("Events", "events", False),
        (".hidden", "*", False),
        ("_log", "?log", False),
        ("_log", "_*", True),
        ("a/_raw/t", "**", False),
        ("a/_raw/t", "**/_raw/*", True),
        ("a\nb", "a*", True),
    ],
)
def test_names_match_a_pattern(path: str, pattern: str, matches: bool) -> None:
    def parts(text: str) -> list[str]:
        return [part for part in text.split("/") if part]

    assert names_match(parts(path), parts(pattern)) is matches

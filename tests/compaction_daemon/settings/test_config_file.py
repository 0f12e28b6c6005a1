"""The configuration file of a daemon: what it means, what is refused and how, and what is different in a new one."""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import REFERENCE, names_in, rows_of
from tidelog.compaction_daemon import DaemonConfig, TableSource
from tidelog.compaction_daemon.settings.config import ListenAddress
from tidelog.compaction_daemon.settings.config_file import (
    MAX_FILE_BYTES,
    DaemonFile,
    keys_of_a_file,
    parse_config,
    read_config,
)
from tidelog.log.errors import ConfigurationError
from tidelog.log.log_records import LOG_FORMATS, LOG_LEVELS

PAGE = "daemon-configuration.md"


def parsed(text: str) -> DaemonFile:
    return parse_config(text, "/etc/tidelog.toml")


def refusal(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    return caught.value


# --- what a file means -----------------------------------------------------------------------------------------------


def test_an_empty_file_has_the_defaults() -> None:
    assert parsed("") == DaemonFile()
    assert parsed("").config == DaemonConfig()


def test_a_full_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in the reference."""
    monkeypatch.setenv("LAKE_KEY", "AKIA")
    monkeypatch.setenv("LAKE_SECRET", "hunter22")
    (example,) = re.findall(r"^```toml\n(.*?)^```", (REFERENCE / PAGE).read_text(), flags=re.DOTALL | re.MULTILINE)
    file = parsed(example)
    assert file.sources == (
        TableSource("/data/events"),
        TableSource("/data/lake", folder=True, include=("sales/**", "web/*"), exclude=("**/tmp",)),
        TableSource(
            "s3://bucket/lake/*",
            storage_options={
                "endpoint_url": "https://minio.example:9000",
                "key": "AKIA",
                "secret": "hunter22",
                "client_kwargs": {"region_name": "eu-central-1"},
            },
        ),
    )
    assert file.config == DaemonConfig(bytes_per_hour=100 * 2**30)
    assert (file.listen, file.log_format, file.log_level) == (ListenAddress("127.0.0.1", 8080), "json", "info")
    assert "hunter22" not in repr(file)


def test_the_reference_has_every_key_with_its_default() -> None:
    headings = {"tables": "Tables", "daemon": "Daemon", "http": "HTTP", "logging": "Logging"}
    documented = {
        f"{section}.{names_in(row[0])[0]}": row[1]
        for section, heading in headings.items()
        for row in rows_of(PAGE, heading)
    }
    assert sorted(documented) == sorted(keys_of_a_file())
    defaults = {f"daemon.{name}": value for name, value in dataclasses.asdict(DaemonConfig()).items()}
    for key, default in defaults.items():
        shown = "no limit" if key == "daemon.bytes_per_hour" else "never" if default is None else _shown(default)
        assert documented[key] == shown, key
    text = (REFERENCE / PAGE).read_text()
    assert all(f"`{choice}`" in text for choice in (*LOG_FORMATS, *LOG_LEVELS))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}".removesuffix(".0")


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("lake/*", "/etc/lake/*"),
        ("../data/t", "/etc/../data/t"),
        ("/data/t", "/data/t"),
        ("~/t", "~/t"),
        ("s3://bucket/t", "s3://bucket/t"),
        ("file:///data/t", "file:///data/t"),
        ("${FOLDER}/t", "/lake/t"),
    ],
)
def test_a_relative_path_is_relative_to_the_file(monkeypatch: pytest.MonkeyPatch, written: str, means: str) -> None:
    monkeypatch.setenv("FOLDER", "/lake")
    assert parsed(f'[[tables]]\npath = "{written}"').sources == (TableSource(means),)


def test_a_whole_number_is_a_number() -> None:
    assert parsed("[daemon]\ninterval_s = 2").config.interval_s == 2


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "one")
    monkeypatch.setenv("B_2", "")
    text = """
    [[tables]]
    path = "/t"
    storage_options = { x = "${A}-${B_2}-${A}", y = "$${A} $A", z = { deep = "${A}" }, n = 7, ok = true }
    """
    assert parsed(text).sources[0].storage_options == {
        "x": "one--one",
        "y": "${A} $A",
        "z": {"deep": "one"},
        "n": 7,
        "ok": True,
    }


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem", "advice"),
    [
        (
            "[deamon]",
            "line 1: deamon is not known",
            "did you mean 'daemon'? the file takes: daemon, http, logging, tables",
        ),
        ("interval_s = 1", "line 1: interval_s is not known", "the file takes: daemon, http, logging, tables"),
        (
            "\n[daemon]\nintervall_s = 1",
            "line 3: daemon.intervall_s is not known",
            "did you mean 'interval_s'? [daemon]",
        ),
        ("[logging]\ncolour = 1", "line 2: logging.colour is not known", "[logging] takes: format, level"),
        (
            '[[tables]]\npath="/a"\n[[tables]]\npath="/b"\nexcludes=[]',
            "line 5: tables[1].excludes is not known",
            "did you mean 'exclude'? [tables[1]] takes: exclude, folder, include, path, storage_options",
        ),
        ("[daemon]\nmajor = 1", "line 2: daemon.major is 1, which is not true or false", "give true or false"),
        ("[daemon]\nmajor = 'yes'", "line 2: daemon.major is 'yes', which is not true or false", ""),
        ("[daemon]\ninterval_s = '1'", "line 2: daemon.interval_s is '1', which is not a number", "give a number"),
        ("[daemon]\ninterval_s = true", "line 2: daemon.interval_s is True, which is not a number", ""),
        ("[daemon]\ncompaction_bytes = 1e9", "is 1000000000.0, which is not a whole number", ""),
        ("[daemon]\nheartbeat_s = 'x'", "daemon.heartbeat_s is 'x', which is not a number", ""),
        ("[daemon]\ninterval_s = -1", "line 2: daemon.interval_s is -1", "give a number from 0.01"),
        ("[daemon]\ninterval_s = nan", "line 2: daemon.interval_s is nan", "give a number from 0.01"),
        ("[daemon]\ncore_share = 2", "line 2: daemon.core_share is 2", "give a number from 0.01 up to 1"),
        ("[daemon]\nlease_ttl_s = 0.01", "line 2: daemon.lease_ttl_s is 0.01", "from 0.05 up to 3600"),
        (
            "[logging]\nformat = 'xml'",
            "logging.format is 'xml', which is not 'text' or 'json'",
            "give 'text' or 'json'",
        ),
        ("[logging]\nlevel = 'loud'", "line 2: logging.level is 'loud'", "'debug' or 'info' or 'warning' or 'error'"),
        ("[http]\nlisten = 8080", "line 2: http.listen is 8080, which is not a text in quotes", ""),
        ("[http]\nlisten = ':8080'", "line 2: http.listen ':8080' is not an address", "write HOST:PORT"),
        ("[tables]\npath = '/a'", "line 1: tables is not a list of tables", "[[tables]], in two brackets"),
        ("daemon = 3", "line 1: daemon is not a section", "write [daemon] on a line"),
        ("[[tables]]\nfolder = true", "line 1: tables[0] has no path", 'add path = "..."'),
        ("tables = ['/a']", "line 1: tables[0] is not a table", "write [[tables]]"),
        ("[[tables]]\npath = ''", "line 1: tables[0] is wrong: a source of tables has the path ''", "give a path"),
        ("[[tables]]\npath = '/a'\ninclude = ['b']", "tables[0] is wrong: include and exclude have no meaning", ""),
        ("[[tables]]\npath = '/a'\nfolder = 'yes'", "line 3: tables[0].folder is not true or false", ""),
        ("[[tables]]\npath = '/*'\nexclude = 'tmp'", "line 3: tables[0].exclude is not a list of strings", ""),
        ("[[tables]]\npath = '/a'\nstorage_options = 'x'", "storage_options is not a table", ""),
        (
            "[[tables]]\npath='/a'\n[[tables]]\npath='/b'\n[tables.storage_options]\nsecret='${TIDELOG_UNSET}'",
            "line 6: tables[1].storage_options.secret needs the environment variable TIDELOG_UNSET, which is not set",
            "set TIDELOG_UNSET, or remove ${TIDELOG_UNSET}",
        ),
        ("[[tables]]\npath = '/${a-b}'", "line 2: tables[0].path has a ${ that no name and } follow", "write ${NAME}"),
        ("[[tables]]\npath = '/${A'", "line 2: tables[0].path has a ${ that no name and } follow", "write ${NAME}"),
        ("[daemon\n", "is not valid TOML: ", "see https://toml.io"),
        ("[daemon]\n[daemon]\n", "is not valid TOML: ", "(at line 2"),
    ],
)
def test_an_error_names_the_file_the_line_and_what_is_right(text: str, problem: str, advice: str) -> None:
    error = refusal(text)
    assert "/etc/tidelog.toml" in error.message
    assert problem in error.message
    assert advice in f"{error.advice} {error.message}"


def test_an_error_shows_no_storage_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter22")
    start = '[[tables]]\npath = "/a"\nstorage_options = { secret = "${SECRET}", key = "swordfish" }\n'
    for wrong in ("x = 1", "folder = 'x'", "include = ['a']", "[logging]\nlevel = 1", "broken"):
        error = refusal(start + wrong)
        shown = f"{error} {error!r} {error.__cause__!r} {error.__context__!r} {pickle.dumps(error)!r}"
        assert "hunter22" not in shown
        assert "swordfish" not in shown


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), (b"\xff\xfe", "it is not UTF-8 text")])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "tidelog.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        read_config(str(path))


def sparse(path: Path) -> None:
    """A file that is too large, and takes no room."""
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "not a regular file but a FIFO"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file but a device"),
        (lambda path: path.mkdir(), "not a regular file but a folder"),
        (sparse, "16777217 bytes are too many"),
    ],
)
def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    path = tmp_path / "tidelog.toml"
    make(path)
    with pytest.raises(ConfigurationError, match=says):
        read_config(str(path))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text('[[tables]]\npath = "lake"\nfolder = true\n')
    assert read_config(str(path)).sources == (TableSource(f"{tmp_path}/lake", folder=True),)


# --- what is different -----------------------------------------------------------------------------------------------


def test_the_changes_between_two_files() -> None:
    before = DaemonFile((TableSource("/a"), TableSource("/b"), TableSource("/c", storage_options={"secret": "one11"})))
    after = DaemonFile(
        (TableSource("/a"), TableSource("/c", storage_options={"secret": "two22"}), TableSource("/d")),
        DaemonConfig(interval_s=0.5, bytes_per_hour=2**30),
        ListenAddress("::1", 80),
        "json",
    )
    changes = after.changes_since(before)
    assert changes == [
        "daemon.interval_s: 1.0 -> 0.5",
        "daemon.bytes_per_hour: none -> 1073741824",
        "listen: none -> [::1]:80",
        "log_format: text -> json",
        "tables: + /d",
        "tables: - /b",
        "tables: changed /c",
    ]
    assert after.changes_since(after) == []


def test_two_sources_of_one_path_are_compared_one_by_one() -> None:
    before = DaemonFile((TableSource("/lake/*", include=("a",)), TableSource("/lake/*", include=("b",))))
    after = DaemonFile((TableSource("/lake/*", include=("c",)), TableSource("/lake/*", include=("b",))))
    assert after.changes_since(before) == ["tables: changed /lake/*"]


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    assert "is nested too deeply" in refusal("a = " + "[" * 3000 + "]" * 3000).message


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000, "9" * 30])
@pytest.mark.parametrize(
    "line",
    ["[daemon]\ngrowth = {}", "[http]\nlisten = {}", "[[tables]]\npath = '/a'\nstorage_options = {{ a = [{}] }}"],
)
def test_a_number_of_too_many_digits_is_refused(line: str, digits: str) -> None:
    assert "a whole number of more than 64 bits" in refusal(line.format(digits)).message


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('[[tables]]\npath = "/a"\n', encoding="utf-8-sig")
    assert [source.path for source in read_config(str(file)).sources] == ["/a"]


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "localhost:0", "[::1]:65535", "my-host.example:80"])
def test_an_address_to_listen_on(text: str) -> None:
    assert str(ListenAddress.parse(text)) == text


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:65536", "host:x", "::1:80", "a b:1", "host:1 "])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address to listen on"):
        ListenAddress.parse(text)


@pytest.mark.parametrize(
    "text", ["user:hunter22@host:80", "http://user:hunter22@host:80", "hunter22@[::1]:80", "user:hunter22/x@host"]
)
def test_an_address_with_a_password_is_refused_without_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'.*\*\*\*@.*' is not an address to listen on") as caught:
        ListenAddress.parse(text)
    errors = [caught.value, refusal(f"[http]\nlisten = {text!r}"), refusal(f"[http]\nlisten = [{text!r}]")]
    for error in errors:
        shown = f"{error} {error!r} {error.__cause__!r} {error.__context__!r} {pickle.dumps(error)!r}"
        assert "hunter22" not in shown


_KEY = "[[tables]]\npath = 'x'\nstorage_options = "


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (".".join("a" * 990) + " = 1", "line 1: a.a.a."),
        (".".join("a" * 20_000) + " = 1", "line 1: a.a.a."),
        ("\n[" + " . ".join("a" * 5_000) + "]", "line 2: a . a . a"),
        ("[[" + ".".join(['"a.b"', "'c'"] * 2_000) + "]]", "line 1: \"a.b\".'c'."),
        (_KEY + "{" + ".".join("a" * 5_000) + " = 1}", "line 3: a.a.a."),
        (_KEY + "{a = " * 2_000 + "1" + "}" * 2_000, "line 3: storage_options"),
        (_KEY + ("{" + ".".join("a" * 20) + " = ") * 60 + "1" + "}" * 60, "line 3: tables[0].storage_options.a.a"),
        (_KEY + "{a = " + "[" * 90 + "]" * 90 + "}", "line 3: tables[0].storage_options.a[0][0]"),
        ("a" * 1_000_000 + " = 1", "t.toml: aaaaaaa"),
        ("." * 40 + '"\\"' * 100_001, "not valid TOML"),
    ],
    ids=range(10),
)
def test_deep_keys_are_refused_soon(text: str, place: str) -> None:
    begin = time.process_time()
    with pytest.raises(ConfigurationError) as refused:
        parse_config(text, "/t.toml")
    assert time.process_time() - begin < 2
    assert place in str(refused.value)
    assert "/t.toml" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_dots_in_texts_are_no_parts_of_a_key() -> None:
    dots = ".".join("a" * 50)
    text = f"# {dots} = 1\n[[tables]] # {dots}\npath = \"/{dots}\"\nstorage_options = {{x.y.z = '{dots}'}}"
    (source,) = parse_config(text, "/t.toml").sources
    assert source.path == f"/{dots}"

"""The program: its commands, their help, their exit codes, and its errors."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.support import ON_A_TABLE, PROGRAM, in_terminal, on_terminal, run
from tests.log.support import numbers
from tidelog import cli
from tidelog.log import Table
from tidelog.log.errors import (
    CommitStateUnknownError,
    ConcurrentAppendException,
    ConfigurationError,
    ConsumerInUseError,
    CorruptLogError,
    FencedError,
    PredicateError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableNotFoundError,
    TidelogError,
)

COMMANDS = [name for summaries in cli.COMMANDS.values() for name in summaries]
FOLDER = Path(cli.__file__).parent / "commands"


# --- the commands ----------------------------------------------------------------------------------------------------


def test_each_command_has_the_module_of_its_name() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert modules == {name.replace("-", "_") for name in COMMANDS}
    assert set(ON_A_TABLE) == set(COMMANDS) - {"consumers", "create", "doctor", "drop"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_its_summary_and_an_example(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    summaries = {name: text for section in cli.COMMANDS.values() for name, text in section.items()}
    assert f"\n  {summaries[name]}\n" in result.stdout
    assert f"\n  Example:\n    tidelog {name} " in result.stdout
    assert "--json" in result.stdout
    assert all(line == line.rstrip() or line.startswith("Usage") for line in result.stdout.splitlines())
    assert "exit" not in summaries[name]


def test_the_list_of_commands_has_sections_and_exit_codes() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for title, summaries in cli.COMMANDS.items():
        assert f"\n{title}:\n" in result.stdout
        for name, summary in summaries.items():
            assert re.search(f"^  {name} +{re.escape(summary)}$", result.stdout, flags=re.MULTILINE)
    assert "4 nothing to do" in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["create", "--help"]])
def test_help_fits_a_narrow_terminal(arguments: list[str]) -> None:
    shown = in_terminal(PROGRAM, *arguments, columns=40)
    assert shown.code == 0
    text, _, _ = shown.text.partition("Example:")
    assert max(map(len, text.splitlines())) <= 40


def test_a_mistyped_command_is_corrected() -> None:
    result = run("describ", "x")
    assert result.exit_code == 2
    assert "Did you mean 'describe'?" in result.stderr


def test_a_module_without_a_command_is_not_reachable() -> None:
    assert run("scan_command").exit_code == 2
    assert run("add_columns").exit_code == 2


def _loaded(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after `code`."""
    program = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_the_list_of_commands_loads_none_of_them() -> None:
    loaded = _loaded("import tidelog.cli")
    assert not loaded & {"pyarrow", "numpy", "sqlglot", "pyspark", "tidelog.log"}


def test_a_command_loads_no_other_one() -> None:
    loaded = _loaded("from tidelog.cli.app import load_command; load_command('set-properties')")
    commands = {name for name in loaded if name.startswith("tidelog.cli.commands.")}
    assert commands == {"tidelog.cli.commands.set_properties"}
    assert not {name for name in loaded if name.startswith(("tidelog.compaction_daemon", "pyspark"))}


def test_no_command_imports_pandas(small_files: Table) -> None:
    """Arrow does with its first array, which is a fifth of a short command's CPU time."""
    calls = [["tidelog", name, small_files.path, *others] for name, others in ON_A_TABLE.items()]
    loaded = _loaded(
        "from tidelog.cli import main\n"
        f"for sys.argv in {calls!r}:\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as done:\n"
        "        assert done.code in {None, 0, 4}, (sys.argv, done.code)\n"
    )
    assert {f"tidelog.cli.commands.{name.replace('-', '_')}" for name in ON_A_TABLE} <= loaded
    assert "pandas" not in loaded


# --- exit codes and errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TidelogError("x"), 1),
        (StoreUnavailableError("x"), 1),
        (CommitStateUnknownError("x"), 1),
        (CorruptLogError("x"), 1),
        (FencedError("x"), 1),
        (ConsumerInUseError("x"), 1),
        (ConfigurationError("x"), 2),
        (TableNotFoundError("x"), 2),
        (PredicateError("x"), 2),
        (SchemaMismatchError("x"), 2),
        (ConcurrentAppendException("x"), 3),
    ],
)
def test_exit_codes(error: TidelogError, code: int) -> None:
    assert cli.exit_code(error) == code


def test_a_damaged_log(small_files: Table) -> None:
    for file in Path(small_files.path, "_delta_log").iterdir():
        if file.suffix == ".crc":
            file.unlink()
    Path(small_files.path, "_delta_log", f"{2:020d}.json").write_text("{")
    ended = run("compact", small_files.path)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("TIDELOG_CORRUPT_LOG: commit 2 of")


def test_an_error_of_the_system_is_one_line(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Table:
        raise PermissionError(13, "Permission denied", "/x")

    monkeypatch.setattr(Table, "open", refuse)
    result = run("describe", table.path)
    assert (result.exit_code, result.stderr) == (1, "[Errno 13] Permission denied: '/x'\n")


# --- the real program ------------------------------------------------------------------------------------------------


def test_the_program_prints_its_version_and_its_commands() -> None:
    found = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True, timeout=120)
    assert re.fullmatch(r"tidelog \d+\.\d+\.\d+\S*\n", found.stdout)
    found = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True, timeout=120)
    assert all(name in found.stdout for name in COMMANDS)


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "csv"], ["--limit", "15000"]])
def test_a_pipe_that_is_closed_early_is_not_an_error(tmp_path: Path, arguments: list[str]) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers(range(15_000)))
    with subprocess.Popen(
        [PROGRAM, "scan", table.path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stderr
        assert program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=120) == 0


def test_log_lines_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "argv", ["tidelog", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    capsys.readouterr()
    logging.getLogger("tidelog.cursor").error("at %s", "/data/\x1b[2Jx\ny")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("ERROR tidelog.cursor: at /data/\\x1b[2Jx\ny\n")


# --- colour ----------------------------------------------------------------------------------------------------------


def coloured(text: str) -> bool:
    return "\x1b[3" in text or "\x1b[1;3" in text


def test_a_terminal_shows_colours_unless_told_not_to(table: Table) -> None:
    assert coloured(on_terminal("conflicts").raw)
    assert not coloured(on_terminal("conflicts", NO_COLOR="1").raw)
    assert coloured(on_terminal("describe", table.path + "x").raw), "the code of an error"


@pytest.mark.parametrize("arguments", [["conflicts"], ["describe", "/nothing"]])
def test_a_pipe_gets_colours_only_if_they_are_forced(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def both(result: Result) -> str:
        return result.stdout + result.stderr

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    plain = both(run(*arguments))
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = both(run(*arguments))
    assert coloured(forced)
    assert re.sub(r"\x1b\[[0-9;]*m| ", "", forced) == plain.replace(" ", "")


def test_json_is_never_coloured(table: Table) -> None:
    shown = on_terminal("describe", table.path, "--json", FORCE_COLOR="1")
    assert "\x1b" not in shown.raw

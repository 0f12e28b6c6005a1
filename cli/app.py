"""The program: its list of commands, its exit codes, and how an error becomes one line and an exit code."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidelog import __version__
from tidelog.cli import output
from tidelog.cli.wrong_use import PARSER_ERROR, in_options, parser_error

if TYPE_CHECKING:
    from tidelog.log.errors import TidelogError

DONE, FAILED, WRONG_USE, CONFLICT, NOTHING_TO_DO = range(5)

# The commands by section of the help, each with the first line of its docstring. They are listed here because importing
# a command's module loads pyarrow, for which neither `tidelog --help` nor the completion of a name should wait.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Create and change tables": {
        "create": "Create an empty table.",
        "adopt": "Say what adopting another engine's table means, or do it.",
        "add-columns": "Add columns to a table.",
        "set-properties": "Set or remove table properties.",
        "restore": "Restore a table to an earlier version.",
        "drop": "Drop a table and delete its data files.",
    },
    "Look at tables": {
        "describe": "Describe a table: schema, properties, size, log and streams.",
        "history": "List the commits of a table, newest first.",
        "scan": "Print the rows of a table.",
        "changes": "Print the rows that changed between two versions or times.",
        "conflicts": "Print a conflict policy, or the conflicts of a table.",
        "consumers": "List, move or remove the registered consumers of a table.",
        "status": "Print the state of tables, and which daemon has them.",
        "report": "Write what the log says about a table as an HTML file.",
    },
    "Maintain tables": {
        "compact": "Compact a table once.",
        "plan": "Print what a compaction would do and cost, and why, file by file.",
        "daemon": "Compact tables continuously, alongside their writers.",
        "expire": "Delete log entries that are past their retention.",
        "vacuum": "Delete data files that no retained version needs.",
        "doctor": "Check that a store is safe to keep tables in.",
    },
}
_HELP_WIDTHS = (38, 78)


class _Commands(TyperGroup):
    """Import a command when it runs, and turn every expected error into one line and an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for summaries in COMMANDS.values():
            for name, summary in summaries.items():
                self.commands[name] = TyperCommand(name, help=summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See typer. The list holds stand-ins; this returns the command itself."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load_command(str(name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See typer. Each section has its own heading."""
        del ctx
        for title, summaries in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(summaries.items()))

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """See typer."""
        if not args:
            return super().make_context(info_name, args, parent, **extra)  # shows the help
        try:
            return super().make_context(info_name, args, parent, **extra)
        except PARSER_ERROR as error:
            output.complain(str(parser_error(error, "tidelog")))
            raise typer.Exit(WRONG_USE) from error

    def invoke(self, ctx: Any) -> Any:
        """See typer."""
        from tidelog.log.errors import TidelogError  # noqa: PLC0415 - see COMMANDS

        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as error:
            # The reader of the output has seen enough (`| head`). The interpreter's last flush must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from error
        except PARSER_ERROR as error:
            output.complain(str(parser_error(error, _command(ctx))))
            raise typer.Exit(WRONG_USE) from error
        except TidelogError as error:
            output.complain(str(in_options(error, _command(ctx))))
            raise typer.Exit(exit_code(error)) from error
        except OSError as error:
            output.complain(str(error))
            raise typer.Exit(FAILED) from error


def load_command(name: str) -> Any:
    """Import the module of a command and make a command of its function; see `tidelog.cli.commands`."""
    module = name.replace("-", "_")
    function = getattr(import_module(f"tidelog.cli.commands.{module}"), f"{module}_command")
    text, _, example = (inspect.getdoc(function) or "").partition("\n\nExample:\n")
    # The control character keeps typer from joining the lines that follow it.
    epilog = f"\b\nExample:\n{example}"
    program = typer.Typer(add_completion=False, rich_markup_mode=None)
    program.command(name, help=text, epilog=epilog)(function)
    return typer.main.get_command(program)


def _command(context: Any) -> str:
    """The command as it was called, such as `tidelog scan`."""
    return " ".join(filter(None, [context.command_path, context.invoked_subcommand]))


def _help_width() -> int:
    """The width of help texts: the terminal's, within bounds."""
    narrowest, widest = _HELP_WIDTHS
    return max(narrowest, min(widest, shutil.get_terminal_size().columns - 2))


app = typer.Typer(
    name="tidelog",
    cls=_Commands,
    help="Create, inspect and maintain tidelog tables.",
    epilog=(
        "Run `tidelog COMMAND --help` for the options of a command and an example.\n\n"
        "Exit codes: 0 done, 1 failed, 2 wrong use, 3 conflict, 4 nothing to do."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"terminal_width": _help_width()},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tidelog {__version__}\n")
        raise typer.Exit(DONE)


@app.callback()
def _program(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Do nothing: a command does the work."""


class _PresentableLines(logging.Formatter):
    """Log lines in which nothing can move a terminal's cursor, whichever library they come from."""

    def format(self, record: logging.LogRecord) -> str:
        return output.lines(super().format(record))


class _WithoutPandas(MetaPathFinder):
    """Let no command import pandas, as where it is not installed.

    pyarrow imports pandas when it makes its first array. That is a fifth of a short command's CPU time, and no command
    needs it.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """See `MetaPathFinder`."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=fullname)


def main() -> None:
    """Run the command line."""
    sys.meta_path.insert(0, _WithoutPandas())
    handler = logging.StreamHandler()
    handler.setFormatter(_PresentableLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    try:
        app()
    except Exception:  # noqa: BLE001 - a bug, whose traceback can quote the table
        sys.stderr.write(output.lines(traceback.format_exc()))
        sys.exit(FAILED)


def exit_code(error: TidelogError) -> int:
    """The exit code for an error."""
    from tidelog.log import errors  # noqa: PLC0415 - see COMMANDS

    # Nothing is wrong with the command: it can succeed once the owner has ended.
    if isinstance(error, errors.ConsumerInUseError):
        return FAILED
    # No command takes rows, so a schema that does not fit was an argument.
    if isinstance(error, errors.ConfigurationError | errors.PredicateError | errors.SchemaMismatchError):
        return WRONG_USE
    return CONFLICT if isinstance(error, errors.ConflictError) else FAILED

"""The program itself: its exit codes, and how an error becomes one line and one of them."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidelog import __version__
from tidelog.cli import output
from tidelog.log.errors import ConfigurationError, ConflictError, PredicateError, TidelogError

DONE, FAILED, WRONG_USE, CONFLICT, NOTHING_TO_DO = range(5)


class _Commands(TyperGroup):
    """Runs a command; an error that is known, or that the system says in a line, becomes that line."""

    def invoke(self, ctx: Any) -> Any:
        """See typer."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as error:
            # Whoever read the output has seen enough (`| head`). The interpreter's last flush must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from error
        except TidelogError as error:
            output.complain(str(error))
            raise typer.Exit(exit_code(error)) from error
        except OSError as error:
            output.complain(str(error))
            raise typer.Exit(FAILED) from error


app = typer.Typer(
    name="tidelog",
    cls=_Commands,
    help="A streaming table for PySpark: look at its tables and look after them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tidelog {__version__}\n")
        raise typer.Exit(DONE)


@app.callback()
def _commands(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Look at tidelog's tables and look after them."""


def main() -> None:
    """Run the command line."""
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app()


def exit_code(error: TidelogError) -> int:
    """The process's exit code for an error."""
    if isinstance(error, (ConfigurationError, PredicateError)):
        return WRONG_USE
    return CONFLICT if isinstance(error, ConflictError) else FAILED

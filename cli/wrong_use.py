"""Wrong use of the command line in its own words: an error's advice names options and commands, not Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tidelog.log.errors import ConfigurationError, TidelogError

# The library's base class of all errors of its parser, for which typer has no public name.
PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

# Advice for callers of Python, and what to do on the command line instead.
_INSTEAD: Mapping[str, str] = {
    "pass allow_protocol_upgrade=True": "pass --allow-protocol-upgrade",
    "open it with Table.open, pass exist_ok=True, or choose another path": (
        "choose another path, or drop the table with tidelog drop"
    ),
    "create the table with Table.create or a Sink, or make one of parquet files with Table.convert": (
        "create the table with tidelog create, or make one of parquet files with tidelog adopt"
    ),
    "make a table of them with Table.convert": "make a table of them with tidelog adopt --apply",
    "create the table with Table.create or a Sink": "create the table with tidelog create",
    "read the partition by `where`": "read the partition by --where",
    "open that one with Table.open": "use that one",
    "leave nullable=False out": "remove NOT NULL",
    "pass keys=[...]": "pass --keys",
    "call Table.drop(path) to finish it": "run tidelog drop PATH --yes to finish it",
}
_OPTIONS: Mapping[str, str] = {"older_than must": "--older-than must"}


# What to do about common mistakes, by command and the parser's message.
_MISTAKES: Mapping[tuple[str, str], str] = {
    ("tidelog create", "Got unexpected extra argument(s)"): 'give the columns as --schema "id long"; ',
    ("tidelog consumers", "Missing argument 'PATH'"): "write list, reset or remove before the path; ",
}

# The end of an error about an option's value; `in_options` puts the command there.
_SEE_HELP = "see the command's --help"


def in_options(error: TidelogError, command: str) -> TidelogError:
    """The same error with the advice that fits the command line; `command` is such as `tidelog scan`."""
    message, advice = error.message, error.advice.replace(_SEE_HELP, f"see {command} --help")
    for words, instead in _INSTEAD.items():
        advice = advice.replace(words, instead)
    for words, instead in _OPTIONS.items():
        if message.startswith(words):
            message = instead + message.removeprefix(words)
    return type(error)(message, advice=advice, **error.fields)


def parser_error(error: Exception, command: str) -> ConfigurationError:
    """The error for arguments that the parser refuses; `command` is such as `tidelog scan`."""
    from tidelog.log.errors import ConfigurationError  # noqa: PLC0415 - `--help` must not wait for pyarrow

    text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    advice = _MISTAKES.get((command, text.partition(" (")[0]), "") + f"see {command} --help"
    return ConfigurationError(text[:1].lower() + text[1:], advice=advice)


def whole_number(option: str, *, least: int | None = None) -> Callable[[Any], int]:
    """A parser for the value of `option`: a whole number, at least `least`."""

    def parse(value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise wrong_value(option, "a whole number", value) from None
        if least is not None and number < least:
            raise wrong_value(option, f"at least {least}", number)
        return number

    return parse


def chosen(option: str, known: Sequence[str]) -> Callable[[Any], str]:
    """A parser for the value of `option`: one of those that are known."""

    def parse(value: Any) -> str:
        if value not in known:
            raise wrong_value(option, f"one of {', '.join(known)}", value)
        return str(value)

    return parse


def seconds(option: str) -> Callable[[Any], float]:
    """A parser for the value of `option`: a number of seconds above zero."""

    def parse(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            raise wrong_value(option, "a number of seconds", value) from None
        if not number > 0:
            raise wrong_value(option, "more than 0", number)
        return number

    return parse


def byte_size(option: str) -> Callable[[Any], int]:
    """A parser for the value of `option`: a size such as `2GiB`."""

    def parse(value: Any) -> int:
        from tidelog.log.format import properties  # noqa: PLC0415 - `--help` must not wait for pyarrow

        try:
            return value if isinstance(value, int) else properties.parse_size_bytes(value)
        except ValueError:
            raise wrong_value(option, "a size above zero, such as 2GiB", value) from None

    return parse


def wrong_value(option: str, wanted: str, value: object) -> ConfigurationError:
    """The error for a value of `option` that is not what is `wanted`."""
    from tidelog.log.errors import ConfigurationError  # noqa: PLC0415 - `--help` must not wait for pyarrow

    return ConfigurationError(f"{option} must be {wanted}, not {value!r}", advice=_SEE_HELP)

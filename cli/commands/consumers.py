"""`tidelog consumers`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog.cli import output, parameters
from tidelog.cli.reports import age
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import wrong_value
from tidelog.log import Table
from tidelog.log.consumers.administration import remove_consumer, reset_consumer
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.errors import ConfigurationError
from tidelog.log.system import REAL_SYSTEM

_ACTIONS = ("list", "reset", "remove")
_COLUMNS = ("consumer", "position", "committed", "versions", "behind", "files", "bytes", "state", "heartbeat", "owner")


def consumers_command(
    action: Annotated[
        str,
        typer.Argument(
            metavar="list|reset|remove", help="What to do.", autocompletion=lambda: list(_ACTIONS), show_default=False
        ),
    ],
    path: parameters.TablePath,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The consumer; `list` prints all without one.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="POINT", help="For reset: a version, a time, earliest or latest."),
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """List, move or remove the registered consumers of a table.

    `list` prints how far each one is behind: commits that changed rows, the age of the oldest of them, and their files.
    `reset` moves a consumer, so that every commit up to POINT counts as processed. `remove` frees its name; clean-ups
    do not wait for it any more. After either an owner that still runs stops with an error.

    Example:
      tidelog consumers list /data/events
      tidelog consumers reset /data/events billing --to 2026-01-31T00:00:00Z
      tidelog consumers remove /data/events billing
    """
    if action not in _ACTIONS:
        raise wrong_value("the action", f"one of {', '.join(_ACTIONS)}", action)
    if (action == "reset") != (to is not None):
        raise ConfigurationError(
            "reset needs --to, and nothing else takes it",
            advice="write --to with a version, a time, earliest or latest",
        )
    if name is None and action != "list":
        raise ConfigurationError(
            f"{action} needs the name of a consumer", advice="list them with: tidelog consumers list"
        )
    with Progress(f"reading the consumers of {path}"):
        table = parameters.open_table(path, storage_option)
        if action == "list":
            found = consumers(table.store, table.head, REAL_SYSTEM)
        else:
            done = _change(table, action, str(name), to)
    if action == "list":
        _print([each for each in found if name in (None, each.name)], table, asked=name is not None, as_json=as_json)
    elif as_json:
        output.write_json({"path": table.path, "consumer": name, **done})
    elif action == "remove":
        output.say(f"{table.path}: removed the consumer {name}")
    else:
        output.say(f"{table.path}: the consumer {name} is at version {done['position']}")


def _change(table: Table, action: str, name: str, to: str | None) -> dict[str, Any]:
    if action == "remove":
        remove_consumer(table.store, table.head, name, REAL_SYSTEM)
        return {"removed": True}
    point = to if to in ("earliest", "latest") else parameters.parse_point(to)
    return {"position": reset_consumer(table.timeline, table.head, name, point or 0).position}


def _print(found: list[ConsumerStatus], table: Table, *, asked: bool, as_json: bool) -> None:
    if as_json:
        for status in found:
            output.write_json(status.to_dict())
    elif not found:
        output.say(f"{table.path}: no {'such ' if asked else ''}consumer is registered")
    else:
        numbers = [_COLUMNS.index(column) for column in ("position", "versions", "behind", "files", "bytes")]
        output.write_grid(_COLUMNS, [_row(status) for status in found], numbers=numbers, whole=[0])


def _row(status: ConsumerStatus) -> list[Any]:
    lag = status.lag
    more = "" if lag is None or lag.is_complete else "+"
    counts = [None] * 4 if lag is None else [f"{lag.versions:,}{more}", age(lag.seconds), *_sizes(lag, more)]
    return [
        status.name,
        status.position,
        output.timestamp_text(status.position_time, timespec="seconds"),
        *counts,
        status.state,
        output.timestamp_text(status.heartbeat, timespec="seconds"),
        status.owner,
    ]


def _sizes(lag: Any, more: str) -> list[str]:
    return [f"{lag.files:,}{more}", f"{lag.bytes:,}{more}"]

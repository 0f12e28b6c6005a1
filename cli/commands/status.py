"""`tidelog status`."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Annotated, Any

import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED
from tidelog.cli.reports import age
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import in_options
from tidelog.compaction_daemon.observing.table_report import TableBrief, brief_of
from tidelog.compaction_daemon.settings.config_file import read_config
from tidelog.compaction_daemon.settings.sources import FoundTable, find_tables, source_at
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, RetryableError, TidelogError
from tidelog.log.presentable import address_without_credentials
from tidelog.log.system import REAL_SYSTEM, to_datetime

_TIMEOUT_S = 10.0
# Ten thousand tables are some megabytes.
_MAX_BYTES = 64 * 2**20
# Most of the time is waiting for stores.
_AT_ONCE = 8
_COLUMNS = ("table", "version", "small", "dead rows", "tail", "lag", "compacted", "daemon")
_NUMBERS = (1, 2, 3, 4)
_LIVE_COLUMNS = ("table", "state", "version", "small", "dead rows", "compacted", "error")
_LIVE_NUMBERS = (2, 3, 4)


def status_command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Tables: local paths, URLs, or globs in quotes.", show_default=False),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also the tables of this file of a daemon.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask the daemon whose page is here, instead of the tables.")
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Print the state of tables, and which daemon has them.

    What a table's log says needs no daemon, and is the same on every host: debt, the newest compaction and checkpoint,
    consumers and their lag, clean-ups, and the lease. `--url` prints what a daemon knows, for example what it fails at.
    Exit code 1 if a table cannot be read, or the daemon fails at one or at a part of one.

    Example:
      tidelog status /data/events
      tidelog status --config /etc/tidelog.toml --json
      tidelog status --url http://127.0.0.1:8080
    """
    if url is not None:
        if paths or config:
            raise ConfigurationError("--url asks the daemon about its own tables", advice="leave PATH and --config out")
        _print_live(fetch_status(url), as_json=as_json)
        return
    given = parameters.parse_storage_options(storage_option)
    sources = [*(read_config(config).sources if config else ())]
    sources += [source_at(path, given) for path in paths or ()]
    if not sources:
        raise ConfigurationError("there are no tables to look at", advice="give a PATH, --config FILE or --url URL")
    with Progress("reading the logs of " + ", ".join(source.path for source in sources)):
        found = find_tables(sources)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            briefs = list(threads.map(_brief, found.tables))
    for source, error in found.errors:
        output.complain(f"{source}: {error}")
    for path in found.empty:
        output.complain(f"{path}: no table was found")
    _print(found.tables, briefs, as_json=as_json)
    if found.errors or any(isinstance(brief, Exception) for brief in briefs):
        raise typer.Exit(FAILED)


def _brief(entry: FoundTable) -> TableBrief | TidelogError | OSError:
    """The brief of a table, or why there is none."""
    try:
        return brief_of(Table.open(entry.path, storage_options=entry.storage_options))
    except (TidelogError, OSError) as error:
        return error


def _print(tables: Sequence[FoundTable], briefs: Sequence[TableBrief | Exception], *, as_json: bool) -> None:
    rows = []
    for entry, brief in zip(tables, briefs, strict=True):
        if isinstance(brief, Exception):
            shown = in_options(brief, "tidelog status") if isinstance(brief, TidelogError) else brief
            output.complain(f"{entry.path}: {shown}")
            if as_json:
                code = brief.code if isinstance(brief, TidelogError) else None
                output.write_json({"path": entry.path, "error": str(brief), "error_code": code})
            continue
        for problem in brief.problems:
            output.complain(f"{entry.path}: {problem.part}: {problem.error}")
        if as_json:
            output.write_json(brief.to_dict())
        elif len(tables) == 1:
            output.write_fields(_fields(brief))
        else:
            rows.append(_row(brief))
    _write_rows(_COLUMNS, rows, numbers=_NUMBERS)


def _write_rows(columns: Sequence[str], rows: Sequence[list[Any]], *, numbers: Sequence[int]) -> None:
    """Write a line for each table. The folder that they share is written once, so that their names fit."""
    if not rows:
        return
    folders = [row[0].split("/")[:-1] for row in rows]
    shared = "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False)))
    if len(rows) > 1 and shared:
        output.say(f"below {shared}:")
        rows = [[row[0].removeprefix(f"{shared}/"), *row[1:]] for row in rows]
    output.write_grid(columns, rows, numbers=numbers)


def _row(brief: TableBrief) -> list[Any]:
    debt, compacted = brief.debt, brief.last_compaction
    lags = [consumer.lag.seconds for consumer in brief.consumers if consumer.lag is not None]
    return [
        brief.path,
        f"{brief.version:,}",
        *([""] * 3 if debt is None else [f"{count:,}" for count in (debt.small_files, debt.dead_rows, debt.log_tail)]),
        age(max(lags)) if lags else "",
        "" if compacted is None else _ago(compacted.timestamp),
        _lease(brief, full=False),
    ]


def _fields(brief: TableBrief) -> dict[str, Any]:
    debt, compacted = brief.debt, brief.last_compaction
    fields: dict[str, Any] = {
        "path": brief.path,
        "version": f"{brief.version:,}, {_ago(brief.timestamp)}",
        "debt": "unknown",
        "compacted": "not in the newest commits",
        "checkpoint": "none",
        "daemon": _lease(brief, full=True),
    }
    if debt is not None:
        files = f"{debt.small_files:,} small of {output.counted(debt.files, 'file')}"
        fields["debt"] = f"{files}, {output.counted(debt.dead_rows, 'dead row')}"
        if brief.checkpoint is not None:
            fields["checkpoint"] = f"version {brief.checkpoint:,}, {output.counted(debt.log_tail, 'commit')} ago"
    if compacted is not None:
        fields["compacted"] = (
            f"version {compacted.version:,} ({compacted.operation_class.lower()}), {_ago(compacted.timestamp)}"
        )
    fields["consumers"] = [
        f"{consumer.name}: {consumer.state}, {_behind(consumer.lag)}" for consumer in brief.consumers
    ]
    fields["clean-up"] = (
        [f"{time.chore}: {_clean_up(time)}" for time in brief.clean_ups]
        if brief.clean_up
        else "off (tidelog.cleanUp is not true)"
    )
    fields["retention"] = [f"{each.keeps}: {each}" for each in brief.retentions]
    return fields


def _lease(brief: TableBrief, *, full: bool) -> str:
    lease = brief.lease
    if lease is None or (lease.state == "released" and not full):
        return "none" if full else ""
    text = lease.owner if lease.state == "held" else f"{lease.owner} ({lease.state})"
    return f"{text}, epoch {lease.epoch}, {age(lease.age_s)} ago" if full else text


def _behind(lag: Any) -> str:
    if lag is None:
        return "its lag is unknown"
    if not lag.versions and lag.is_complete:
        return "up to date"
    least = "" if lag.is_complete else "at least "
    return f"{least}{output.counted(lag.versions, 'version')} and {age(lag.seconds)} behind"


def _clean_up(time: Any) -> str:
    """When a clean-up was done, and when it is due."""
    before = "never done" if time.done is None else f"done {_ago(time.done)}"
    if time.awaits_daemon:
        return f"{before}, due within an hour after a daemon looks"
    if time.due is None:
        return f"{before}, not due before the next commit"
    wait_s = time.due.timestamp() - REAL_SYSTEM.now_ms() / 1000
    return f"{before}, due " + ("now" if wait_s <= 0 else f"in {age(wait_s)}")


def _ago(moment: Any) -> str:
    return f"{age((to_datetime(REAL_SYSTEM.now_ms()) - moment).total_seconds())} ago"


def _print_live(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a daemon answered. Exits with FAILED if it fails at a table, or is not healthy."""
    try:
        rows = [_live_row(table) for table in found["tables"]]
        is_healthy, reason = found["health"]["healthy"], found["health"]["reason"]
        searches = [
            f"{each['source']}: the search for tables failed: {each['error']}" for each in found["search_errors"]
        ]
        is_failing = bool(searches) or any(_troubles(table) for table in found["tables"])
        said = f"{output.counted(found['steps'], 'step')}, since {found['started']}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RetryableError(
            "what answers there is no daemon of tidelog, or one of another version", advice="check the address"
        ) from error
    if as_json:
        output.write_json(found)
    else:
        _write_rows(_LIVE_COLUMNS, rows, numbers=_LIVE_NUMBERS)
        for text in searches:
            output.complain(text)
        output.say(f"{found['owner']}: {'healthy' if is_healthy else f'not healthy: {reason}'}; {said}")
    if is_failing or not is_healthy:
        raise typer.Exit(FAILED)


def _troubles(table: Mapping[str, Any]) -> list[str]:
    """What goes wrong at a table."""
    troubles = [table["error"]] if table["error"] else []
    troubles += [f"{each['chore']} fails: {each['error']}" for each in table["upkeep_errors"]]
    left = table["left_alone"]
    return [*troubles, *([f"{output.counted(left['groups'], 'group')} left alone: {left['error']}"] if left else [])]


def _live_row(table: Mapping[str, Any]) -> list[Any]:
    debt = table["debt"] or {}
    return [
        table["path"],
        table["state"],
        *(
            None if value is None else f"{value:,}"
            for value in (table["version"], debt.get("small_files"), debt.get("dead_rows"))
        ),
        sum(table["totals"]["compactions"].values()),
        table["held_by"] or "; ".join(_troubles(table)) or None,
    ]


def fetch_status(url: str) -> Mapping[str, Any]:
    """The status of the daemon whose page is at `url`.

    Raises:
        ConfigurationError: This is no URL of a web page.
        RetryableError: No daemon answers there.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{address_without_credentials(url)!r} is not the URL of a page",
            advice="write what --listen says, such as http://127.0.0.1:8080",
        )
    place = f"{url.rstrip('/')}/api/status"
    try:
        with urllib.request.urlopen(place, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http only, see above
            found = json.loads(answer.read(_MAX_BYTES))
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RetryableError(
            f"no daemon answers at {place}: {reason}", advice="check the address, and that the daemon has --listen"
        ) from error
    if not isinstance(found, Mapping) or not {"tables", "health", "owner"} <= found.keys():
        raise RetryableError(f"what answers at {place} is no daemon of tidelog", advice="check the address")
    return found

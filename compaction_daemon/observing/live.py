"""A daemon's status as JSON values for the page, and the names under which the page knows its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog import __version__
from tidelog.compaction_daemon.observing.facts import TableFacts
from tidelog.compaction_daemon.observing.health import health_of
from tidelog.compaction_daemon.observing.safe_json import safe_builtins, safe_text
from tidelog.compaction_daemon.process.daemon_status import DaemonStatus, TableStatus

# The points of a line as small as a word.
_TREND_POINTS = 40


def shown_names(locations: Iterable[str]) -> dict[str, str]:
    """The name under which each path is shown, by path: without credentials, and unique.

    Two paths that differ only in what is not shown are numbered.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path in locations:
        name = safe_text(path)
        number = 2
        while name in taken:
            name, number = f"{safe_text(path)} #{number}", number + 1
        names[path] = name
        taken.add(name)
    return names


def live_builtins(status: DaemonStatus, facts: Mapping[str, TableFacts]) -> Any:
    """The status with what is known of each table, as safe JSON values."""
    names = shown_names(table.path for table in status.tables)
    return {
        **safe_builtins(
            {
                "tidelog_version": __version__,
                "at": status.at,
                "started": status.started,
                "owner": status.owner,
                "steps": status.steps,
                "last_step": status.last_step,
                "last_step_seconds": status.last_step_seconds,
                "bytes_last_hour": status.bytes_last_hour,
                "bytes_per_hour": status.bytes_per_hour,
                "health": health_of(status),
                "search_errors": status.search_errors,
            }
        ),
        "tables": [_table(table, names[table.path], facts.get(table.path)) for table in status.tables],
    }


def _table(table: TableStatus, name: str, facts: TableFacts | None) -> Any:
    samples = table.debt
    # Every so many samples, and always the newest one.
    step = max(1, -(-len(samples) // _TREND_POINTS))
    trend = [*reversed(samples[::-1][::step])]
    return {
        **safe_builtins(
            {
                "state": table.state,
                "since": table.since,
                "version": table.version,
                "debt": samples[-1].debt if samples else None,
                "trend": [(sample.at, sample.debt.small_files, sample.debt.dead_rows) for sample in trend],
                "epoch": table.epoch,
                "held_by": table.held_by,
                "error": table.error,
                "error_code": table.error_code,
                "upkeep_errors": table.upkeep_errors,
                "left_alone": table.left_alone,
                "next_look": table.next_look,
                "last_compaction": table.last_compaction,
                "totals": table.totals,
                "lag": facts
                and {
                    "consumers": facts.consumers,
                    "versions": facts.lag_versions,
                    "seconds": facts.lag_seconds,
                },
                "losses": facts and sum(facts.losses.values()),
            }
        ),
        "path": name,
    }

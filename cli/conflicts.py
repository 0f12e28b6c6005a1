"""The command that shows conflicts: a policy's matrix, or what a table's writers lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from tidelog.cli import options, output
from tidelog.cli.app import app
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.internals import (
    POLICIES,
    LostRace,
    Policy,
    Store,
    operation_name,
    properties,
    read_info,
    read_ledger,
    to_datetime,
)


@app.command()
def conflicts(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="The table; without one, a policy is shown.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Show this policy: {', '.join(POLICIES)}.")
    ] = None,
    limit: options.Limit = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a policy's conflict matrix; with PATH the conflicts that a table's writers lost, newest first."""
    if path is None:
        _show_matrix(_policy(policy), as_json=as_json)
        return
    if policy is not None:
        raise ConfigurationError("a table and --policy exclude each other", advice="leave one out")
    _show_ledger(options.open_table(path, storage_option).store, limit, as_json=as_json)


# --- the matrix ------------------------------------------------------------------------------------------------------


def _policy(name: str | None) -> Policy:
    chosen = properties.conflict_policy({}) if name is None else name
    if chosen not in POLICIES:
        raise ConfigurationError(f"there is no policy {name!r}", advice=f"the policies are {', '.join(POLICIES)}")
    return POLICIES[chosen]


def _show_matrix(policy: Policy, *, as_json: bool) -> None:
    if as_json:
        for earlier, row in policy.matrix.items():
            for later, verdict in row.items():
                output.write_json(
                    {
                        "policy": policy.name,
                        "earlier": str(earlier),
                        "later": str(later),
                        "verdict": str(verdict),
                        "errors": [error.__name__ for error in policy.errors(earlier, later)],
                    }
                )
        return
    output.say(f"{policy.name} ({policy.source})")
    output.say(f"down: who committed first; across: who comes later, {_place(policy)}")
    output.write_grid(
        ["", *policy.classes], ([earlier, *map(str, row.values())] for earlier, row in policy.matrix.items())
    )
    output.say(f"a fail is retried by metadata alone unless {properties.METADATA_RETRY} is false")


def _place(policy: Policy) -> str:
    return "to files that both touch" if policy.judges_files else "to the same table or partition"


# --- the ledger ------------------------------------------------------------------------------------------------------

_COLUMNS = ("when", "lost", "to", "version", "winner", "outcome", "rows", "bytes", "seconds", "loser", "why")


def _show_ledger(store: Store, limit: int | None, *, as_json: bool) -> None:
    entries = read_ledger(store, limit)
    winners = _Winners(store)
    if as_json:
        for entry in entries:
            output.write_json(_as_json(entry, winners))
        return
    shown = list(entries)
    if not shown:
        output.say("no conflict was noted")
        return
    output.write_grid(_COLUMNS, (_as_row(entry, winners) for entry in shown), numbers=[3, 6, 7, 8])
    output.say(_summary(shown))


class _Winners:
    """What the log still says of the commits that won."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, tuple[str | None, str | None]] = {}

    def of(self, version: int) -> tuple[str | None, str | None]:
        """A version's operation and engine; None where the log has it no longer, or does not tell."""
        if version not in self._known:
            self._known[version] = self._read(version)
        return self._known[version]

    def _read(self, version: int) -> tuple[str | None, str | None]:
        try:
            info = read_info(self._store, version)
        except (FileNotFoundError, CorruptLogError):
            return None, None
        engine = info.get("engineInfo")
        return operation_name(info) or None, engine if isinstance(engine, str) else None


def _as_json(entry: LostRace, winners: _Winners) -> dict[str, Any]:
    operation, engine = winners.of(entry.winning_version)
    fields: dict[str, Any] = msgspec.structs.asdict(entry)
    when = output.timestamp_text(to_datetime(fields.pop("when_ms")))
    return {"timestamp": when, **fields, "winner_operation": operation, "winner_engine": engine}


def _as_row(entry: LostRace, winners: _Winners) -> Sequence[Any]:
    return (
        output.timestamp_text(to_datetime(entry.when_ms)),
        f"{entry.later} {entry.operation}",
        entry.earlier,
        entry.winning_version,
        " ".join(text for text in winners.of(entry.winning_version) if text),
        entry.outcome,
        f"{entry.wasted_rows:,}",
        f"{entry.wasted_bytes:,}",
        f"{entry.wasted_seconds:.1f}",
        entry.loser,
        f"{entry.error}: {entry.evidence}" if entry.error else entry.evidence,
    )


def _summary(entries: Sequence[LostRace]) -> str:
    pairs = Counter(f"{entry.later} to {entry.earlier}" for entry in entries)
    losses = "1 loss" if len(entries) == 1 else f"{len(entries):,} losses"
    return (
        f"{losses}: {_counted(pairs)}; wasted {sum(entry.wasted_rows for entry in entries):,} rows, "
        f"{sum(entry.wasted_bytes for entry in entries):,} bytes, "
        f"{sum(entry.wasted_seconds for entry in entries):,.1f} s"
    )


def _counted(pairs: Counter[str]) -> str:
    ordered: Iterable[tuple[str, int]] = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {pair}" for pair, count in ordered)

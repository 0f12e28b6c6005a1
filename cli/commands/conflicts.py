"""`tidelog conflicts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from tidelog.cli import output, parameters
from tidelog.cli.spinner import Progress
from tidelog.log.commit.conflict_ledger import LostRace, read_ledger
from tidelog.log.conflict.policies import POLICIES, Policy
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.format import properties
from tidelog.log.format.commit_info import operation_name
from tidelog.log.state.commits import read_info
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


def conflicts_command(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="A table; without one, a policy is printed.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"The policy to print: {', '.join(POLICIES)}.", autocompletion=lambda: list(POLICIES)
        ),
    ] = None,
    limit: parameters.Limit = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Print a conflict policy, or the conflicts of a table.

    A policy says which operation may commit after which. With PATH, the conflicts that the table's writers lost are
    printed, newest first: which operation lost to which commit, why, and what the lost work cost.

    Example:
      tidelog conflicts --policy delta-table
      tidelog conflicts /data/events --limit 20
    """
    if path is None:
        _print_matrix(_policy(policy), as_json=as_json)
        return
    if policy is not None:
        raise ConfigurationError("a table and --policy exclude each other", advice="leave one out")
    _print_ledger(path, limit, storage_option, as_json=as_json)


# --- the matrix ------------------------------------------------------------------------------------------------------


def _policy(name: str | None) -> Policy:
    chosen = properties.conflict_policy({}) if name is None else name
    if chosen not in POLICIES:
        raise ConfigurationError(f"{name!r} is not a policy", advice=f"use one of {', '.join(POLICIES)}")
    return POLICIES[chosen]


def _print_matrix(policy: Policy, *, as_json: bool) -> None:
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
    output.say(
        f"{policy.name} ({policy.source}): a conflict policy, which says what may commit after what. No table was "
        "looked at: `tidelog conflicts PATH` prints the conflicts of one"
    )
    output.say(f"rows: the operation that committed first; columns: the later one, {_scope(policy)}")
    colours = {"ok": "green", "fail": "red"}
    output.write_grid(
        ["", *policy.classes],
        (
            [earlier, *(output.coloured(str(verdict), colours[str(verdict)]) for verdict in row.values())]
            for earlier, row in policy.matrix.items()
        ),
        whole=range(len(policy.classes) + 1),
    )
    output.say(
        "fail: the later one still commits if running it again would leave the same rows, as for most appends; if not, "
        f"it ends with an error. With {properties.METADATA_RETRY}=false each fail is an error"
    )


def _scope(policy: Policy) -> str:
    return "on files that both touch" if policy.judges_files else "on the same table or partition"


# --- the ledger ------------------------------------------------------------------------------------------------------

_COLUMNS = ("when", "lost", "to", "version", "winner", "outcome", "rows", "bytes", "seconds", "loser", "why")


def _print_ledger(path: str, limit: int | None, storage_option: list[str] | None, *, as_json: bool) -> None:
    with Progress(f"reading the conflicts of {path}") as progress:
        store = parameters.open_table(path, storage_option).store
        winners = _Winners(store)
        entries = read_ledger(store, limit)
        if as_json:
            for entry in entries:
                progress.stop_on_terminal()  # the entries themselves show the progress
                output.write_json(_as_json(entry, winners))
            return
        found = [(entry, _as_row(entry, winners)) for entry in entries]
    if not found:
        output.say("no conflicts are recorded")
        return
    output.write_grid(_COLUMNS, (row for _, row in found), numbers=[3, 6, 7, 8], whole=[0], reasons=True)
    output.say(_summary([entry for entry, _ in found]))


class _Winners:
    """The operation and the engine of commits that won, read from the log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, tuple[str | None, str | None]] = {}

    def of(self, version: int) -> tuple[str | None, str | None]:
        """A version's operation and engine; None if the log no longer has the commit, or it does not say."""
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

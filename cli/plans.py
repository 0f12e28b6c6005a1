"""Plans on the command line: their options, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.cli.wrong_use import byte_size, seconds

if TYPE_CHECKING:
    from tidelog.compaction_daemon import Budget, DroppedGroup, Plan, PlannedGroup, Prediction

# People read a screen or two. JSON has everything.
_MAX_ROWS = 50

MaxBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE", parser=byte_size("--max-bytes"), help="Read at most so much, such as 2GiB; at least one group."
    ),
]
MaxSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        parser=seconds("--max-seconds"),
        help="Take on work for at most so long, as predicted; at least one group.",
    ),
]


def request_of(
    level: str, where: str | None, cluster_by: Sequence[str] | None, cluster_order: str | None, *, purge: bool
) -> dict[str, Any]:
    """The arguments of `plan` and `compact` that options give. `auto` waits for growth, as the daemon does."""
    from tidelog.compaction_daemon import DaemonConfig  # noqa: PLC0415 - `--help` must not wait for pyarrow

    return {
        "level": level,
        "where": where,
        "growth": DaemonConfig().growth if level == "auto" else 1.0,
        "cluster_by": parameters.split_columns(cluster_by) or (),
        "purge": purge,
        "cluster_order": cluster_order,
    }


def budget_of(max_bytes: int | None, max_seconds: float | None) -> Budget | None:
    """The bounds that were given; None if there are none."""
    from tidelog.compaction_daemon import Budget  # noqa: PLC0415 - as above

    return None if max_bytes is None and max_seconds is None else Budget(max_bytes, max_seconds)


def print_plan(path: str, found: Plan, *, dropped: Sequence[DroppedGroup] = (), as_json: bool) -> None:
    """Print a plan; exit with NOTHING_TO_DO if it has no group."""
    if as_json:
        output.write_json(found.to_builtins())
    else:
        output.say(f"{path}: {_summary(found)}")
        _print_extras(path, found)
        print_dropped(path, dropped)
        _print_groups(found)
        _print_scopes(found)
        _print_files(found)
    if not found.groups:
        raise typer.Exit(NOTHING_TO_DO)


def print_dropped(path: str, dropped: Sequence[DroppedGroup]) -> None:
    """Print the groups of a plan that no longer fit the table."""
    for group in dropped[:_MAX_ROWS]:
        files = output.counted(group.files, "file")
        output.say(f"{path}: left alone {files}{_of(group.partition_values)}: {group.path}: {group.reason}")
    _print_more(len(dropped), "group")


def _summary(found: Plan) -> str:
    if not found.groups:
        return "nothing to do"
    files = output.counted(sum(len(group.inputs) for group in found.groups), "file")
    outputs = sum(group.outputs for group in found.groups)
    groups = output.counted(len(found.groups), "group")
    became = "become" if files != "1 file" else "becomes"
    return f"{found.level}, {groups}: {files} {became} about {outputs:,}; {_cost(found.predicted)}"


def _cost(predicted: Prediction) -> str:
    return (
        f"reads {predicted.bytes_to_read:,} bytes, writes about {predicted.bytes_to_write:,}, "
        f"takes about {_seconds(predicted.seconds)}, conflict odds {_odds(predicted.conflict_odds)}"
    )


def _print_extras(path: str, found: Plan) -> None:
    left = found.left_out
    if left.groups:
        output.say(
            f"{path}: left to a later plan: {output.counted(left.groups, 'group')} of "
            f"{output.counted(left.files, 'file')} ({left.size_bytes:,} bytes)"
        )
    for note in found.notes:
        output.say(f"{path}: {note}")


def _print_groups(found: Plan) -> None:
    if not found.groups:
        return
    columns = ["level", "partition", "files", "into", "reads", "writes", "seconds", "conflict", "why"]
    rows = [
        (
            group.level,
            _partition(group.partition_values),
            f"{len(group.inputs):,}",
            f"{group.outputs:,}",
            f"{group.predicted.bytes_to_read:,}",
            f"{group.predicted.bytes_to_write:,}",
            _seconds(group.predicted.seconds).removesuffix(" s"),
            _odds(group.predicted.conflict_odds),
            output.coloured(_why(group), ""),
        )
        for group in found.groups[:_MAX_ROWS]
    ]
    _print_section("groups, the best first", columns, rows, numbers=(2, 3, 4, 5, 6, 7))
    _print_more(len(found.groups), "group")


def _print_scopes(found: Plan) -> None:
    if not any(scope.partition_values for scope in found.scopes) and len(found.groups) <= 1:
        return  # one partition, whose only group says it all
    columns = ["partition", "files", "small", "dead rows", "unclustered", "opens", "score", "debt"]
    rows = [
        (
            _partition(scope.partition_values),
            f"{scope.files:,}",
            f"{scope.small_files:,}",
            f"{scope.dead_rows:,}",
            f"{scope.unclustered_files:,}",
            f"{scope.read_amplification:,.1f}x",
            f"{scope.score:,.1f}",
            output.coloured(scope.reason, ""),
        )
        for scope in found.scopes[:_MAX_ROWS]
    ]
    _print_section("partitions with debt", columns, rows, numbers=(1, 2, 3, 4, 5, 6))
    _print_more(len(found.scopes), "partition")


def _print_files(found: Plan) -> None:
    if not found.reasons:
        return
    chosen = {True: output.coloured("yes", "green"), False: output.coloured("no", "")}
    # As a Text a reason is never cut to the usual length of a cell. Files that are rewritten come first.
    shown = sorted(found.reasons, key=lambda reason: not reason.chosen)[:_MAX_ROWS]
    rows = [(reason.path, chosen[reason.chosen], output.coloured(reason.reason, "")) for reason in shown]
    _print_section("files", ["file", "chosen", "why"], rows)
    _print_more(len(found.reasons), "file")


def _print_section(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()
) -> None:
    output.say("")
    output.say(f"{title}:")
    output.write_grid(columns, rows, numbers=numbers, reasons=True)


def _print_more(count: int, what: str) -> None:
    if count > _MAX_ROWS:
        output.say(f"and {output.counted(count - _MAX_ROWS, f'more {what}')}; --json prints all")


def _why(group: PlannedGroup) -> str:
    clustered = f"; clustered by {', '.join(group.cluster_by)}" if group.cluster_by else ""
    return f"{group.reason}{clustered}"


def _partition(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values.items()) or "all"


def _of(values: Mapping[str, str | None]) -> str:
    return f" of {_partition(values)}" if values else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - two digits are enough


def _odds(odds: float) -> str:
    return f"{odds:.0%}" if odds >= 0.01 or not odds else "<1%"  # noqa: PLR2004 - a percent

"""What must be true in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from examples.shared.check import Check
from tests.soak.bounds import Bound
from tests.soak.conductor import Soaked, happened
from tests.soak.flatness import MIB, Flatness
from tests.soak.folder import Folder
from tests.soak.journal import Journal
from tests.soak.log_tail import Commit
from tests.soak.replica import position_of, rows_of
from tests.soak.rows import SCHEMA, Row, Written
from tests.soak.settings import CONSUMERS, STREAMS, Settings
from tests.soak.stream import streamed_rows
from tidelog.log import Table

_SHOWN = 3


def written(folder: Folder, settings: Settings) -> Written:
    """What the programs have written, by their own records: Spark's checkpoints and the journal."""
    journal = Journal.read(folder.journal)
    streamed = {name: streamed_rows(folder, name) for name in STREAMS}
    return Written(settings.seed, journal.round, journal.dropped_below, streamed, settings.part_rows)


def row_checks(folder: Folder, settings: Settings) -> Iterator[Check]:
    """Every row is accounted for: in the table, for another engine, and in the replicas."""
    table = Table.open(str(folder.table))
    paths = table.at().files()["path"].to_pylist()
    missing = [path for path in paths if not (folder.table / unquote(path)).exists()]
    yield Check(f"every live file is there: {len(paths):,}, of which {len(missing)} missing", not missing)
    if missing:
        return
    found = list(_rows(table.scan().to_arrow()))
    expected = written(folder, settings)
    streamed = ", ".join(f"{count:,} by {name}" for name, count in expected.streamed.items())
    yield _same(f"rows as computed from {streamed} and {expected.rounds:,} rounds", found, expected.rows())
    yield _same("delta-rs reads the same rows", _by_delta_rs(table), found)
    for name in CONSUMERS:
        position = position_of(folder.replica(name))
        what = (
            f"the {name} consumer's replica, {position.batches:,} batches, {position.replays} again"
            if position
            else name
        )
        yield _same(what, rows_of(folder.replica(name)), found)


def log_checks(commits: Sequence[Commit], folder: Folder, settings: Settings) -> Iterator[Check]:
    """Each micro-batch is one commit, and no daemon commits after another one has taken over."""
    batches: dict[str, list[int]] = defaultdict(list)
    for commit in commits:
        if commit.batch:
            batches[commit.batch[0]].append(commit.batch[1])
    wanted = sorted(count // settings.batch_rows for count in written(folder, settings).streamed.values())
    in_order = all(numbers == list(range(len(numbers))) for numbers in batches.values())
    found = sorted(map(len, batches.values()))
    yield Check(f"each micro-batch is one commit, in order: {found} batches of {wanted}", in_order and found == wanted)

    epochs = [commit.epoch for commit in commits if commit.epoch is not None]
    late = sum(after < before for before, after in pairwise(epochs))
    yield Check(f"{len(epochs):,} commits of daemons in {len(set(epochs))} epochs, {late} after a takeover", not late)
    lawless = sum(commit.is_compaction and commit.epoch is None for commit in commits)
    yield Check(f"every compaction carries the epoch of its daemon, but for {lawless}", not lawless)


def happened_checks(soaked: Soaked, settings: Settings) -> Iterator[Check]:
    """That everything happened which the soak is for."""
    return (Check(what, holds) for what, holds in happened(soaked, settings).items())


def bound_check(bound: Bound) -> Check:
    """Whether a curve is below its bound."""
    measured, allowed = bound.nearest
    return Check(
        f"{bound.what} bounded: at most {max(bound.measured, default=0):,.0f}; nearest to the bound at {measured:,.0f} "
        f"of {allowed:,.0f}; above it in {sum(bound.over)} of {len(bound.over)} samples",
        bound.holds,
    )


def flatness_check(found: Flatness) -> Check:
    """Whether a curve is flat."""
    unit, name = (MIB, " MiB") if found.what == "memory" else (1, "")
    return Check(
        f"{found.what} of {found.process} flat: median {found.median / unit:,.0f}{name}, grew by "
        f"{found.growth / unit:,.1f}{name} of {found.allowed / unit:,.0f} in {found.seconds:,.0f} s",
        found.is_flat,
    )


def _same(what: str, found: Iterable[Row], expected: Iterable[Row]) -> Check:
    have, want = Counter(found), Counter(expected)
    missing, extra = want - have, have - want
    shown = [f"missing {row}" for row in list(missing)[:_SHOWN]] + [f"extra {row}" for row in list(extra)[:_SHOWN]]
    counts = f"{have.total():,} of {want.total():,}, {missing.total()} missing, {extra.total()} extra"
    return Check("; ".join([f"{what}: {counts}", *shown]), not missing and not extra)


def _rows(rows: pa.Table) -> Iterator[Row]:
    columns = [rows[name].to_pylist() for name in SCHEMA.names]
    return (Row(*values) for values in zip(*columns, strict=True))


def _by_delta_rs(table: Table) -> Iterator[Row]:
    rows = QueryBuilder().register("rows", DeltaTable(table.path)).execute("SELECT * FROM rows").read_all()
    return _rows(pa.table(rows))

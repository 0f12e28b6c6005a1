"""What must be true at the end of a run, by an independent reader and the oracle's serial model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from tests.log.oracle import checks as oracle
from tests.log.oracle.model import Row
from tests.log.oracle.operations import Insert, Kind
from tests.log.oracle.settings import INITIAL_VERSION, SCHEMA, Setting
from tests.log.oracle.view import BrokenLogError, Reader, View, actions, follow, initial
from tests.simulation.actors import CLEAN_UP_AGE, Actor, Compacted, Created, RestoreTo, rows_of
from tests.simulation.files import Stored
from tests.simulation.history import MARKS, Incarnation, Owner, Written
from tests.simulation.process import Process
from tests.simulation.record import Record, Seen, Told
from tests.simulation.world import World
from tidelog.compaction_daemon.planning.request import AUTO_LEVEL
from tidelog.log import Table
from tidelog.log.errors import DataFileMissingError, HistoryExpiredError, TableNotFoundError

_BEGINNINGS: dict[Setting, tuple[dict[int, View], Reader]] = {}
# How many of the retained versions are read again, beside the newest one.
_SAMPLE = 2


@dataclass(frozen=True)
class Kept:
    """What no clean-up may take: the log from the version `log` on, and the data files from the version `data` on.

    A clean-up keeps what is a day old by the clock of its machine, so the bounds follow from what that clock showed.
    `data` is the horizon that was announced, and `announceable` how late it may be.
    """

    log: int
    data: int
    announceable: int

    @classmethod
    def of(cls, world: World, table: Incarnation) -> Kept:
        log = _at_cutoff(world, table, "Expire")
        return cls(
            log,
            max(written.horizon for written in table.commits.values()),
            max(log, _at_cutoff(world, table, "Vacuum")),
        )


def _at_cutoff(world: World, table: Incarnation, job: str) -> int:
    """The newest version of the table at the cut-off of any such clean-up of it; its first one if there was none."""
    looked = (
        each.latest_ms
        for each in world.records.values()
        if job in each.what.split() and each.table_id == table.table_id
    )
    cutoff_ms = max(looked, default=0) - CLEAN_UP_AGE // timedelta(milliseconds=1)
    older = (version for version, written in table.commits.items() if written.timestamp_ms <= cutoff_ms)
    return max(older, default=table.first)


class TableHistory:
    """One table as the oracle sees it: the rows at each of its versions."""

    def __init__(self, world: World, table: Incarnation) -> None:
        commits = {f"_delta_log/{version:020d}.json": each.content for version, each in table.commits.items()}
        self.world = world
        self.table = table
        self._stored = Stored(world.files, commits)
        self.reader = Reader(self._stored)

    @cached_property
    def views(self) -> dict[int, View]:
        """The table at each version. Reports what is wrong with its commits."""
        views, known = self._beginning()
        view = views[max(views)]
        self.reader.share(known)
        for version in range(view.version + 1, self.table.head + 1):
            written = self.table.commits[version]
            if written.ends_table:
                break
            before, view = view, follow(view, written.lines, self.reader)
            views[version] = view
            record = self.world.records.get(written.owner) if written.owner else None
            for check, text in self._faults(before, view, record, version, views):
                self.world.object(check, f"version {version} by {record}: {text}")
        return views

    def _beginning(self) -> tuple[dict[int, View], Reader | None]:
        """The versions that every run begins with, which are read once; otherwise the table's first version."""
        if self.table is not self.world.history.incarnations[0]:
            view = initial(self.reader, self.table.first)
            return {view.version: view}, None
        setting = self.world.scenario.setting
        if setting not in _BEGINNINGS:
            # A reader of its own: the names of all other files come back in other runs, with another content.
            reader = Reader(dict(self._stored))
            view = initial(reader)
            views = {0: view}
            for version in range(1, INITIAL_VERSION + 1):
                views[version] = view = follow(view, self.table.commits[version].lines, reader)
            _BEGINNINGS[setting] = views, reader
        views, reader = _BEGINNINGS[setting]
        return dict(views), reader

    def rows(self, version: int) -> Counter[Row]:
        """The rows at a version. There are none before the table's first."""
        if version == self.table.first - 1:
            return Counter()
        return Counter(self.views[version].rows.values())

    def _faults(
        self, before: View, after: View, record: Record | None, version: int, views: dict[int, View]
    ) -> Iterator[tuple[str, str]]:
        written = self.table.commits[version]
        if written.owner is None:
            return
        if written.is_empty or record is None or record.operation is None:
            if after.rows != before.rows:
                yield "rows", "they changed in a commit that should change none"
            if after.timestamp_ms <= before.timestamp_ms:
                yield "log", f"its time {after.timestamp_ms} is not after {before.timestamp_ms}"
            return
        operation = record.operation
        if operation == Compacted("COMPACT", AUTO_LEVEL):
            operation = Compacted("COMPACT", _level(written))
        restorable = views[operation.version].rows if isinstance(operation, RestoreTo) else {}
        effect = operation.effect(before.moment(restorable))
        others = (each.owner is None for at, each in self.table.commits.items() if INITIAL_VERSION < at < version)
        commit = oracle.Commit(
            operation, before, after, written.lines, self.reader, restorable, effect, unmapped=any(others)
        )
        yield from oracle.all_of(commit)


def _level(written: Written) -> str:
    """The level that a commit of a daemon says it has; a daemon chooses one for each group."""
    said = str((written.lines[0]["commitInfo"].get("tidelog") or {}).get("class"))
    return said if said in {"MINOR", "MAJOR"} else AUTO_LEVEL


def audit(world: World, actors: list[Actor]) -> None:
    """Check everything. The store is at rest, and answers."""
    try:
        tables = {table.table_id: TableHistory(world, table) for table in world.history.incarnations}
        for table in tables.values():
            _ = table.views
        check_told(world, tables)
        world.epochs.check_log()
        check_tables(world)
        for actor in actors:
            for seen in actor.seen:
                check_seen(world, tables, seen)
        if not world.objections:
            check_store(world, tables[world.history.current.table_id])
    except BrokenLogError as error:
        world.object("broken", str(error))


def check_told(world: World, tables: dict[str, TableHistory]) -> None:
    """Whoever was told "committed" is in the log exactly once, and whoever was refused is not.

    A compaction can commit several times, and is told of all of them.
    """
    made: dict[Owner, list[tuple[str, int]]] = {}
    for table in world.history.incarnations:
        for written in table.commits.values():
            if written.owner is not None and not written.is_empty:
                made.setdefault(written.owner, []).append((table.table_id, written.version))
    for who, record in world.records.items():
        operation, found = record.operation, made.get(who, [])
        if operation is None or isinstance(operation, Created):
            continue
        if len(found) > 1 and operation.kind is not Kind.COMPACTION:
            world.object("once", f"{record} was committed as {found}")
        if record.told in {Told.REFUSED, Told.IDLE} and found:
            world.object("refused", f"{record} is in the log as {found}")
        if record.told is not Told.COMMITTED:
            continue
        assert record.table_id is not None
        assert record.version is not None
        if not found:
            _check_idle(world, tables[record.table_id], record, record.version)
        elif found != [(record.table_id, version) for version in record.versions or (record.version,)]:
            world.object("committed", f"{record} is in the log as {found}")
    check_keys(world)


def _check_idle(world: World, table: TableHistory, record: Record, version: int) -> None:
    """A commit that is not in the log must have had nothing to do."""
    operation = record.operation
    assert operation is not None
    if operation.kind in {Kind.METADATA, Kind.COMPACTION} or isinstance(operation, RestoreTo):
        if operation.kind is Kind.COMPACTION:
            world.object("committed", f"{record} is not in the log")
        return
    view = table.views.get(version)
    if view is None or not operation.effect(view.moment({})).is_empty:
        world.object("committed", f"{record} is not in the log")


def check_tables(world: World) -> None:
    """A drop that returned ended a table, or found it ended; a create that returned made a table of its own."""
    tables = world.history.incarnations
    for who, record in world.records.items():
        if not isinstance(record.operation, Created):
            continue
        made = [(table.table_id, table.first) for table in tables if table.commits[table.first].owner == who]
        ended = [(table.table_id, table.head) for table in tables if table.ended and table.last.owner == who]
        if len(made + ended) > 1:
            world.object("once", f"{record} was committed as {made + ended}")
        if record.told in {Told.IDLE, Told.REFUSED} and made:
            world.object("refused", f"{record} is in the log as {made}")
        if record.told is Told.COMMITTED and not (made or ended or _was_dropped(tables, record)):
            world.object("committed", f"{record} is not in the log")


def _was_dropped(tables: list[Incarnation], record: Record) -> bool:
    """Whether it is a drop, and the path held a dropped table at some time while it ran."""
    assert record.ended_ms is not None
    return record.what == "Drop" and any(
        table.ended
        and table.last.ms <= record.ended_ms
        and (following is None or following.commits[following.first].ms >= record.began_ms)
        for table, following in itertools.zip_longest(tables, tables[1:])
    )


def check_keys(world: World) -> None:
    """An idempotency key is committed at most once in each table, and the versions of an application increase."""
    for table in world.history.incarnations:
        found = [
            (txn["appId"], txn["version"])
            for written in table.commits.values()
            for txn in actions(written.lines, "txn")
            if written.owner is not None and not txn["appId"].startswith(MARKS)
        ]
        newest: dict[str, int] = {}
        for app, version in found:
            if version <= newest.get(app, -1):
                world.object("once", f"the key {(app, version)} is committed after {newest[app]}")
            newest[app] = version
        kept = {
            record.operation.key
            for record in world.records.values()
            if record.told is Told.COMMITTED and record.table_id == table.table_id
            if isinstance(record.operation, Insert) and record.operation.key is not None
        }
        for app, version in kept:
            if newest.get(app, -1) < version:
                world.object("committed", f"the key {(app, version)} is not in the log")


def check_seen(world: World, tables: dict[str, TableHistory], seen: Seen) -> None:
    """A reader saw the rows of a version, those with the keys that it asked for, or the difference of two versions."""
    table = tables[seen.table_id]
    if seen.version not in table.views:
        world.object("reader", f"{seen.record} saw version {seen.version}, which does not exist")
    elif seen.after is None or seen.taken is None:
        wanted = table.rows(seen.version)
        if seen.keys is not None:
            wanted = Counter({row: count for row, count in wanted.items() if row.k in seen.keys})
        _compare(world, seen.record, wanted, seen.rows)
    else:
        replayed = table.rows(seen.after)
        replayed.update(seen.rows)
        replayed.subtract(seen.taken)
        _compare(world, seen.record, table.rows(seen.version), replayed)


def _compare(world: World, who: object, wanted: Counter[Row], found: Counter[Row]) -> None:
    found = Counter({row: count for row, count in found.items() if count})
    if wanted != found:
        missing, extra = wanted.copy(), found.copy()
        missing.subtract(found)
        extra.subtract(wanted)
        world.object("reader", f"{who} misses {sorted(+missing)}, has {sorted(+extra)} too many")


def check_store(world: World, table: TableHistory) -> None:
    """What a new reader finds: all rows of every version that is left, and the feed between them."""
    process = Process(world, 0xFFFF, "audit", mortal=False)
    process.store, process.system = world.connect(process)
    with world.acting(process):
        if table.table.ended:
            _check_dropped(world)
            return
        for path in (*table.table.live, *table.table.live.values()):
            if path is not None and path not in world.files.names:
                world.object("missing", f"the live file {path} is gone")
                return
        try:
            _check_readable(world, table, process)
        except Exception as error:  # noqa: BLE001 - whatever keeps the table from being read
            world.object("readable", f"{type(error).__name__}: {error}")


def _check_readable(world: World, table: TableHistory, process: Process) -> None:
    opened = Table.open(world.url, system=process.system)
    head = table.table.head
    if (opened.id, opened.version) != (table.table.table_id, head):
        world.object("reader", f"a new reader finds {opened.id} at {opened.version} instead of {head}")
        return
    _compare(world, f"a new reader of {head}", table.rows(head), Counter(rows_of(opened.scan().to_arrow())))
    _check_contiguous(world, head)
    earliest = opened.history()[-1].version
    kept = Kept.of(world, table.table)
    if earliest > kept.log:
        world.object("lost", f"the history begins with version {earliest}, though every one from {kept.log} on is kept")
    if kept.data > kept.announceable:
        world.object("lost", f"the horizon is {kept.data}, though every version from {kept.announceable} on is kept")
    retained = range(max(earliest, table.table.first), head)
    for version in world.random.sample(retained, min(_SAMPLE, len(retained))):
        try:
            rows = Counter(rows_of(opened.at(version=version).scan().to_arrow()))
        except HistoryExpiredError:
            if version >= kept.log:
                raise
        except DataFileMissingError:
            if version >= kept.data:
                raise
        else:
            _compare(world, f"a reader of {version}", table.rows(version), rows)
    _check_feed(world, table, opened, max(earliest, table.table.first), kept)


def _check_contiguous(world: World, head: int) -> None:
    """No commit is missing between the oldest one that is left and the head.

    What was put into a hole is no commit, even if it is one that was deleted there, put once more by who slept.
    """
    strays = {each.version for each in world.history.strays}
    written = {v: each for table in world.history.incarnations for v, each in table.commits.items()}
    paths = {version: f"_delta_log/{version:020d}.json" for version in written}
    left = {
        version
        for version, path in paths.items()
        if version not in strays and path in world.files.names
        if world.files.names[path].content == written[version].content
    }
    if missing := set(range(min(left, default=head), head + 1)) - left:
        world.object("contiguous", f"the versions {sorted(missing)} are missing")


def _check_feed(world: World, table: TableHistory, opened: Table, after: int, kept: Kept) -> None:
    head = table.table.head
    after = world.random.randint(after, head)
    try:
        changes = opened.changes(after=after, until=head).to_arrow()
    except HistoryExpiredError:
        if after >= max(kept.log, kept.data):
            raise
        return
    replayed = table.rows(after)
    for kind, row in zip(changes["_change_type"].to_pylist(), rows_of(changes), strict=True):
        replayed[row] += -1 if kind in oracle.TAKES else 1
    _compare(world, f"the feed after {after}", table.rows(head), replayed)


def _check_dropped(world: World) -> None:
    """The path of a dropped table takes a new one, at most after finishing the drop."""
    try:
        try:
            Table.open(world.url)
            world.object("dropped", "the table was dropped, and opens")
        except TableNotFoundError:
            pass
        _create(world)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the path
        world.object("dropped", f"the path takes no new table: {type(error).__name__}: {error}")


def _create(world: World) -> None:
    try:
        Table.create(world.url, SCHEMA)
    except TableNotFoundError:  # its drop did not end
        Table.drop(world.url)
        Table.create(world.url, SCHEMA)

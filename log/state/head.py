"""The head: the table's state without its file list. A commit needs nothing else.

Loading it does not get slower with the number of files: it comes from the newest version checksum (`.crc`) and the
commits after it or, if there is no checksum, from the few rows of the checkpoint that are not files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import commit_info, hive_paths, lineage, properties
from tidelog.log.format import protocol as protocols
from tidelog.log.format.actions import (
    AddFile,
    Commit,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of live files and their total size in bytes."""

    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Head:
    """The table at `version`, without its file list.

    `timestamp_ms` is the version's commit time. `time_version_ms` is the commit time of the newest data-changing
    commit that the head was folded from; None if there was none. `totals` is None if unknown. `commit_id` is the
    transaction id of the version's commit; None if its writer left none. `partition_folders` is whether a data file has
    ever been put into partition folders (see `hive_paths`); None if unknown.
    """

    version: int
    timestamp_ms: int
    time_version_ms: int | None
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, SetTransaction]
    domains: Mapping[str, DomainMetadata]
    totals: Totals | None
    commit_id: str | None = None
    partition_folders: bool | None = None

    @property
    def first_version(self) -> int:
        """The version that created the table; older ones belong to a table that was dropped."""
        return properties.first_version(self.metadata.configuration)

    def next_timestamp_ms(self, now_ms: int) -> int:
        """The commit time of a version that follows this one now: times increase, also with a clock that is behind."""
        return max(now_ms, self.timestamp_ms + 1)

    def partial(self) -> PartialHead:
        """The head as one that is being folded."""
        return PartialHead(
            self.protocol,
            self.metadata,
            self.transactions,
            self.domains,
            self.totals,
            self.time_version_ms,
            self.commit_id,
            self.partition_folders,
        )


@dataclass(frozen=True, slots=True)
class PartialHead:
    """A head while it is being folded from a checkpoint or the first commit: protocol and metadata may be missing."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    totals: Totals | None = None
    time_version_ms: int | None = None
    commit_id: str | None = None
    partition_folders: bool | None = False

    def complete(self, version: int, timestamp_ms: int, path: str) -> Head:
        """The head at `version`. Raises CorruptLogError if protocol or metadata is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metadata"
            raise CorruptLogError(
                f"the log of {path} has no {missing} action up to version {version}",
                advice="copy _delta_log back from a backup",
                path=path,
            )
        return Head(
            version,
            timestamp_ms,
            self.time_version_ms,
            self.protocol,
            self.metadata,
            self.transactions,
            self.domains,
            self.totals,
            self.commit_id,
            self.partition_folders,
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """What a commit says about the head, collected from its actions once.

    `num_files` and `size_bytes` are how many files and bytes it adds; None if the commit alone does not say.
    """

    others: Sequence[Protocol | Metadata | SetTransaction | DomainMetadata]
    changes_rows: bool
    num_files: int | None
    size_bytes: int
    commit_id: str | None
    adds: Sequence[AddFile]

    @classmethod
    def of(cls, commit: Commit) -> _Step:
        adds, removes = commit.adds, commit.removes
        sizes = sum([add.size for add in adds]) - sum([remove.size or 0 for remove in removes])
        # Two legal kinds of actions cannot be counted: a remove without a size, and adding a live logical file again,
        # for example with new statistics, which a writer marks with dataChange=false. tidelog's compactions can be
        # counted despite dataChange=false: they record their lineage and add only new files.
        is_countable = None not in [remove.size for remove in removes] and (
            False not in [add.data_change for add in adds]
            or lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage")) is not None
        )
        num_files = len(adds) - len(removes) if is_countable else None
        return cls(commit.others, commit.data_change, num_files, sizes, commit_info.txn_id(commit.info), adds)


def fold(
    heads: Sequence[PartialHead], commits: Sequence[Commit], timestamp_ms: Callable[[Commit], int]
) -> tuple[list[PartialHead], int]:
    """Heads of the same version after one or more commits, and the time of the newest.

    The newest action of each kind (or application, or domain) wins. A commit that creates a table on the path of a
    dropped one starts afresh: nothing of the old table is left.

    `timestamp_ms` gives the time of a commit, which can be a request to the store. So it is called only for the commits
    whose time the head may keep: the newest one, and the newest one that changed rows.
    """
    steps = [_Step.of(commit) for commit in commits]
    newest = len(steps) - 1
    changed = max((number for number, step in enumerate(steps) if step.changes_rows), default=newest)
    # The time of any other commit is replaced by that of `changed`, or forgotten with a table that was dropped.
    stamps = {number: timestamp_ms(commits[number]) for number in sorted({changed, newest})}
    after = []
    for start in heads:
        head = start
        for number, step in enumerate(steps):
            head = _after(head, step, stamps.get(number, 0))
        after.append(head)
    return after, stamps[newest]


def _after(head: PartialHead, step: _Step, timestamp_ms: int) -> PartialHead:
    if _creates_again(head, step):
        head = PartialHead(totals=head.totals)
    protocol, metadata = head.protocol, head.metadata
    transactions: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    for action in step.others:
        match action:
            case Protocol():
                protocol = action
            case Metadata():
                metadata = action
            case SetTransaction():
                transactions[action.app_id] = action
            case DomainMetadata():
                domains[action.domain] = action
    return PartialHead(
        protocol,
        metadata,
        {**head.transactions, **transactions} if transactions else head.transactions,
        _merge_domains(head.domains, domains),
        _added(head.totals, step),
        timestamp_ms if step.changes_rows else head.time_version_ms,
        step.commit_id,
        _partition_folders(head, metadata, step),
    )


def _partition_folders(head: PartialHead, metadata: Metadata | None, step: _Step) -> bool | None:
    columns = metadata.partition_columns if metadata is not None else ()
    # A commit that changes the partition columns replaces all files.
    is_kept = head.metadata is None or head.metadata.partition_columns == columns
    known = head.partition_folders if is_kept else False
    is_any = bool(columns) and not known and hive_paths.is_any_inside([add.path for add in step.adds], columns)
    return True if is_any else known


def _creates_again(head: PartialHead, step: _Step) -> bool:
    if head.protocol is None or head.metadata is None:
        return False
    old = head.metadata.id
    is_other = any(action.id != old for action in step.others if isinstance(action, Metadata))
    return is_other and protocols.is_dropped(head.protocol)


def advance(head: Head, commits: Sequence[Commit], timestamp_ms: Callable[[Commit], int], path: str) -> Head:
    """The head after more commits; see `advance_all`."""
    return advance_all([head], commits, timestamp_ms, path)[0]


def advance_all(
    heads: Sequence[Head], commits: Sequence[Commit], timestamp_ms: Callable[[Commit], int], path: str
) -> list[Head]:
    """Several heads of the same version after more commits; see `fold`."""
    if not commits:
        return list(heads)
    after, newest_ms = fold([head.partial() for head in heads], commits, timestamp_ms)
    return [head.complete(commits[-1].version, newest_ms, path) for head in after]


def with_totals(head: Head, totals: Totals) -> Head:
    """The same head with other totals."""
    return replace(head, totals=totals)


def _merge_domains(
    old: Mapping[str, DomainMetadata], new: Mapping[str, DomainMetadata]
) -> Mapping[str, DomainMetadata]:
    if not new:
        return old
    return {name: domain for name, domain in {**old, **new}.items() if not domain.removed}


def _added(totals: Totals | None, step: _Step) -> Totals | None:
    """The totals after the commit; None if the commit alone does not determine them."""
    if totals is None or step.num_files is None:
        return None
    return Totals(totals.num_files + step.num_files, totals.size_bytes + step.size_bytes)

"""The head: the table's state without its file list. A commit needs nothing else.

Loading it does not get slower with the number of files: it comes from the newest version checksum (`.crc`) and the
commits after it or, if there is no checksum, from the few rows of the checkpoint that are not files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import commit_info, lineage, properties
from tidelog.log.format import protocol as protocols
from tidelog.log.format.actions import (
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
    transaction id of the version's commit; None if its writer left none.
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

    @property
    def first_version(self) -> int:
        """The version that created the table; older ones belong to a table that was dropped."""
        return properties.first_version(self.metadata.configuration)


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

    def complete(self, version: int, timestamp_ms: int, path: str) -> Head:
        """The head at `version`. Raises CorruptLogError if protocol or metadata is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metadata"
            raise CorruptLogError(
                f"the log of {path} has no {missing} action up to version {version}",
                advice="restore the log from a backup",
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
        )


def fold(head: PartialHead, commit: Commit, timestamp_ms: int) -> PartialHead:
    """The head after `commit`: the newest action of each kind (or application, or domain) wins.

    A commit that creates a table on the path of a dropped one starts afresh: nothing of the old table is left.
    """
    if _creates_again(head, commit):
        head = PartialHead(totals=head.totals)
    protocol, metadata = head.protocol, head.metadata
    transactions: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    for action in commit.others:
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
        _add_totals(head.totals, commit),
        timestamp_ms if commit.data_change else head.time_version_ms,
        commit_info.txn_id(commit.info),
    )


def _creates_again(head: PartialHead, commit: Commit) -> bool:
    if head.protocol is None or head.metadata is None or not protocols.is_dropped(head.protocol):
        return False
    return any(isinstance(action, Metadata) and action.id != head.metadata.id for action in commit.others)


def advance(head: Head, commits: Sequence[Commit], timestamp_ms: Callable[[Commit], int], path: str) -> Head:
    """The head after more commits.

    `timestamp_ms` gives the time of a commit, which can be a request to the store. So it is called only for the commits
    whose time the head may keep: the newest one, and the newest one that changed rows.
    """
    if not commits:
        return head
    newest = commits[-1]
    changed = next((commit for commit in reversed(commits) if commit.data_change), None)
    partial = PartialHead(
        head.protocol, head.metadata, head.transactions, head.domains, head.totals, head.time_version_ms, head.commit_id
    )
    for commit in commits:
        # The time of any other commit is replaced by that of `changed`, or forgotten with a table that was dropped.
        stamp = timestamp_ms(commit) if commit is newest or commit is changed else 0
        partial = fold(partial, commit, stamp)
    return partial.complete(newest.version, stamp, path)


def with_totals(head: Head, totals: Totals) -> Head:
    """The same head with other totals."""
    return replace(head, totals=totals)


def _merge_domains(
    old: Mapping[str, DomainMetadata], new: Mapping[str, DomainMetadata]
) -> Mapping[str, DomainMetadata]:
    if not new:
        return old
    return {name: domain for name, domain in {**old, **new}.items() if not domain.removed}


def _add_totals(totals: Totals | None, commit: Commit) -> Totals | None:
    """The totals after the commit; None if the commit alone does not determine them."""
    if totals is None:
        return None
    adds, removes = commit.adds, commit.removes
    if not _is_countable(commit):
        return None
    sizes = sum(add.size for add in adds) - sum(remove.size or 0 for remove in removes)
    return Totals(totals.num_files + len(adds) - len(removes), totals.size_bytes + sizes)


def _is_countable(commit: Commit) -> bool:
    """Whether every add is a new logical file and every remove takes a live one of known size.

    Two legal kinds of actions cannot be counted: a remove without a size, and adding a live logical file again, for
    example with new statistics, which a writer marks with dataChange=false. tidelog's compactions are countable despite
    dataChange=false: they record their lineage and add only new files.
    """
    if any(remove.size is None for remove in commit.removes):
        return False
    compacted = lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage")) is not None
    return compacted or all(add.data_change for add in commit.adds)

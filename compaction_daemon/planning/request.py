"""What to compact and how: the arguments of a plan, and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from tidelog.compaction_daemon.planning.plan import MAJOR, MINOR, SORT
from tidelog.log import Snapshot
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.clustering import LIQUID, clustering_columns, require_clusterable
from tidelog.log.format.schema import own_names, physical_name
from tidelog.log.presentable import brief

AUTO_LEVEL = "auto"
LEVELS = (MINOR, MAJOR, AUTO_LEVEL)
# How many times its largest file a group must be before a daemon rewrites it. A rewrite of a smaller group would mostly
# repeat the last one: with this bound a byte is rewritten about log2(target / file size) times while files keep
# arriving, not once for every file that follows it.
GROWTH = 2.0
# With more, nothing would ever be packed.
GREATEST_GROWTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one compaction takes on; it takes on at least one group, whatever that costs.

    Args:
        size_bytes: The most bytes to read; None for no such bound.
        seconds: The longest time, as predicted; None for no such bound.

    Raises:
        ConfigurationError: A bound is not above zero.
    """

    size_bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("size_bytes", self.size_bytes), ("seconds", self.seconds)):
            if value is not None and not value > 0:
                raise ConfigurationError(f"the budget's {name} is {value}", advice="give more than zero, or None")


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What to compact and how: the arguments of `compact`, `stage`, `plan`, `Table.compact` and `SparkTable.compact`.

    Args:
        level: `minor` packs small files of one partition into one file each, in order. `major` also rewrites files with
            many dead rows, and clusters rows. `auto` does what a daemon would do next: `minor` in partitions that are
            being written, `major` in quiet ones.
        where: SQL over partition columns that chooses partitions; None for all of them.
        growth: For `minor` and `auto`, about how many times its largest file a group must be; at least 1. 1.0 packs all
            that it can; a daemon uses 2.0, which waits until a rewrite pays.
        cluster_by: For `major` and `auto`, the columns to cluster rows by; by default those of `tidelog.clusterBy`, or
            else those by which another engine clusters the table.
        purge: For `major` and `auto`, rewrite every file that has a dead row, not only those with many, even if files
            become larger.
        cluster_order: For `major` and `auto`, `hilbert` or `sort`; by default that of `tidelog.clusterOrder`.

    Raises:
        ConfigurationError: The level is unknown or does not support an option, `growth` is not a number from 1, or
            `cluster_by` is not a list of names.
    """

    level: str = MINOR
    where: str | None = None
    growth: float = 1.0
    cluster_by: Sequence[str] = ()
    purge: bool = False
    cluster_order: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cluster_by, str):  # it would be a sequence of letters
            raise ConfigurationError(
                "cluster_by must be a list of column names, not a string", advice=f"give a list: [{self.cluster_by!r}]"
            )
        # The class is frozen, and a request is compared with others.
        object.__setattr__(self, "cluster_by", tuple(self.cluster_by))
        growth: object = self.growth
        if isinstance(growth, bool) or not isinstance(growth, int | float) or not 1 <= growth <= GREATEST_GROWTH:
            raise ConfigurationError(
                f"growth is {brief(growth)}", advice=f"give a number from 1 up to {GREATEST_GROWTH:,}"
            )
        if self.level not in LEVELS:
            allowed = ", ".join(LEVELS)
            raise ConfigurationError(f"there is no compaction level {self.level!r}", advice=f"use one of {allowed}")
        if self.level == MINOR and (self.cluster_by or self.purge or self.cluster_order):
            raise ConfigurationError(
                "a minor compaction neither clusters nor purges",
                advice="use the level major, or leave out both options",
            )
        if self.cluster_order is not None and self.cluster_order not in properties.CLUSTER_ORDERS:
            allowed = ", ".join(properties.CLUSTER_ORDERS)
            raise ConfigurationError(
                f"there is no cluster order {self.cluster_order!r}", advice=f"use one of {allowed}"
            )


# What is due, as a daemon with its own settings finds it.
DUE = CompactionRequest(AUTO_LEVEL, growth=GROWTH)


def with_clustering(snapshot: Snapshot, request: CompactionRequest) -> tuple[CompactionRequest, tuple[str, ...]]:
    """The request with the columns and the order that it leaves to the table; and notes.

    The table's columns are those of its property `tidelog.clusterBy`, or else those that another engine clusters it by,
    unless it has files that yet another engine clustered: nobody else may cluster those again.
    Raises ConfigurationError if rows cannot be clustered by these columns. Columns of the table's property that were
    dropped or changed since keep only the level `major` from being planned, and are a note at the level `auto`.
    """
    if request.level == MINOR:
        return request, ()
    named = request.cluster_by or properties.cluster_by(snapshot.properties)
    columns = tuple(own_names([name], snapshot.schema)[0] for name in named)
    notes: tuple[str, ...] = ()
    if not columns:
        columns = clustering_columns(snapshot.state.head.domains, snapshot.schema)
        strange = _other_providers(snapshot) if columns else ()
        if strange:
            columns, notes = (), (f"rows are not clustered: {', '.join(strange)} clustered files of the table",)
    try:
        require_clusterable(snapshot.schema, snapshot.partition_by, columns)
    except ConfigurationError as error:
        if request.level != AUTO_LEVEL or request.cluster_by:
            raise
        columns, notes = (), (f"{properties.CLUSTER_BY} is ignored: {error}",)
    order = request.cluster_order or properties.cluster_order(snapshot.properties)
    return replace(request, cluster_by=columns, cluster_order=order if len(columns) > 1 else SORT), notes


def _other_providers(snapshot: Snapshot) -> tuple[str, ...]:
    """Who else clustered live files."""
    found = pc.unique(snapshot.files()["clusteringProvider"]).to_pylist()
    return tuple(sorted(set(found) - {None, LIQUID}))


def physical_columns(snapshot: Snapshot, request: CompactionRequest) -> tuple[str, ...]:
    """The physical names of the columns to cluster by."""
    return tuple(physical_name(snapshot.schema.field(name)) for name in request.cluster_by)

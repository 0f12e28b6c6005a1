"""What tidelog would do on a table that another engine made: what it cannot, what it would set, and whom that affects.

Everything here is decided from the table's protocol, metadata, progress of streams and the names of its writers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelog.log.errors import TidelogError, UnsupportedFeatureError
from tidelog.log.format import hive_paths, properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.protocol import (
    GENERAL_ADVICE,
    WRITER_FEATURES,
    allows,
    refusal,
    require_readable,
    require_writable,
    with_feature,
)
from tidelog.log.format.row_tracking import tracked_fields
from tidelog.log.format.schema import columns_of
from tidelog.log.rules import refusals

_DAY_MS = 86_400_000
# Below this, a consumer that stops over a weekend can lose its place.
_SHORT_RETENTION_MS = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why tidelog cannot read the table, write it, or insert and update rows.

    Attributes:
        doing: `read`, `write`, or `insert`: then deletes, compactions and clean-ups work.
        what: The feature, version, type or rule.
        reason: Why not.
        advice: What to do.
    """

    doing: str
    what: str
    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property that tidelog would set, or with the value None remove.

    Attributes:
        key: The property.
        present: Its value now; None if it is not set.
        value: The value to set; None to remove it.
        reason: What it is for.
        effect: What it changes for other engines.
        upgrade: How the protocol changes, such as `adds the feature inCommitTimestamp`; None if it does not.
    """

    key: str
    present: str | None
    value: str | None
    reason: str
    effect: str
    upgrade: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignStream:
    """A stream of another engine that wrote to the table.

    Attributes:
        app_id: Its application id.
        batch: Its newest batch.
    """

    app_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Another engine that committed recently.

    Attributes:
        engine: Its name, as its commits say.
        commits: How many of the commits looked at are its own.
        last_version: The newest of them.
        locked_out_by: The properties to set that it cannot write with; None if that is not known.
    """

    engine: str
    commits: int
    last_version: int
    locked_out_by: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the files of a partitioned table are, and where tidelog puts new ones.

    Attributes:
        in_folders: Whether new files go into partition folders such as `day=2026-01-31/`; otherwise into folders with
            random names.
        reason: Why.
        files: How many files the table has.
        outside: How many of them are outside of partition folders although they could be inside; 0 if not `in_folders`.
    """

    in_folders: bool
    reason: str
    files: int
    outside: int


def placement_of(metadata: Metadata, adds: pa.Table, *, in_folders: bool) -> Placement | None:
    """Where files go; None for a table without partitions.

    Args:
        metadata: The table's metadata.
        adds: Its live files, as `Snapshot.files` returns them.
        in_folders: Whether new files go into partition folders, as the loaded version says.
    """
    if not metadata.partition_columns:
        return None
    reason = "its files are in such folders" if in_folders else "none of its files is in a partition folder"
    if not in_folders and not hive_paths.may_be_used(metadata):
        is_mapped = metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none"
        reason = "its columns are mapped" if is_mapped else f"{properties.RANDOM_PREFIXES} is set"
        reason += ", and then other engines do so, too"
    outside = hive_paths.are_misplaced(adds, metadata.partition_columns).sum() if in_folders else 0
    return Placement(in_folders, reason, adds.num_rows, int(outside))


@dataclass(frozen=True, slots=True)
class Adoption:
    """What adopting a table means. `notes` are facts that change nothing by themselves."""

    obstacles: tuple[Obstacle, ...]
    changes: tuple[PropertyChange, ...]
    streams: tuple[ForeignStream, ...]
    writers: tuple[OtherWriter, ...]
    notes: tuple[str, ...]


def adoption_of(
    protocol: Protocol,
    metadata: Metadata,
    transactions: Mapping[str, int],
    engines: Sequence[tuple[int, str | None]],
    path: str,
) -> Adoption:
    """Decide what adopting a table means.

    Args:
        protocol: The table's protocol.
        metadata: Its metadata.
        transactions: The newest version of each application id.
        engines: The version and the engine of recent commits, newest first.
        path: The table, for errors.
    """
    obstacles = tuple(_obstacles(protocol, metadata, path))
    is_usable = all(obstacle.doing == "insert" for obstacle in obstacles)
    changes = tuple(_changes(protocol, metadata.configuration)) if is_usable else ()
    streams = [ForeignStream(key, batch) for key, batch in sorted(transactions.items()) if _is_foreign(key)]
    writers = _writers(engines, [change.key for change in changes if change.upgrade])
    notes = [*_notes(metadata)]
    if is_usable:
        notes += [f"{error.message}; {error.advice}" for error in refusals.without_spark(metadata, path)]
    return Adoption(obstacles, changes, tuple(streams), tuple(writers), tuple(notes))


def _is_foreign(app_id: str) -> bool:
    return not app_id.startswith("tidelog/")


# --- what is in the way ----------------------------------------------------------------------------------------------


def _obstacles(protocol: Protocol, metadata: Metadata, path: str) -> Iterator[Obstacle]:
    try:
        require_readable(protocol, path)
    except UnsupportedFeatureError as error:
        yield from _features(error, "read")
        return
    try:
        columns_of(metadata, path)
    except TidelogError as error:
        yield _obstacle(error, "read", "the schema")
        return
    try:
        require_writable(protocol, metadata, path)
        tracked_fields(metadata)
    except UnsupportedFeatureError as error:
        yield from _features(error, "write")
        return
    for refused in refusals.of_table(metadata, path):
        yield _obstacle(refused, "insert", "a rule")


def _features(error: UnsupportedFeatureError, doing: str) -> Iterator[Obstacle]:
    for feature in str(error.fields["features"]).split(", "):
        if feature in WRITER_FEATURES:  # supported, but not as this table has it
            yield _obstacle(error, doing, feature)
        else:
            general = (f"tidelog cannot {doing} tables that use it", GENERAL_ADVICE)
            yield Obstacle(doing, feature, *(refusal([feature]) or general))


def _obstacle(error: TidelogError, doing: str, what: str) -> Obstacle:
    return Obstacle(doing, str(error.fields.get("features", what)), error.message, error.advice)


# --- what to set -----------------------------------------------------------------------------------------------------


def _changes(protocol: Protocol, configuration: Mapping[str, str]) -> Iterator[PropertyChange]:
    def change(key: str, value: str | None, reason: str, effect: str, feature: str | None = None) -> PropertyChange:
        upgrade = None if feature is None or allows(protocol, feature) else _upgrade(protocol, feature)
        return PropertyChange(key, configuration.get(key), value, reason, effect, upgrade)

    if not properties.flag(configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS):
        yield change(
            properties.ENABLE_IN_COMMIT_TIMESTAMPS,
            "true",
            "a commit then holds its time, which increases; a file's time, used now, changes with a copy or a backup",
            "writers that do not know the feature, such as delta-rs 1.6 and Trino, can no longer write; all can read",
            "inCommitTimestamp",
        )
    if not properties.flag(configuration, properties.ENABLE_DELETION_VECTORS):
        yield change(
            properties.ENABLE_DELETION_VECTORS,
            "true",
            "an update or delete then writes a small vector and can be rebased; now it rewrites every file it touches",
            "readers and writers that do not know deletion vectors can no longer use the table",
            "deletionVectors",
        )
    if properties.TRANSACTION_RETENTION in configuration:
        yield change(
            properties.TRANSACTION_RETENTION,
            None,
            "the record of committed batches would expire, so a Sink refuses the table: a batch could be written twice",
            "other engines keep the progress of streams for ever, too",
        )
    if configuration.get(properties.ENABLE_EXPIRED_LOG_CLEANUP, "true").lower() == "true":
        yield change(
            properties.ENABLE_EXPIRED_LOG_CLEANUP,
            "false",
            "other engines clean the log up at their checkpoints without asking tidelog's consumers of the feed",
            "their checkpoints no longer delete old log files; `tidelog expire` and the daemon do",
        )
    if properties.CLEAN_UP not in configuration:
        yield change(
            properties.CLEAN_UP,
            "true",
            "the daemon then expires the log and vacuums, with the table's retentions, and waits for consumers",
            "vacuum deletes every file in the folder that is older than the retention and that no commit names",
        )


def _upgrade(protocol: Protocol, feature: str) -> str:
    wanted = with_feature(protocol, feature)
    before = (protocol.min_reader_version, protocol.min_writer_version)
    after = (wanted.min_reader_version, wanted.min_writer_version)
    adds = f"adds the feature {feature}"
    if before == after:
        return adds
    return f"{adds} and raises the protocol from reader {before[0]}, writer {before[1]} to {after[0]}, {after[1]}"


# --- who else is there -----------------------------------------------------------------------------------------------

_DELTA_SPARK = re.compile(r"Delta-Lake/(\d+)\.(\d+)")
# From which release on each feature can be written.
_SINCE: Mapping[str, tuple[int, int]] = {
    properties.ENABLE_DELETION_VECTORS: (2, 4),
    properties.ENABLE_IN_COMMIT_TIMESTAMPS: (3, 3),
}


def _writers(engines: Sequence[tuple[int, str | None]], upgrades: Collection[str]) -> Iterator[OtherWriter]:
    names: dict[str, list[int]] = {}
    for version, engine in engines:
        name = engine or "an engine that gives no name"
        if not name.startswith("tidelog/"):
            names.setdefault(name, []).append(version)
    for name, versions in names.items():
        yield OtherWriter(name, len(versions), max(versions), _locked_out(name, upgrades))


def _locked_out(engine: str, upgrades: Collection[str]) -> tuple[str, ...] | None:
    """Which of the properties with these keys keep an engine from writing; None if that is not known."""
    release = _DELTA_SPARK.search(engine)
    if release:
        found = (int(release[1]), int(release[2]))
        return tuple(key for key in upgrades if found < _SINCE[key])
    lowered = engine.lower()
    if "delta-rs" in lowered or "trino" in lowered:
        return tuple(key for key in upgrades if key == properties.ENABLE_IN_COMMIT_TIMESTAMPS)
    return None if upgrades else ()


# --- what else to know -----------------------------------------------------------------------------------------------


def _notes(metadata: Metadata) -> Iterator[str]:
    configuration = metadata.configuration
    for key in (properties.LOG_RETENTION, properties.DELETED_FILE_RETENTION):
        if properties.duration_ms(configuration, key) < _SHORT_RETENTION_MS:
            yield (
                f"{key} is {configuration[key]}: a reader of the feed that stops for longer loses its place, unless it "
                "is a registered consumer and only tidelog cleans up"
            )
    mode = configuration.get(properties.COLUMN_MAPPING_MODE, "none")
    if mode != "none":
        yield f"columns are mapped by {mode}: data files have other names, which tidelog reads and writes"
    if properties.flag(configuration, properties.ENABLE_CHANGE_DATA_FEED):
        yield "the change data feed is on: updates and deletes also write change files, which tidelog's feed needs not"
    if properties.flag(configuration, properties.APPEND_ONLY):
        yield "the table is append-only: updates, deletes and upserts are refused"
    interval = properties.count(configuration, properties.CHECKPOINT_INTERVAL)
    if properties.CHECKPOINT_INTERVAL in configuration:
        yield f"a checkpoint is due every {interval} commits, whichever engine commits"
    else:
        yield f"tidelog writes a checkpoint every {interval} commits; Delta's default for other engines is 10"

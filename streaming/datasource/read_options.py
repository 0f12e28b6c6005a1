"""The options of a read with `format("tidelog")`, parsed and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext

from tidelog.log import predicate
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.presentable import brief, did_you_mean
from tidelog.log.read.changes import require_mode
from tidelog.log.read.commit_changes import Mode
from tidelog.log.read.timeline import BEFORE_FIRST, Point
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.feed_planning.limits import ReadLimits
from tidelog.streaming.feed_planning.query_columns import QueryColumns

EARLIEST = "earliest"
LATEST = "latest"

_WHOLE_NUMBER = re.compile(r"-?\d+")
_SECRET_PREFIX = "storageoption."  # noqa: S105 - the name of an option, not a secret
READ_OPTIONS = {
    "path": "path",
    "versionasof": "versionAsOf",
    "timestampasof": "timestampAsOf",
    "after": "after",
    "startingversion": "startingVersion",
    "startingtimestamp": "startingTimestamp",
    "endingversion": "endingVersion",
    "endingtimestamp": "endingTimestamp",
    "changes": "changes",
    "keys": "keys",
    "initialsnapshot": "initialSnapshot",
    "skipchangecommits": "skipChangeCommits",
    "consumer": "consumer",
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "maxrowspertrigger": "maxRowsPerTrigger",
    "columns": "columns",
    "where": "where",
}
_STREAM_ONLY = {
    "initialsnapshot",
    "skipchangecommits",
    "consumer",
    "maxfilespertrigger",
    "maxbytespertrigger",
    "maxrowspertrigger",
}
_BATCH_ONLY = {"versionasof", "timestampasof", "endingversion", "endingtimestamp"}
_STARTS = ("after", "startingversion", "startingtimestamp")
_LOAD_AGAIN = "leave it out: after a change of columns, load the table again and start the query on its checkpoint"
# Delta's names of `changes=cdc`.
_CHANGE_FEED = {"readchangefeed": "readChangeFeed", "readchangedata": "readChangeData"}
# Options of Delta that tidelog does not have: their names, and what to do instead.
_OF_DELTA = {
    "ignorechanges": (
        "ignoreChanges",
        "use changes=cdc for all changes, or skipChangeCommits=true to leave such commits out",
    ),
    "ignoredeletes": (
        "ignoreDeletes",
        "use skipChangeCommits=true, which leaves out each commit that removed or changed rows",
    ),
    "excluderegex": ("excludeRegex", "leave it out, and filter the rows"),
    "failondataloss": ("failOnDataLoss", "leave it out: a stream never goes on where a clean-up left a gap"),
    "witheventtimeorder": ("withEventTimeOrder", "leave it out: initialSnapshot=true keeps the order of writing"),
    "schematrackinglocation": ("schemaTrackingLocation", _LOAD_AGAIN),
    "schemalocation": ("schemaLocation", _LOAD_AGAIN),
    "mergeschema": ("mergeSchema", "leave it out: all rows of a table have its columns"),
    "usermetadata": ("userMetadata", "leave it out: a commit has no text of its writer"),
    "datachange": ("dataChange", "leave it out; CALL tidelog.system.compact rewrites files without a change of rows"),
    "optimizewrite": ("optimizeWrite", "leave it out: compaction packs small files"),
    "maxrecordsperfile": ("maxRecordsPerFile", "leave it out, and repartition the frame; compaction packs small files"),
    "compression": ("compression", "leave it out"),
    "__clustering_columns": (
        "clusterBy",
        "leave .clusterBy(...) out, and use ALTER TABLE ... CLUSTER BY; saveAsTable takes it for a new table",
    ),
}
# Only SQL's CHANGES has it: in the mode `net`, an updated key also has its old row.
PRE_IMAGES = "__preimages"
# For CREATE TABLE Spark passes the properties of the new catalog entry as options; this one is always among them.
_OF_CATALOG_TABLE = "owner"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options of a read; the names are those of the reference.

    `start` is not part of the interval, unless `is_start_included`, as Delta's options say. `zone` is the session's
    time zone if a timestamp was read with it, else None. With `pre_images`, the mode `net` has the old rows of updates.
    """

    path: str
    snapshot: Point | None
    start: Point | None
    is_start_included: bool
    end: Point | None
    latest: bool
    changes: Mode | None
    keys: tuple[str, ...]
    initial_snapshot: bool
    skip_change_commits: bool
    consumer: str | None
    limits: ReadLimits
    columns: tuple[str, ...] | None
    where: str | None
    storage_options: Mapping[str, str] = field(repr=False)
    zone: str | None
    pre_images: bool = False

    @property
    def query_columns(self) -> QueryColumns:
        """What the read selects."""
        return QueryColumns(self.changes, self.where, self.columns)

    @property
    def is_interval(self) -> bool:
        """Whether the read is of an interval of changes rather than a snapshot."""
        return self.start is not None or self.end is not None or self.changes is not None or self.latest


def parse_read(
    raw: Mapping[str, str], *, streaming: bool | None = None, session_zone: str | None = None
) -> ReadOptions:
    """The options of a read; `streaming` is None if it is not known yet.

    A timestamp without a zone is read in `session_zone`. Raises ConfigurationError for an option that is unknown,
    misplaced or malformed.
    """
    options, secrets = split_names(raw)
    pre_images = options.pop(PRE_IMAGES, None) is not None
    _replace_change_feed(options, streaming=streaming)
    _refuse_catalog_table(options)
    _refuse_misplaced(options, streaming=streaming)
    path = require_path(options, 'use .load("/path/to/table")')
    moments = _Moments(session_zone)
    start, latest = _start(options, moments)
    _refuse_conflicting(options)
    return ReadOptions(
        path=path,
        snapshot=_one_of(options, "versionasof", "timestampasof", moments),
        start=start,
        is_start_included=start is not None and start != BEFORE_FIRST and "after" not in options,
        end=_one_of(options, "endingversion", "endingtimestamp", moments),
        latest=latest,
        changes=_mode(options, streaming=streaming),
        keys=names_in(options, "keys") or (),
        initial_snapshot=flag_in(options, "initialsnapshot"),
        skip_change_commits=flag_in(options, "skipchangecommits"),
        consumer=options.get("consumer"),
        limits=ReadLimits(
            _count(options, "maxfilespertrigger"),
            _size(options, "maxbytespertrigger"),
            _count(options, "maxrowspertrigger"),
        ),
        columns=names_in(options, "columns"),
        where=predicate.at_time(options.get("where"), REAL_SYSTEM.now_ms),
        storage_options=secrets,
        zone=moments.used_zone,
        pre_images=pre_images,
    )


def _replace_change_feed(options: dict[str, str], *, streaming: bool | None) -> None:
    """Put `changes` for Delta's `readChangeFeed`. As in Delta, a stream of it begins with the table as it is."""
    given = {key: flag_in(options, key, _CHANGE_FEED) for key in _CHANGE_FEED if key in options}
    for key, is_asked in given.items():
        del options[key]
        if is_asked and options.setdefault("changes", "cdc") != "cdc":
            raise ConfigurationError(
                f"the options {_CHANGE_FEED[key]!r} and 'changes' exclude each other", advice="leave one out"
            )
    if streaming and any(given.values()) and not any(key in options for key in _STARTS):
        options.setdefault("initialsnapshot", "true")


def split_names(raw: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options by lower-case name, and the storage options without their prefix."""
    options = {key.lower(): value for key, value in raw.items() if not key.lower().startswith(_SECRET_PREFIX)}
    secrets = {
        key[len(_SECRET_PREFIX) :]: value for key, value in raw.items() if key.lower().startswith(_SECRET_PREFIX)
    }
    return options, secrets


def require_known(options: Iterable[str], known: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an option that is not a key of `known` (lower-case names to names)."""
    for key in options:
        if key in known:
            continue
        if key in _OF_DELTA:
            name, advice = _OF_DELTA[key]
            raise ConfigurationError(f"the option {name!r} of Delta is not supported", advice=advice)
        if key.startswith(("delta.", "tidelog.")):
            raise ConfigurationError(
                f"the table property {key!r} is no option",
                advice="set it with ALTER TABLE ... SET TBLPROPERTIES, or where the table is made: "
                "TBLPROPERTIES of CREATE TABLE, or writeTo(...).tableProperty(...)",
            )
        names = ", ".join([*known.values(), "storageOption.<name>"])
        similar = did_you_mean(key, known.values())
        raise ConfigurationError(f"unknown option {key!r}", advice=f"{similar}use one of {names}")


def require_path(options: Mapping[str, str], advice: str) -> str:
    """The table's path. Raises ConfigurationError if it is missing, as it is for a table of Spark's catalog."""
    if not options.get("path"):
        raise ConfigurationError(
            "Spark did not pass a table path",
            advice=f"{advice}; a table of Spark's catalog needs LOCATION '/path/to/table', and does not work on Spark "
            "Connect: run DROP TABLE name, then CREATE TEMPORARY VIEW name USING tidelog OPTIONS (path ...) there",
        )
    return options["path"]


def _refuse_catalog_table(options: Mapping[str, str]) -> None:
    if _OF_CATALOG_TABLE in options:
        raise ConfigurationError(
            "CREATE TABLE ... USING tidelog is not supported: Spark would not pass the table's location to tidelog",
            advice="create the table with Table.create(path, schema) or df.write.format('tidelog').save(path); in SQL, "
            "query it through CREATE TEMPORARY VIEW name USING tidelog OPTIONS (path '/path/to/table')",
        )


def begins_by_default(options: Mapping[str, str]) -> bool:
    """Whether the options of a stream do not say where it begins."""
    return not any(name.lower() in (*_STARTS, "initialsnapshot") for name in options)


def _refuse_misplaced(options: Mapping[str, str], *, streaming: bool | None) -> None:
    require_known(options, READ_OPTIONS)
    misplaced = {True: _BATCH_ONLY, False: _STREAM_ONLY, None: set[str]()}[streaming]
    for key in options:
        if key in misplaced:
            kind = "batch reads" if streaming else "streams"
            raise ConfigurationError(f"the option {READ_OPTIONS[key]!r} is for {kind} only", advice="leave it out")


def _refuse_conflicting(options: Mapping[str, str]) -> None:
    if flag_in(options, "initialsnapshot"):
        for key in _STARTS:
            if key in options:
                raise ConfigurationError(
                    f"the options 'initialSnapshot' and {READ_OPTIONS[key]!r} exclude each other",
                    advice="leave one out: with initialSnapshot a stream reads the table as it is, then what follows",
                )
    if flag_in(options, "skipchangecommits") and options.get("changes", "append") != "append":
        raise ConfigurationError(
            "the option 'skipChangeCommits' is for the change mode 'append'",
            advice="leave it out: the mode 'cdc' shows the commits that changed rows",
        )
    if "keys" in options and options.get("changes") != "net":
        raise ConfigurationError("the option 'keys' is for the change mode 'net'", advice="leave it out")


def _mode(options: Mapping[str, str], *, streaming: bool | None) -> Mode | None:
    if "changes" not in options:
        return None
    mode = require_mode(options["changes"])
    if mode == "net" and streaming:
        raise ConfigurationError(
            "a stream cannot have the change mode 'net', which is the effect of a whole interval",
            advice="use cdc, which readStream.changes gives without deduplicationMode, or read batches with spark.read",
        )
    return mode


def names_in(options: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    """Names separated by commas, or a JSON array of them, as names can hold commas."""
    if key not in options:
        return None
    with suppress(*MALFORMED_JSON):
        found = json.loads(options[key])
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return tuple(found)
    return tuple(name.strip() for name in options[key].split(","))


def flag_in(options: Mapping[str, str], key: str, known: Mapping[str, str] = READ_OPTIONS) -> bool:
    """Whether an option is `true`. Raises ConfigurationError unless it is that, `false` or missing."""
    text = options.get(key, "false").strip().lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"the option {known[key]!r} cannot be {options[key]!r}", advice="give true or false")
    return text == "true"


def _size(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    try:
        return properties.parse_size_bytes(options[key])
    except ValueError as error:
        raise ConfigurationError(
            f"the option {READ_OPTIONS[key]!r} cannot be {options[key]!r}",
            advice="give bytes, or a size such as 128 MiB",
        ) from error


def _start(options: Mapping[str, str], moments: _Moments) -> tuple[Point | None, bool]:
    """Where the interval begins, and whether that is after the table's newest version."""
    given = [key for key in _STARTS if key in options]
    if len(given) > 1:
        raise _both(*given[:2])
    if not given or given == ["startingtimestamp"]:
        return (moments.parse(options, "startingtimestamp") if given else None), False
    (key,) = given
    word = options[key].strip().lower()
    if word in {EARLIEST, LATEST}:
        return (BEFORE_FIRST, False) if word == EARLIEST else (None, True)
    if key == "after" and not _WHOLE_NUMBER.fullmatch(word):
        return moments.parse(options, key), False
    version = _version(options, key)
    if key == "startingversion" and version < 0:
        raise ConfigurationError(
            f"the option 'startingVersion' cannot be {options[key]!r}", advice="the first version of a table is 0"
        )
    return version, False


def _one_of(options: Mapping[str, str], version: str, timestamp: str, moments: _Moments) -> Point | None:
    if version in options and timestamp in options:
        raise _both(version, timestamp)
    if version in options:
        return _version(options, version)
    return moments.parse(options, timestamp) if timestamp in options else None


def _version(options: Mapping[str, str], key: str) -> int:
    try:
        return int(options[key])
    except ValueError as error:
        others = f", {EARLIEST!r} or {LATEST!r}" if key == "startingversion" else ""
        raise ConfigurationError(
            f"the option {READ_OPTIONS[key]!r} cannot be {brief(options[key])}", advice=f"give a whole number{others}"
        ) from error


class _Moments:
    """Parses timestamps; `used_zone` is the session's zone once one of them needed it."""

    def __init__(self, session_zone: str | None) -> None:
        self.used_zone: str | None = None
        self._session_zone = session_zone

    def parse(self, options: Mapping[str, str], key: str) -> datetime:
        """The moment of the option `key`."""
        text, name = options[key], READ_OPTIONS[key]
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError as error:
            advice = "write ISO-8601, such as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00"
            if key == "after":
                advice = f"give a version, a time, {EARLIEST!r} or {LATEST!r}; {advice}"
            raise ConfigurationError(f"the option {name!r} cannot be {text!r}", advice=advice) from error
        if moment.tzinfo is not None:
            return moment
        if self._session_zone is None:
            raise ConfigurationError(
                f"the option {name!r} has no time zone: {text!r}",
                advice=f"add one, such as {moment.isoformat()}Z, or call register(spark) to use the session's zone",
            )
        self.used_zone = self._session_zone
        return in_zone(moment, self._session_zone)


def _both(first: str, second: str) -> ConfigurationError:
    return ConfigurationError(
        f"the options {READ_OPTIONS[first]!r} and {READ_OPTIONS[second]!r} exclude each other",
        advice="leave one out",
    )


def _count(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    try:
        return properties.parse_count(options[key])
    except ValueError as error:
        raise ConfigurationError(
            f"the option {READ_OPTIONS[key]!r} cannot be {brief(options[key])}", advice="give a whole number above zero"
        ) from error


# --- the session's time zone ------------------------------------------------------------------------------------------

# Spark plans a Python data source in a process that does not know the session's settings. So `register` notes the zone,
# and each task compares it with the session's zone at the query, which Spark passes to tasks only.
_ZONE_SETTING = "spark.sql.session.timeZone"
_ZONE_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?(?::?(?P<seconds>\d{2}))?"
)


def in_zone(moment: datetime, zone: str) -> datetime:
    """The moment that a naive `moment` is in a time zone as Spark names it, such as `Europe/Berlin` or `+01:00`.

    A time that a clock change skips or repeats is taken with the offset before the change, as Spark does.

    Raises:
        ConfigurationError: The zone is not known here.
    """
    return moment.replace(tzinfo=_tzinfo(zone))


def require_unchanged_zone(zone: str | None) -> None:
    """Raise ConfigurationError in a task if `zone`, with which the options were read, is not the session's any more."""
    context = TaskContext.get()
    now = context.getLocalProperty(_ZONE_SETTING) if context is not None else None
    if zone is not None and now is not None and now != zone:
        raise ConfigurationError(
            f"the session's time zone changed from {zone} to {now} after register(spark), and an option's timestamp "
            "has no zone",
            advice="call register(spark) again, or add a zone to the timestamp",
        )


def _tzinfo(zone: str) -> tzinfo:
    if zone in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    offset = _ZONE_OFFSET.fullmatch(zone)
    if offset:
        hours, minutes, seconds = (int(offset[name] or 0) for name in ("hours", "minutes", "seconds"))
        size = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-size if offset["sign"] == "-" else size)
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"the session's time zone {zone!r} is not known to Python",
            advice="add a zone to the timestamp, such as +01:00",
        ) from error

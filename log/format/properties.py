"""Table properties: validate, parse, defaults.

Setting an unknown key or an invalid value raises ConfigurationError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.log.errors import ConfigurationError
from tidelog.log.format.refused_properties import REFUSED
from tidelog.log.format.text import is_unicode
from tidelog.log.presentable import brief, did_you_mean

_T = TypeVar("_T")

ENABLE_DELETION_VECTORS = "delta.enableDeletionVectors"
ENABLE_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
# The version and time from which commits carry their timestamp. The writer that enables them sets these two.
IN_COMMIT_TIMESTAMP_VERSION = "delta.inCommitTimestampEnablementVersion"
IN_COMMIT_TIMESTAMP_START = "delta.inCommitTimestampEnablementTimestamp"
ENABLE_CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
ENABLE_TYPE_WIDENING = "delta.enableTypeWidening"
ENABLE_EXPIRED_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
APPEND_ONLY = "delta.appendOnly"
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
TARGET_FILE_SIZE = "tidelog.targetFileSize"
MINOR_SPAN = "tidelog.minorSpan"
COLUMN_MAPPING_MODE = "delta.columnMapping.mode"
COLUMN_MAPPING_MAX_ID = "delta.columnMapping.maxColumnId"
# Data files are then in folders with random names, and not in partition folders.
RANDOM_PREFIXES = "delta.randomizeFilePrefixes"
CHECKPOINT_POLICY = "delta.checkpointPolicy"
V2_CHECKPOINTS = "v2"
PRIMARY_KEY = "tidelog.primaryKey"
KEY_INDEX = "tidelog.keyIndex"
ORDER_BY = "tidelog.orderBy"
TOMBSTONE_RETENTION = "tidelog.tombstoneRetention"
CLUSTER_BY = "tidelog.clusterBy"
CLUSTER_ORDER = "tidelog.clusterOrder"
MAX_TRANSACTION_TIME = "tidelog.maxTransactionTime"
CONSUMER_TIME_TO_LIVE = "tidelog.consumerTimeToLive"
CLEAN_UP = "tidelog.cleanUp"
CONFLICT_POLICY = "tidelog.conflictPolicy"
METADATA_RETRY = "tidelog.metadataRetry"
# The version that created the table, if the path held another one before. Set by that commit alone.
FIRST_VERSION = "tidelog.firstVersion"
# Not properties of the table, but a way to ask for a protocol, as in Delta. The log does not keep them.
MIN_READER_VERSION = "delta.minReaderVersion"
MIN_WRITER_VERSION = "delta.minWriterVersion"
FEATURE_PREFIX = "delta.feature."
# Settings of engines that show the table as Iceberg. Delta checks none of them.
_UNIFORM_PREFIX = "delta.universalformat.config."
# What the names of CHECK constraints start with. The value is their SQL.
CONSTRAINT_PREFIX = "delta.constraints."

# Defined in `tidelog.log.conflict.policies`.
CONFLICT_POLICIES = ("delta-table", "transactional-table", "write-serializable", "serializable")

# In which order MAJOR compaction clusters rows.
CLUSTER_ORDERS = ("hilbert", "sort")

# Other engines' log cleanup ignores tidelog's consumers, so new tables turn automatic cleanup off. tidelog's daemon
# cleans up what has the property that says so: not the tables of others, of whose readers it knows nothing.
NEW_TABLE_DEFAULTS: Mapping[str, str] = {
    ENABLE_DELETION_VECTORS: "true",
    ENABLE_IN_COMMIT_TIMESTAMPS: "true",
    ENABLE_EXPIRED_LOG_CLEANUP: "false",
    CLEAN_UP: "true",
    CHECKPOINT_INTERVAL: "100",
}
_READ_DEFAULTS: Mapping[str, str] = {
    CHECKPOINT_INTERVAL: "100",
    LOG_RETENTION: "30 days",
    DELETED_FILE_RETENTION: "7 days",
    INDEXED_COLUMNS: "32",
    TARGET_FILE_SIZE: str(128 * 2**20),
    MINOR_SPAN: "1 day",
    MAX_TRANSACTION_TIME: "1 day",
    CONSUMER_TIME_TO_LIVE: "7 days",
    CLEAN_UP: "false",
    CONFLICT_POLICY: "delta-table",
    CLUSTER_ORDER: "hilbert",
    METADATA_RETRY: "true",
    KEY_INDEX: "true",
    TOMBSTONE_RETENTION: "7 days",
}

_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
# With the single letters that Spark's and Delta's sizes have, such as `128m`.
_SIZES: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{rest}": 1 << (10 * power) for power, letter in enumerate("kmgt", 1) for rest in ("", "b", "ib")
}


_LARGEST = 2**63 - 1
# Ten thousand years. A longer duration means "for ever", as this does.
_LONGEST_MS = 10_000 * 365 * 86_400_000


def _integer(digits: str) -> int:
    """A whole number; one beyond 64 bits counts as the largest that fits."""
    significant = digits.strip().lstrip("0")
    return min(int(significant or 0), _LARGEST) if len(significant) <= len(str(_LARGEST)) else _LARGEST


def parse_flag(text: str) -> bool:
    """Parse `true` or `false`."""
    if text.lower() not in {"true", "false"}:
        message = "it must be true or false"
        raise ValueError(message)
    return text.lower() == "true"


_SPAN = re.compile(r"(\d+)\s*([a-z]+?)s?(?:\s+|$)")


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `1 day`, `12 hours` or `interval 1 day 12 hours` to milliseconds."""
    words = re.sub(r"^interval\s+", "", text.strip().lower())
    total, end = 0, 0
    while end < len(words) or not words:
        span = _SPAN.match(words, end)
        if not span or span[2] not in _UNITS_MS:
            message = "it must be a duration such as '1 day' or '12 hours'"
            raise ValueError(message)
        total += int(min(_integer(span[1]) * _UNITS_MS[span[2]], _LONGEST_MS))
        end = span.end()
    return min(total, _LONGEST_MS)


def parse_size_bytes(text: str) -> int:
    """Parse a size such as `134217728`, `128 MiB`, `128mb` or `128m` to bytes (all units are powers of 1024)."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not match or match.group(2) not in _SIZES or _integer(match.group(1)) == 0:
        message = "it must be a size greater than zero, such as '128 MiB'"
        raise ValueError(message)
    return min(_integer(match.group(1)) * _SIZES[match.group(2)], _LARGEST)


def _parse_policy(text: str) -> str:
    if text not in CONFLICT_POLICIES:
        raise ValueError(f"it must be one of {', '.join(CONFLICT_POLICIES)}")
    return text


def _parse_cluster_order(text: str) -> str:
    if text not in CLUSTER_ORDERS:
        raise ValueError(f"it must be one of {', '.join(CLUSTER_ORDERS)}")
    return text


def parse_count(text: str) -> int:
    """Parse a whole number above zero; one beyond 64 bits counts as the largest that fits."""
    if not text.strip().isdecimal() or _integer(text) == 0:
        message = "it must be a whole number greater than zero"
        raise ValueError(message)
    return _integer(text)


def _parse_reader_version(text: str) -> int:
    return _parse_version(text, 1, 3)


def _parse_writer_version(text: str) -> int:
    return _parse_version(text, 1, 7)


def _parse_version(text: str, first: int, last: int) -> int:
    if text.strip() not in map(str, range(first, last + 1)):
        raise ValueError(f"it must be one of {', '.join(map(str, range(first, last + 1)))}")
    return int(text)


def _parse_support(text: str) -> str:
    if text.lower() != "supported":
        message = "it must be supported"
        raise ValueError(message)
    return text


def _parse_indexed_columns(text: str) -> int:
    if text.strip() == "-1":
        return -1
    if not text.strip().isdecimal():
        message = "it must be a whole number, or -1 for all columns"
        raise ValueError(message)
    return _integer(text)


def _parse_count_or_zero(text: str) -> int:
    if not text.strip().isdecimal():
        message = "it must be a whole number"
        raise ValueError(message)
    return _integer(text)


def _one_of(*values: str) -> Callable[[str], str]:
    """A parser of texts of which only these are valid; case does not matter."""

    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"it must be one of {', '.join(values)}")
        return text.lower()

    return parse


def parse_names(text: str) -> tuple[str, ...]:
    """Parse comma-separated column names such as `id, day`."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        message = "it must be distinct column names separated by commas"
        raise ValueError(message)
    return names


def spell_names(names: Sequence[str]) -> str | None:
    """The text that `parse_names` reads as these names; None if no such text exists."""
    text = ", ".join(names)
    return text if names and all(name == name.strip() and "," not in name for name in names) else None


# One part of a column name: plain, or in backticks (a doubled backtick is a literal one).
_NAME_PART = r"(?:`(?:[^`]|``)+`|[^`.,\s](?:[^`.,]*[^`.,\s])?)"
_COLUMN_NAME = re.compile(rf"\s*({_NAME_PART}(?:\.{_NAME_PART})*)\s*")


def parse_column_names(text: str) -> tuple[tuple[str, ...], ...]:
    """Parse column names such as ``id, place.city, `odd.name` ``; each becomes its parts, from the top level down."""
    columns = []
    position = 0
    while True:
        match = _COLUMN_NAME.match(text, position)
        if not match or (match.end() < len(text) and text[match.end()] != ","):
            message = "it must be column names separated by commas; put names with dots or commas in backticks"
            raise ValueError(message)
        parts = re.findall(_NAME_PART, match.group(1))
        columns.append(tuple(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts))
        position = match.end() + 1
        if match.end() == len(text):
            return tuple(columns)


_KNOWN: Mapping[str, Callable[[str], object]] = {
    ENABLE_DELETION_VECTORS: parse_flag,
    ENABLE_IN_COMMIT_TIMESTAMPS: parse_flag,
    ENABLE_CHANGE_DATA_FEED: parse_flag,
    ENABLE_TYPE_WIDENING: parse_flag,
    ENABLE_EXPIRED_LOG_CLEANUP: parse_flag,
    APPEND_ONLY: parse_flag,
    CHECKPOINT_INTERVAL: parse_count,
    LOG_RETENTION: parse_duration_ms,
    DELETED_FILE_RETENTION: parse_duration_ms,
    TRANSACTION_RETENTION: parse_duration_ms,
    INDEXED_COLUMNS: _parse_indexed_columns,
    STATISTICS_COLUMNS: parse_column_names,
    TARGET_FILE_SIZE: parse_size_bytes,
    MINOR_SPAN: parse_duration_ms,
    PRIMARY_KEY: parse_names,
    KEY_INDEX: parse_flag,
    ORDER_BY: parse_names,
    TOMBSTONE_RETENTION: parse_duration_ms,
    CLUSTER_BY: parse_names,
    CLUSTER_ORDER: _parse_cluster_order,
    MAX_TRANSACTION_TIME: parse_duration_ms,
    CONSUMER_TIME_TO_LIVE: parse_duration_ms,
    CLEAN_UP: parse_flag,
    CONFLICT_POLICY: _parse_policy,
    METADATA_RETRY: parse_flag,
    MIN_READER_VERSION: _parse_reader_version,
    MIN_WRITER_VERSION: _parse_writer_version,
    CHECKPOINT_POLICY: _one_of("classic", V2_CHECKPOINTS),
}
# What other engines do with the table. tidelog keeps these, and does nothing else because of them.
_KEPT: Mapping[str, Callable[[str], object]] = {
    RANDOM_PREFIXES: parse_flag,
    "delta.autoOptimize": parse_flag,
    "delta.autoOptimize.autoCompact": _one_of("true", "false", "auto"),
    "delta.autoOptimize.optimizeWrite": parse_flag,
    "delta.castIcebergTimeType": parse_flag,
    "delta.checkpoint.writeStatsAsJson": parse_flag,
    "delta.checkpoint.writeStatsAsStruct": parse_flag,
    "delta.checkpointRetentionDuration": parse_duration_ms,
    "delta.dataSkippingStringPrefixLength": _parse_count_or_zero,
    "delta.dropFeatureTruncateHistory.retentionDuration": parse_duration_ms,
    "delta.enableFullRetentionRollback": parse_flag,
    "delta.ignoreIcebergBucketPartition": parse_flag,
    "delta.ignoreProtocolDefaults": parse_flag,
    "delta.parquet.compression.codec": _one_of(
        "uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli", "lzo"
    ),
    "delta.parquet.format.version": _one_of("1.0.0", "2.12.0"),
    "delta.randomPrefixLength": parse_count,
    "delta.sampleRetentionDuration": parse_duration_ms,
    "delta.targetFileSize": parse_size_bytes,
    "delta.tuneFileSizesForRewrites": parse_flag,
    "delta.universalFormat.iceberg.atomicConversion.supported": parse_flag,
}
_PREFIXES = ("tidelog.", "delta.")
_ALL_COLUMNS = 2**31
_LONGEST_QUOTE = 200
_MAX_VERSION_DIGITS = 20


def validate(configuration: Mapping[str, object]) -> dict[str, str]:
    """Check properties and convert their values to text (True becomes `true`).

    Keys without the prefix `tidelog.` or `delta.` are the user's own. They are not checked, but none may be the name of
    a property in another case or without its prefix. Raises ConfigurationError, which names the key and the allowed
    values.
    """
    require_names(configuration)
    texts = {key: property_text(key, value) for key, value in configuration.items()}
    for key, text in texts.items():
        _require_unicode(key, text)
        if not key.startswith(_PREFIXES):
            _require_own(key)
            continue
        if key.startswith(CONSTRAINT_PREFIX):
            raise ConfigurationError(
                f"a constraint cannot be added as the table property {key!r}: the rows of the table are not checked",
                advice="add it with an engine that checks them; in delta-spark: ALTER TABLE ... ADD CONSTRAINT",
            )
        if key in REFUSED:
            _require_harmless(key, text)
            continue
        if key.lower().startswith(_UNIFORM_PREFIX):
            continue
        parse = _KNOWN.get(key) or _KEPT.get(key)
        if parse is None and not key.startswith(FEATURE_PREFIX):
            known = ", ".join(sorted(_KNOWN))
            similar = did_you_mean(key, {**_KNOWN, **_KEPT, **REFUSED})
            raise ConfigurationError(
                f"unknown table property {key!r}",
                advice=f"{similar}use one of {known}, or a key with your own prefix",
            )
        try:
            (parse or _parse_support)(text)
        except ValueError as error:
            message = f"the table property {key!r} cannot be {text[:_LONGEST_QUOTE]!r}"
            raise ConfigurationError(message, advice=str(error)) from error
    return texts


def _require_harmless(key: str, text: str) -> None:
    """Raise ConfigurationError for a value that tidelog cannot honour."""
    refusal = REFUSED[key]
    if text.strip().lower() not in refusal.harmless:
        raise ConfigurationError(
            f"the table property {key!r} cannot be {text[:_LONGEST_QUOTE]!r}: {refusal.reason}", advice=refusal.advice
        )


def _require_own(key: str) -> None:
    """Raise ConfigurationError for the name of a property that is only mistyped, which would have no effect."""
    folded = key.casefold()
    meant = next((known for known in _KNOWN if folded in {known.casefold(), known.partition(".")[2].casefold()}), None)
    if meant is not None:
        raise ConfigurationError(
            f"the table property {key!r} would have no effect",
            advice=f"did you mean {meant!r}? write it so, or choose a key with your own prefix",
        )


def property_text(key: str, value: object) -> str:
    """A property's value as the log has it. Raises ConfigurationError."""
    if isinstance(value, list | tuple | set | dict):
        advice = "pass text, in which commas separate names"
        raise ConfigurationError(f"the table property {key!r} cannot be {brief(value)}", advice=advice)
    try:
        return str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError as error:
        raise ConfigurationError(
            f"the table property {key!r} cannot be {brief(value)}", advice="pass text, or a smaller number"
        ) from error


def require_names(configuration: object) -> None:
    """Raise ConfigurationError unless `configuration` is a dict with strings as keys."""
    if not isinstance(configuration, Mapping) or not all(isinstance(key, str) for key in configuration):
        raise ConfigurationError(
            "properties must be a dict with strings as keys", advice="pass, for example, {'delta.appendOnly': True}"
        )


def _require_unicode(key: str, text: str) -> None:
    if not is_unicode(f"{key}{text}"):
        raise ConfigurationError(
            f"the table property {key!r} has half of a surrogate pair, which the log cannot hold",
            advice="decode the text that it comes from in another way",
        )


def asks_for_protocol(key: str) -> bool:
    """Whether a property is not kept, but asks for a protocol."""
    return key in (MIN_READER_VERSION, MIN_WRITER_VERSION) or key.startswith(FEATURE_PREFIX)


def in_force(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties of tidelog and Delta that are set, and the defaults of those that are not."""
    return {**_READ_DEFAULTS, **{key: text for key, text in configuration.items() if key.startswith(_PREFIXES)}}


def flag(configuration: Mapping[str, str], key: str) -> bool:
    """A boolean property; false if absent."""
    return configuration.get(key, "false").lower() == "true"


def duration_ms(configuration: Mapping[str, str], key: str) -> int:
    """A duration property in milliseconds, or its default."""
    return _read(configuration, key, parse_duration_ms)


def size_bytes(configuration: Mapping[str, str], key: str) -> int:
    """A size property in bytes, or its default."""
    return _read(configuration, key, parse_size_bytes)


def count(configuration: Mapping[str, str], key: str) -> int:
    """A whole-number property, or its default."""
    return _read(configuration, key, parse_count)


def indexed_columns(configuration: Mapping[str, str]) -> int:
    """How many leaf columns get statistics; more than there can be for `-1` (all columns)."""
    number = _read(configuration, INDEXED_COLUMNS, _parse_indexed_columns)
    return _ALL_COLUMNS if number < 0 else min(number, _ALL_COLUMNS)


def conflict_policy(configuration: Mapping[str, str]) -> str:
    """The name of the table's conflict policy: one of `CONFLICT_POLICIES`."""
    return _read(configuration, CONFLICT_POLICY, _parse_policy)


def metadata_retry(configuration: Mapping[str, str]) -> bool:
    """Whether a transaction that lost a race is rebased before the conflict policy is applied; true if absent."""
    return _read(configuration, METADATA_RETRY, parse_flag)


def clean_up(configuration: Mapping[str, str]) -> bool:
    """Whether the daemon deletes what the retentions allow; false if absent, as in the tables of other engines."""
    return _read(configuration, CLEAN_UP, parse_flag)


def primary_key(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that identify a row, as the table declares them (not a constraint); empty if it declares none."""
    return _names(configuration, PRIMARY_KEY)


def order_by(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The columns by which an UPSERT compares its rows with those of the table; empty if the table names none."""
    return _names(configuration, ORDER_BY)


def indexed_key(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the primary key, if an index of it is kept; empty without."""
    return primary_key(configuration) if _read(configuration, KEY_INDEX, parse_flag) else ()


def cluster_by(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The columns by which MAJOR compaction clusters rows; empty if the table names none."""
    return _names(configuration, CLUSTER_BY)


def _names(configuration: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        text = configuration.get(key)
        return () if text is None else parse_names(text)
    except ValueError:  # another writer's value that tidelog cannot parse
        return ()


def cluster_order(configuration: Mapping[str, str]) -> str:
    """The order in which MAJOR compaction clusters rows: one of `CLUSTER_ORDERS`."""
    return _read(configuration, CLUSTER_ORDER, _parse_cluster_order)


def first_version(configuration: Mapping[str, str]) -> int:
    """The version that created the table: 0, unless the path held another table before."""
    text = configuration.get(FIRST_VERSION, "0")
    return int(text) if text.isdecimal() and len(text) < _MAX_VERSION_DIGITS else 0


def statistics_columns(configuration: Mapping[str, str]) -> tuple[tuple[str, ...], ...] | None:
    """The columns that get statistics, which override `indexed_columns`; None if the property is not set."""
    try:
        text = configuration.get(STATISTICS_COLUMNS)
        return None if text is None else parse_column_names(text)
    except ValueError:  # another writer's value that tidelog cannot parse
        return None


def _read(configuration: Mapping[str, str], key: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(configuration.get(key, _READ_DEFAULTS[key]))
    except ValueError:  # another writer's value that tidelog cannot parse; the default is better than failing
        return parse(_READ_DEFAULTS[key])

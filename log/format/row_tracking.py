"""Row tracking: ids and commit versions of rows, as another engine's table keeps them (Delta protocol, "Row Tracking").

A file's `add` has the id of its first row and a commit version for all of its rows. Rows that were moved or updated
keep what they had in two columns of the data file that are not in the table's schema; a null there means that the
file's own values hold. While the table only supports the feature, there are no such columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.log.errors import ConfigurationError, CorruptLogError, UnsupportedFeatureError
from tidelog.log.format import properties
from tidelog.log.format.actions import DomainMetadata, Metadata, Protocol
from tidelog.log.format.text import MALFORMED_JSON

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"

ROW_ID = b"id"
ROW_VERSION = b"version"
_KIND = b"tidelog.rowTracking"
_MARK = "rowIdHighWaterMark"
_LARGEST = 2**63 - 1


class _HighWaterMark(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


def assigns_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether each file that is added must get row ids and a commit version."""
    return FEATURE in (protocol.writer_features or ()) and not properties.flag(metadata.configuration, SUSPENDED)


def preserves_ids(metadata: Metadata) -> bool:
    """Whether rows that are moved or updated must keep their ids."""
    return properties.flag(metadata.configuration, ENABLED)


def tracked_fields(metadata: Metadata) -> tuple[pa.Field, ...]:
    """The two columns for the ids and commit versions of rows that keep them; empty if rows need not keep them.

    A reader that is asked for these fields gives the value that holds for each row, wherever it comes from. Raises
    UnsupportedFeatureError if the table has a column of the same name.
    """
    names = _names(metadata)
    if not preserves_ids(metadata) or not all(names):  # without names, `require_consistent` refuses the commit
        return ()
    if names[0] == names[1] or any(_is_quoted(str(name), metadata.schema_string) for name in names):
        raise UnsupportedFeatureError(
            f"writing this table is refused: its row tracking has columns named {names[0]!r} and {names[1]!r}, which "
            "are not unique among its columns",
            advice="correct the table with the engine that set up row tracking",
            features=FEATURE,
        )
    kinds = ROW_ID, ROW_VERSION
    return tuple(pa.field(name, pa.int64(), metadata={_KIND: kind}) for name, kind in zip(names, kinds, strict=True))


def require_names_stay_free(before: Metadata, after: Metadata) -> None:
    """Raise ConfigurationError if a new column has the name of one that row tracking has, or had; case does not matter.

    Such a table could not be written, or its row tracking not be turned on again.
    """
    old, new = before.schema_string.lower(), after.schema_string.lower()
    for name in _names(after):
        if name and _is_quoted(name.lower(), new) and not _is_quoted(name.lower(), old):
            raise ConfigurationError(
                f"the table cannot have a column {name!r}: its row tracking has one of that name in the data files",
                advice="choose another name",
            )


def _names(metadata: Metadata) -> tuple[str | None, str | None]:
    return metadata.configuration.get(ID_COLUMN), metadata.configuration.get(VERSION_COLUMN)


def _is_quoted(name: str, schema_string: str) -> bool:
    """Whether the schema has the name anywhere. Engines choose random names, so it is a column if it is there."""
    return msgspec.json.encode(name).decode() in schema_string


def kind_of(field: pa.Field) -> bytes | None:
    """ROW_ID or ROW_VERSION for one of `tracked_fields`, None for a column of the table."""
    return (field.metadata or {}).get(_KIND)


def require_consistent(protocol: Protocol, metadata: Metadata, path: str) -> None:
    """Raise UnsupportedFeatureError if ids would have to be kept but the table lacks what that takes."""
    features = protocol.writer_features or ()
    fault = None
    if preserves_ids(metadata):
        if FEATURE not in features:
            fault = f"{ENABLED} is true, but the protocol does not list {FEATURE}"
        elif properties.flag(metadata.configuration, SUSPENDED):
            fault = f"{ENABLED} and {SUSPENDED} are both true"
        elif not (metadata.configuration.get(ID_COLUMN) and metadata.configuration.get(VERSION_COLUMN)):
            fault = f"{ENABLED} is true, but {ID_COLUMN} or {VERSION_COLUMN} is missing"
    if fault is None and FEATURE in features and "domainMetadata" not in features:
        fault = f"the protocol lists {FEATURE} without domainMetadata"
    if fault:
        raise UnsupportedFeatureError(
            f"writing this table is refused, because its row tracking is inconsistent: {fault}",
            advice="correct the table with the engine that set up row tracking",
            path=path,
            features=FEATURE,
        )


def high_water_mark(domains: Mapping[str, DomainMetadata], path: str) -> int:
    """The highest row id ever assigned; -1 if there is none. Raises CorruptLogError."""
    domain = domains.get(DOMAIN)
    if domain is None:
        return -1
    try:
        found = msgspec.json.decode(domain.configuration, type=_HighWaterMark).row_id_high_water_mark
    except MALFORMED_JSON as error:
        raise _unusable(path, f"it says {domain.configuration!r}") from error
    if not -1 <= found < _LARGEST:
        raise _unusable(path, f"its mark is {found}")
    return found


def require_mark(mark: int, used: int, path: str) -> None:
    """Raise CorruptLogError if the row id `used`, which a file has, is above the high-water mark.

    Another writer has then removed or lowered the mark, and new rows would get ids that rows have already.
    """
    if used > mark:
        found = "there is none" if mark < 0 else f"its mark is {mark}"
        raise _unusable(path, f"{found}, and a file has the row id {used}")


def mark_action(value: int) -> DomainMetadata:
    """The action that records the highest row id."""
    configuration: dict[str, Any] = {_MARK: value}
    return DomainMetadata(domain=DOMAIN, configuration=msgspec.json.encode(configuration).decode(), removed=False)


def _unusable(path: str, why: str) -> CorruptLogError:
    return CorruptLogError(
        f"the domain {DOMAIN} of {path} has no usable high-water mark of row ids: {why}",
        advice="correct the domain with the engine that set up row tracking; until then the table can only be read",
        path=path,
    )

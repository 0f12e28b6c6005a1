"""Answers for the changes of a table of the SQL catalog, which Spark 4.2 and later can ask for.

    SELECT * FROM tidelog.`/data/events` CHANGES FROM VERSION 3 TO VERSION 7
    spark.readStream.option("startingVersion", 3).changes("tidelog.`/data/events`")

Spark's bounds become the options of `format("tidelog")`, and the same code reads the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tidelog.log.errors import ConfigurationError
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.file_partitions import read_columns, table_to_read
from tidelog.streaming.datasource.frames import with_char_types
from tidelog.streaming.datasource.read_options import PRE_IMAGES, parse_read
from tidelog.streaming.feed_planning.query_columns import LoadedColumns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NET = "netChanges"
# The options that Spark reads itself: it passes what they mean.
_OF_SPARK = {
    "startingversion",
    "endingversion",
    "startingtimestamp",
    "endingtimestamp",
    "startingboundinclusive",
    "endingboundinclusive",
    "deduplicationmode",
    "computeupdates",
}
# Options of `format("tidelog")` for which CHANGES has its own words.
_IN_OTHER_WORDS = {
    "path": "name the table: changes('tidelog.`/path/to/table`')",
    "changes": "use deduplicationMode, which is netChanges for the net effect; the other modes give every change",
    "after": "use startingVersion or startingTimestamp, and startingBoundInclusive=false to leave that point out",
    "versionasof": "use endingVersion",
    "timestampasof": "use endingTimestamp",
}


def changelog(request: Mapping[str, Any], path: str, storage_options: Mapping[str, str]) -> str:
    """The columns of the changes of a table, and the options that read them.

    Whether a batch or a stream reads them is not known yet. So the bounds are looked up by the scan: a stream that goes
    on from its checkpoint does not need them any more.

    Raises TableNotFoundError, and ConfigurationError for bounds and options that cannot be meant.
    """
    is_net = request["deduplicationMode"] == _NET
    options = {
        "path": path,
        **{f"storageOption.{name}": text for name, text in storage_options.items()},
        "changes": "net" if is_net else "cdc",
        # The other modes have both images of an update in any case.
        **({PRE_IMAGES: "true"} if is_net and request["computeUpdates"] else {}),
        **_bounds(request),
    }
    selected = {} if request["selected"] is None else {"columns": request["selected"]}
    parsed = parse_read({**options, **selected})
    table = table_to_read(parsed)
    found = spark_versions.columns_from_arrow(read_columns(table.schema, parsed.query_columns))
    columns = with_char_types(found, table.at().state.head.metadata, path)
    loaded = LoadedColumns(table.version, table.schema)
    return json.dumps({"name": path, "schema": columns.json(), "options": options, "loaded": loaded.to_text()})


def scan_options(request: Mapping[str, Any], _: Any) -> str:
    """The options of a scan: those of the changes, and what else its user gave.

    Raises ConfigurationError for an option that would say again which changes are read.
    """
    given = {name: text for name, text in request["given"].items() if name.lower() not in _OF_SPARK}
    for name in given:
        if name.lower() in _IN_OTHER_WORDS:
            raise ConfigurationError(
                f"the option {name!r} does not fit CHANGES and changes()", advice=_IN_OTHER_WORDS[name.lower()]
            )
    return json.dumps({**request["options"], **given})


def _bounds(request: Mapping[str, Any]) -> dict[str, str]:
    """Where the changes begin and end, as options. Bounds that leave nothing between them mean an empty interval."""
    if "range" not in request:
        return {}
    of_versions = request["range"] == "versions"
    point = _version if of_versions else _moment
    start, end = point(request["start"]), None if request["end"] is None else point(request["end"])
    has_start, has_end = request["hasStart"], request["hasEnd"]
    if start == end and not (has_start and has_end):
        has_start, has_end = False, True
    kind = "Version" if of_versions else "Timestamp"
    bounds = {f"starting{kind}" if has_start else "after": _text(start)}
    if end is not None:
        bounds[f"ending{kind}"] = _text(end if has_end else end - (1 if of_versions else _MICROSECOND))
    return bounds


def _version(text: str) -> Any:
    if not text.strip().isdecimal():
        raise ConfigurationError(f"CHANGES cannot begin or end with the version {text!r}", advice="give a whole number")
    return int(text)


def _moment(micros: int) -> Any:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise ConfigurationError(
            "CHANGES cannot begin or end before the year 1 or after 9999", advice="give a time in the table's history"
        ) from None


def _text(point: Any) -> str:
    return point.isoformat() if isinstance(point, datetime) else str(point)

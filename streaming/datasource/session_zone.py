"""The Spark session's time zone, in which a timestamp option without a zone is read.

Spark plans a Python data source in a process that does not know the session's settings. So `register` notes the zone,
and each task compares it with the session's zone at the query, which Spark passes to tasks only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext

from tidelog.log.errors import ConfigurationError

_SETTING = "spark.sql.session.timeZone"
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?(?::?(?P<seconds>\d{2}))?"
)


def in_zone(moment: datetime, zone: str) -> datetime:
    """The moment that a naive `moment` is in a time zone as Spark names it, such as `Europe/Berlin` or `+01:00`.

    A time that a clock change skips or repeats is taken with the offset before the change, as Spark does.

    Raises:
        ConfigurationError: The zone is not known here.
    """
    return moment.replace(tzinfo=_tzinfo(zone))


def require_unchanged(zone: str | None) -> None:
    """Raise ConfigurationError in a task if `zone`, with which the options were read, is not the session's any more."""
    context = TaskContext.get()
    now = context.getLocalProperty(_SETTING) if context is not None else None
    if zone is not None and now is not None and now != zone:
        raise ConfigurationError(
            f"the session's time zone changed from {zone} to {now} after register(spark), and an option's timestamp "
            "has no zone",
            advice="call register(spark) again, or add a zone to the timestamp",
        )


def _tzinfo(zone: str) -> tzinfo:
    if zone in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    offset = _OFFSET.fullmatch(zone)
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

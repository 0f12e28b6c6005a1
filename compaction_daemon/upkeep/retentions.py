"""The retentions of a table: how long each kind of file is kept, and which property says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidelog.log.format import properties

_KEPT = {
    properties.LOG_RETENTION: "keeps versions readable",
    properties.DELETED_FILE_RETENTION: "keeps files that left the table",
    properties.MAX_TRANSACTION_TIME: "keeps what a running transaction may need",
    properties.CONSUMER_TIME_TO_LIVE: "waits for a consumer after its last heartbeat",
}
_UNITS_MS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


@dataclass(frozen=True, slots=True)
class Retention:
    """One retention in force.

    Attributes:
        property: The table property.
        keeps: What happens for so long, in words.
        duration_ms: For how long, in milliseconds.
        duration: The same in words, such as `7 days`.
        from_table: Whether the table sets the property; otherwise it is the default.
        raised_by: The property that makes the duration longer than this one says; None if nothing does.
    """

    property: str
    keeps: str
    duration_ms: int
    duration: str
    from_table: bool
    raised_by: str | None = None

    def __str__(self) -> str:
        source = "" if self.from_table else ", the default"
        raised = f", raised by {self.raised_by}" if self.raised_by else ""
        return f"{self.duration} ({self.property}{source}{raised})"

    def to_dict(self) -> dict[str, Any]:
        """The retention as JSON values."""
        return asdict(self)


def retentions(configuration: Mapping[str, str]) -> tuple[Retention, ...]:
    """The retentions in force in a table with these properties."""
    return tuple(retention(configuration, key) for key in _KEPT)


def retention(configuration: Mapping[str, str], key: str) -> Retention:
    """The retention of one of the four properties. Nothing is deleted that a running transaction may need."""
    own_ms = properties.duration_ms(configuration, key)
    longest_ms = properties.duration_ms(configuration, properties.MAX_TRANSACTION_TIME)
    is_raised = key in {properties.LOG_RETENTION, properties.DELETED_FILE_RETENTION} and own_ms < longest_ms
    duration_ms = longest_ms if is_raised else own_ms
    return Retention(
        property=key,
        keeps=_KEPT[key],
        duration_ms=duration_ms,
        duration=_in_words(duration_ms),
        from_table=_is_set(configuration, key),
        raised_by=properties.MAX_TRANSACTION_TIME if is_raised else None,
    )


def _is_set(configuration: Mapping[str, str], key: str) -> bool:
    """Whether the table has a value that can be read. Another writer's can be anything; then the default counts."""
    try:
        properties.parse_duration_ms(configuration[key])
    except (KeyError, ValueError):
        return False
    return True


def _in_words(duration_ms: int) -> str:
    unit, unit_ms = next((entry for entry in _UNITS_MS if duration_ms % entry[1] == 0 and duration_ms), _UNITS_MS[0])
    number = duration_ms // unit_ms
    return f"{number} {unit}" + ("" if number == 1 else "s")

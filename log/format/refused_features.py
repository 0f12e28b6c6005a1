"""Table features that tidelog refuses for good, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ICEBERG = (
    "the table promises that each of its files can be read as Iceberg, with Iceberg's field ids and types and without "
    "deletion vectors, and tidelog's files do not keep that promise"
)
_ICEBERG_ADVICE = "write the table with an engine that supports it, or turn its Iceberg metadata off"
_CATALOG = (
    "commits go through the table's catalog, which tidelog does not ask: the log alone does not show the newest "
    "version, and a commit put into it could be lost"
)
_CATALOG_ADVICE = "use the table through its catalog"
_REFUSED: Mapping[str, tuple[str, str]] = {
    "icebergCompatV1": (_ICEBERG, _ICEBERG_ADVICE),
    "icebergCompatV2": (_ICEBERG, _ICEBERG_ADVICE),
    "icebergCompatV3": (_ICEBERG, _ICEBERG_ADVICE),
    "icebergWriterCompatV1": (_ICEBERG, _ICEBERG_ADVICE),
    "icebergWriterCompatV3": (_ICEBERG, _ICEBERG_ADVICE),
    "catalogManaged": (_CATALOG, _CATALOG_ADVICE),
    "catalogOwned-preview": (_CATALOG, _CATALOG_ADVICE),
}

# What to do about any other feature.
GENERAL_ADVICE = "use an engine that supports it, or drop the feature from the table"


def refusal(features: Iterable[str]) -> tuple[str, str] | None:
    """Why the first of these features that is refused for good is refused, and what to do; None if none is."""
    return next((_REFUSED[name] for name in sorted(features) if name in _REFUSED), None)

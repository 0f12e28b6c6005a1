"""The names of columns: in the records, and in the rows. A column of the records has a place there, or is refused.

Names of records are taken as they are spelled. A table does not tell apart names that differ in case alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pyspark.sql.types import StructType

from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.presentable import brief
from tidelog.log.read.changes import OWN_COLUMNS
from tidelog.streaming.capture.values import MisfitError
from tidelog.streaming.sink.control import RESERVED

Rename: TypeAlias = "Mapping[str, str | None]"
"""Columns of records by their names, with the names that they have in the rows; None for one that is left out."""


# What no new column of a table can be called.
_TAKEN = frozenset({*RESERVED, *OWN_COLUMNS})


class PlaceError(MisfitError):
    """A column of a record has no place in the rows. `is_of_rename`: since rename gives its name to another one."""

    def __init__(self, reason: str, column: str, *, is_of_rename: bool = False) -> None:
        super().__init__(reason)
        self.column = column
        self.is_of_rename = is_of_rename


class Names:
    """Which names the columns of records have in rows with these columns."""

    def __init__(self, rename: Rename, columns: Iterable[str]) -> None:
        self.rename = rename
        self.columns = tuple(columns)
        self._known = {name.lower(): name for name in self.columns}
        self._renamed = {name.lower(): source for source, name in rename.items() if name is not None}
        self._spelled = {source.lower(): source for source in self._renamed.values()}

    def placed(self, sources: Iterable[str]) -> dict[str, str]:
        """The names in the rows of all columns of a record but those that are left out. Raises PlaceError."""
        found: dict[str, str] = {}
        by_name: dict[str, str] = {}
        for source in sources:
            name = self.rename.get(source, source)
            if name is None:
                continue
            lowered = name.lower()
            self._require_own(source, lowered)
            other = by_name.setdefault(lowered, source)
            if other != source:
                raise PlaceError(
                    f"the record has columns {brief(other)} and {brief(source)}, which differ in case alone: "
                    + _renaming(source),
                    source,
                )
            known = self._known.get(lowered)
            if known is None and lowered in _TAKEN:
                raise PlaceError(
                    f"the record has a column {brief(source)}, a name of tidelog's own: {_renaming(source)}", source
                )
            if known not in (None, name):
                raise PlaceError(_another_spelling(source, str(known)), source)
            found[source] = name
        return found

    def require_all(self, sources: Iterable[str]) -> None:
        """Raise PlaceError if the rows do not have all columns of a record."""
        for source, name in self.placed(sources).items():
            if name.lower() not in self._known:
                raise PlaceError(
                    f"the record has a column {brief(source)}, which the rows of its batch do not have", source
                )

    def require_clear(self, sources: Mapping[str, Any]) -> None:
        """Raise PlaceError if a column of the rows is not the one that a record seems to have for it.

        Other columns of the record are left out.
        """
        for source in sources:
            name = self.rename.get(source, source)
            if name is None:
                continue
            lowered = name.lower()
            known = self._known.get(lowered)
            if known is not None:
                self._require_own(source, lowered)
                if known != name and known not in sources:
                    raise PlaceError(_another_spelling(source, known), source)
            else:
                spelled = self._spelled.get(source.lower(), source)
                if spelled not in sources:
                    raise PlaceError(
                        f"the record has a column {brief(source)}, and rename spells it {brief(spelled)}", source
                    )

    def _require_own(self, source: str, lowered: str) -> None:
        """Raise PlaceError if `rename` gives a column's name to another one."""
        renamed = self._renamed.get(lowered, source)
        if renamed != source:
            raise PlaceError(
                f"the record has a column {brief(source)}, and rename gives the name {brief(self.rename[renamed])} to "
                f"the column {brief(renamed)}: {_renaming(source)}, too",
                source,
                is_of_rename=True,
            )


def _another_spelling(source: str, known: str) -> str:
    return (
        f"the record has a column {brief(source)}, and the rows have {brief(known)}: spell it as the record does, or "
        f"pass rename={{{brief(source)}: ...}} with this name or another one"
    )


def _renaming(source: str) -> str:
    return f"pass rename={{{brief(source)}: ...}} with another name, or with None to leave it out"


def require_not_taken(name: str, source: str, who: str) -> None:
    """Raise SchemaMismatchError for the name of a column that the sink's rows have beside those of a schema."""
    if name.lower() in RESERVED:
        raise SchemaMismatchError(
            f"{who} a column {name!r}, a name of the sink's own",
            advice=f"give the column another name in the rows, as by rename={{{source!r}: 'source{name.lower()}'}}"
            + ("; or leave it out, by None as its name" if source == name else ""),
            column=name,
        )


def names_in_records(rename: Rename | None, columns: StructType | None) -> dict[str, str]:
    """The names in the records by those in the rows; `columns` are those of a schema that is known.

    Raises ConfigurationError, SchemaMismatchError.
    """
    given: Any = rename or {}
    if not isinstance(given, Mapping) or not all(
        isinstance(source, str) and isinstance(name, str | None) for source, name in given.items()
    ):
        raise ConfigurationError(
            f"rename cannot be {brief(rename)}", advice="pass the new names by the old ones, as {'_order': 'number'}"
        )
    found: dict[str, str] = {}
    for source, name in given.items():
        if name is None:
            continue
        require_not_taken(name, source, "rename gives")
        other = next((found[known] for known in found if known.lower() == name.lower()), None)
        if other is not None:
            raise SchemaMismatchError(
                f"rename gives two columns the name {name!r}: {other!r} and {source!r}",
                advice="give each a name of its own",
                column=name,
            )
        if columns is not None and name not in columns.names:
            raise SchemaMismatchError(
                f"the schema lacks the column {name!r}, which rename gives to {source!r}",
                advice=f"add it, or choose from {', '.join(columns.names)}",
                column=name,
            )
        found[name] = source
    return found

"""The columns of a read, and what happens to a stream when the table's columns change.

Spark fixes the columns of a query when it loads the table. So a stream stops before the first commit that gives it
other columns; loaded again, it continues there.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelog.log.errors import ConfigurationError, PredicateError, SchemaChangedError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of
from tidelog.log.read.changes import change_schema, columns_with_change, only_these
from tidelog.log.read.commit_changes import Mode
from tidelog.log.read.scan import Selection


@dataclass(frozen=True, slots=True)
class LoadedColumns:
    """The table's columns when Spark loaded it, at `version`. They stay the query's until it is loaded again."""

    version: int
    schema: pa.Schema

    def to_text(self) -> str:
        """A text that `from_text` reads, for a caller that keeps texts only."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_text(text: str) -> LoadedColumns:
        """What `to_text` wrote."""
        loaded: LoadedColumns = pickle.loads(base64.b64decode(text))  # noqa: S301 - made by `to_text`
        return loaded


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """What a read selects. `mode` is None for a read without the feed's own columns."""

    mode: Mode | None
    where: str | None
    columns: Sequence[str] | None

    def only(self, names: Sequence[str]) -> QueryColumns:
        """The same rows with exactly these columns, which Spark asks for."""
        return replace(self, columns=names if self.mode is None else only_these(names))

    def all_columns(self, table_schema: pa.Schema) -> pa.Schema:
        """All columns that a row can have."""
        return table_schema if self.mode is None else change_schema(table_schema, self.mode)

    def selection(self, table_schema: pa.Schema) -> Selection:
        """The rows and columns that the read selects. Raises PredicateError and ConfigurationError."""
        chosen = self.columns
        if self.mode is not None:
            chosen = columns_with_change(chosen, self.mode, table_schema)
        return Selection(self.all_columns(table_schema), self.where, chosen)

    def require_same(self, before: pa.Schema, version: int, metadata: Metadata, path: str) -> None:
        """Raise SchemaChangedError if `metadata`, of `version`, gives the read other columns than `before`."""
        try:
            now: pa.Schema | None = self.selection(columns_of(metadata, path)).schema
        except (ConfigurationError, PredicateError):
            now = None
        if now == before:
            return
        raise SchemaChangedError(
            f"version {version} of {path} has other columns than the stream: {_difference(before, now)}",
            advice="load the table again (readStream ... load, or Feed.foreachBatch) and restart the query with the "
            "same checkpoint; it continues where it stopped",
            path=path,
            version=version,
        )


def _difference(before: pa.Schema, now: pa.Schema | None) -> str:
    if now is None:
        return "one of them is gone"
    old, new = ({field.name: field.type for field in schema} for schema in (before, now))
    parts = [f"{name} is new" for name in new if name not in old]
    parts += [f"{name} is gone" for name in old if name not in new]
    parts += [f"{name} was {old[name]} and is {new[name]}" for name in old if name in new and old[name] != new[name]]
    return ", ".join(parts) or "their order or their nullability"

"""The options of `df.write.format("tidelog")`, parsed and checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import brief
from tidelog.streaming.datasource.read_options import READ_OPTIONS, flag_in, require_known, require_path, split_names

_KNOWN = {
    "path": "path",
    "partitionby": "partitionBy",
    "where": "where",
    "replacewhere": "replaceWhere",
    "partitionoverwritemode": "partitionOverwriteMode",
    "txnappid": "txnAppId",
    "txnversion": "txnVersion",
    "mergeschema": "mergeSchema",
    "overwriteschema": "overwriteSchema",
}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_OVERWRITE_ONLY = ("where", "replacewhere", "partitionoverwritemode")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a batch write; for `idempotency_key` see Table.insert.

    `is_new` says that the write makes the table, and fails if there is one. A new table gets the properties.
    `reads_table` says that the rows come from the table itself. `partitions`, a row for each, are what is replaced.
    With `merge_schema` the table gets the columns that only the rows have; with `overwrite_schema` it gets theirs in
    place of its own.
    """

    path: str
    overwrite: bool
    partition_by: tuple[str, ...]
    where: str | None
    dynamic: bool
    idempotency_key: tuple[str, int] | None
    storage_options: Mapping[str, str] = field(repr=False)
    is_new: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    reads_table: bool = False
    partitions: pa.Table | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False


def parse_write(raw: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """The options of a write. Raises ConfigurationError for one that is unknown, misplaced or malformed."""
    options, secrets = split_names(raw)
    _refuse_misplaced(options, overwrite=overwrite)
    overwrite_schema = _overwrites_schema(options, overwrite=overwrite)
    return WriteOptions(
        path=require_path(options, 'use .save("/path/to/table")'),
        overwrite=overwrite,
        partition_by=tuple(name.strip() for name in options.get("partitionby", "").split(",") if name.strip()),
        where=_where(options),
        dynamic=_is_dynamic(options),
        idempotency_key=_idempotency_key(options),
        storage_options=secrets,
        merge_schema=not overwrite_schema and flag_in(options, "mergeschema", _KNOWN),
        overwrite_schema=overwrite_schema,
    )


def _overwrites_schema(options: Mapping[str, str], *, overwrite: bool) -> bool:
    """Whether the columns are replaced. As in Delta, an append does not know the option."""
    if not flag_in(options, "overwriteschema", _KNOWN) or not overwrite:
        return False
    part = next((key for key in ("where", "replacewhere") if key in options), None)
    if part is None and _is_dynamic(options):
        part = "partitionoverwritemode"
    if part is not None:
        raise ConfigurationError(
            f"the option 'overwriteSchema' does not go with {_KNOWN[part]!r}: rows that stay need their columns",
            advice="leave one of the two out; 'mergeSchema' adds new columns",
        )
    return True


def _where(options: Mapping[str, str]) -> str | None:
    """What to replace: `where`, or Delta's `replaceWhere`."""
    if "where" in options and "replacewhere" in options:
        raise ConfigurationError(
            "the options 'where' and 'replaceWhere' say the same: which rows to replace", advice="leave one out"
        )
    return options.get("where", options.get("replacewhere"))


def _refuse_misplaced(options: Mapping[str, str], *, overwrite: bool) -> None:
    for key in options:
        if key in READ_OPTIONS and key not in _KNOWN:
            raise ConfigurationError(f"the option {READ_OPTIONS[key]!r} is for reads only", advice="leave it out")
    require_known(options, _KNOWN)
    for key in _OVERWRITE_ONLY:
        if key in options and not overwrite:
            raise ConfigurationError(
                f"the option {_KNOWN[key]!r} is for overwriting only", advice='leave it out, or use .mode("overwrite")'
            )


def _is_dynamic(options: Mapping[str, str]) -> bool:
    mode = options.get("partitionoverwritemode", "static")
    if mode.lower() not in {"static", "dynamic"}:
        raise ConfigurationError(
            f"the option 'partitionOverwriteMode' cannot be {mode!r}", advice="use static or dynamic"
        )
    return mode.lower() == "dynamic"


def _idempotency_key(options: Mapping[str, str]) -> tuple[str, int] | None:
    if "txnappid" not in options and "txnversion" not in options:
        return None
    if not options.get("txnappid") or "txnversion" not in options:
        missing = "txnAppId" if not options.get("txnappid") else "txnVersion"
        raise ConfigurationError(
            f"the option {missing!r} is missing: 'txnAppId' and 'txnVersion' belong together",
            advice="give both, or leave both out",
        )
    text = options["txnversion"].strip()
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > len(str(-(2**63))) or abs(int(text)) >= 2**63:
        raise ConfigurationError(
            f"the option 'txnVersion' cannot be {brief(text)}", advice="give a whole number that fits into 64 bits"
        )
    return options["txnappid"], int(text)

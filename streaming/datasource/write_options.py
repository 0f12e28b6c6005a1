"""The options of `df.write.format("tidelog")`, read and checked once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.datasource.read_options import require_known, split_names

_KNOWN = {
    "path": "path",
    "partitionby": "partitionBy",
    "where": "where",
    "partitionoverwritemode": "partitionOverwriteMode",
    "txnappid": "txnAppId",
    "txnversion": "txnVersion",
}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_OVERWRITE_ONLY = ("where", "partitionoverwritemode")
_NO_EVOLUTION = ("mergeschema", "overwriteschema")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a batch write was asked for; `idempotency_key` is as in Table.insert."""

    path: str
    overwrite: bool
    partition_by: tuple[str, ...]
    where: str | None
    dynamic: bool
    idempotency_key: tuple[str, int] | None
    storage_options: Mapping[str, str]


def parse_write(raw: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """The options of a write. Raises ConfigurationError naming one that is unknown, misplaced or malformed."""
    options, secrets = split_names(raw)
    for key in _NO_EVOLUTION:
        if key in options:
            raise ConfigurationError(
                f"the option {key!r} is not there: a batch write leaves the table's columns as they are",
                advice="call Table.add_columns(...) first",
            )
    require_known(options, _KNOWN)
    for key in _OVERWRITE_ONLY:
        if key in options and not overwrite:
            raise ConfigurationError(
                f"the option {_KNOWN[key]!r} is for overwriting only", advice='leave it out, or use .mode("overwrite")'
            )
    if not options.get("path"):
        raise ConfigurationError("no table path was given", advice='use .save("/path/of/the/table")')
    return WriteOptions(
        path=options["path"],
        overwrite=overwrite,
        partition_by=tuple(name.strip() for name in options.get("partitionby", "").split(",") if name.strip()),
        where=options.get("where"),
        dynamic=_is_dynamic(options),
        idempotency_key=_idempotency_key(options),
        storage_options=secrets,
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
        raise ConfigurationError(
            "of the options 'txnAppId' and 'txnVersion' one is missing", advice="give both, or leave both out"
        )
    text = options["txnversion"].strip()
    if not _WHOLE_NUMBER.fullmatch(text) or abs(int(text)) >= 2**63:
        raise ConfigurationError(
            f"the option 'txnVersion' cannot be {text!r}", advice="give a whole number that fits into 64 bits"
        )
    return options["txnappid"], int(text)

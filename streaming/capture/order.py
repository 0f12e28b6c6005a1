"""The order of change records, as one text that compares in every engine: the greater text is the newer record.

    02.00000000016E3A08.1.00000000016E39F0.000000000011
    |  |                | |                offset in its topic, if the frame has it
    |  |                | the position of this change
    |  |                0 a row of a snapshot, 1 a change
    |  the position as the source commits, or its clock
    the epoch

Each part has a fixed width. A text is a function of the record alone, so a record that is read again has the same one.

    02..0.00000192D0F5B2AC.000000000011

is a row of a snapshot whose source has no position, as Flink CDC writes them. It is older than all that has one, and
of two such rows the one that was read later is newer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.capture.values import UNREADABLE, MisfitError, from_json

BY_POSITION, BY_TIME, BY_OFFSET = ORDERS = ("position", "time", "offset")
_MOST_EPOCHS = 256
_MOST = 2**63
_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}", re.ASCII)
_SCN = re.compile(r"\d{1,20}", re.ASCII)
_MOST_SCN = 10**20
# What a field is where there is no position.
_NO_POSITION = (None, "", 0, "0")
_FILE = re.compile(r".*\.(\d{1,9})", re.ASCII)
_STEPS = {"ts_ns": 1, "ts_us": 1_000, "ts_ms": 1_000_000}


def require_epoch(epoch: int) -> None:
    """Raise ConfigurationError for an epoch that the order has no room for."""
    if epoch not in range(_MOST_EPOCHS):
        raise ConfigurationError(f"epoch={epoch!r} is not a whole number from 0 to 255", advice="begin with 0")


def order_text(epoch: int, major: str, minor: str, offset: int | None, *, is_change: bool) -> str:
    """The order of a record."""
    return f"{epoch:02X}.{major}.{is_change:d}.{minor}.{offset or 0:012X}"


def number_text(value: Any, width: int = 16) -> str:
    """A whole number from 0 on in a fixed width. Raises MisfitError for what is none."""
    if type(value) is str and _SCN.fullmatch(value):
        value = int(value)
    if type(value) is not int or not 0 <= value < _MOST or value >= 16**width:
        raise MisfitError
    return f"{value:0{width}X}"


def debezium_order(
    source: Mapping[str, Any], operation: str, order: str, epoch: int, offset: int | None, read_at: Any = None
) -> str | None:
    """The order of a Debezium record, by its `source`; None if that has no position.

    `read_at` is the envelope's own time. It counts for a row of a snapshot without a position.
    """
    if order == BY_OFFSET:
        return None if offset is None else order_text(epoch, number_text(offset), "", offset, is_change=True)
    is_change = operation != "r" and source.get("snapshot") in (None, False, "false")
    known = _POSITIONS.get(str(source.get("connector"))) if order == BY_POSITION else None
    position, names = (_by_time, tuple(_STEPS)) if known is None else known
    try:
        if operation == "r" and all(source.get(name) in _NO_POSITION for name in names):
            return order_text(epoch, "", number_text(read_at or 0), offset, is_change=False)
        major, minor = position(source, is_change)
    except MisfitError:
        return None
    return order_text(epoch, major, minor, offset, is_change=is_change)


def _by_time(source: Mapping[str, Any], is_change: bool) -> tuple[str, str]:  # noqa: ARG001, FBT001 - as all positions
    for name, step in _STEPS.items():
        value = source.get(name)
        if type(value) is int:
            return number_text(value * step), ""
    raise MisfitError


def _postgresql(source: Mapping[str, Any], is_change: bool) -> tuple[str, str]:  # noqa: FBT001 - as all positions
    """A transaction's changes are written to the log before it commits, and are sent after it has.

    So a change can have a smaller `lsn` than a snapshot that did not see it. `sequence` begins with the commit that was
    sent before the record. A snapshot has seen that commit, and what it has seen of later ones is sent as well. In the
    snapshot of a new connector it is null, and so is it in the first transaction after that.
    """
    lsn = source.get("lsn")
    before = 0
    sequence = source.get("sequence")
    if isinstance(sequence, str):
        try:
            parts = from_json(sequence)
        except UNREADABLE:
            parts = None
        if isinstance(parts, list) and parts and parts[0] is not None:
            before = int(number_text(parts[0]), 16)
    if not is_change:
        return number_text(before), number_text(lsn or 0)
    return number_text(max(int(number_text(lsn), 16), before)), number_text(lsn)


def _mysql(source: Mapping[str, Any], is_change: bool) -> tuple[str, str]:  # noqa: ARG001, FBT001 - as all positions
    return file_position(source.get("file"), source.get("pos")), number_text(source.get("row") or 0, 8)


def file_position(file: Any, position: Any) -> str:
    """A position in MySQL's log, by the number of its file. Raises MisfitError."""
    found = _FILE.fullmatch(file) if isinstance(file, str) else None
    if not found:
        raise MisfitError
    return number_text(int(found[1]), 8) + number_text(position)


def _sql_server(source: Mapping[str, Any], is_change: bool) -> tuple[str, str]:  # noqa: ARG001, FBT001 - as all positions
    change = source.get("change_lsn")
    event = number_text(source.get("event_serial_no") or 0, 8)
    return _lsn(source.get("commit_lsn")), ("0" * 20 if change is None else _lsn(change)) + event


def _lsn(value: Any) -> str:
    if not isinstance(value, str) or not _LSN.fullmatch(value):
        raise MisfitError
    return value.replace(":", "").upper()


def _oracle(source: Mapping[str, Any], is_change: bool) -> tuple[str, str]:  # noqa: ARG001, FBT001 - as all positions
    scn, commit = source.get("scn"), source.get("commit_scn")
    if commit is None:
        commit = scn
    return _scn(commit), _scn(scn) + number_text(source.get("ssn") or 0, 8)


def _scn(value: Any) -> str:
    if type(value) is int and 0 <= value < _MOST_SCN:
        value = str(value)
    if type(value) is not str or not _SCN.fullmatch(value):
        raise MisfitError
    return value.rjust(20, "0")


# For each connector its position, and the fields of `source` that say it.
_POSITIONS: Mapping[str, tuple[Callable[[Mapping[str, Any], bool], tuple[str, str]], tuple[str, ...]]] = {
    "postgresql": (_postgresql, ("lsn", "sequence")),
    "mysql": (_mysql, ("file", "pos")),
    "mariadb": (_mysql, ("file", "pos")),
    "sqlserver": (_sql_server, ("commit_lsn", "change_lsn")),
    "oracle": (_oracle, ("scn", "commit_scn")),
}

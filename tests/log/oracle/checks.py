"""Checks that must hold after every commit, of tidelog or another engine.

Each check takes the table before and after and the lines of the commit, and yields a text for each fault.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.log.oracle import model
from tests.log.oracle.model import Effect, Moment, Row
from tests.log.oracle.operations import Kind, Operation, Restore
from tests.log.oracle.view import (
    BrokenLogError,
    Line,
    LiveFile,
    Reader,
    View,
    actions,
    lineage_of,
    live_addresses,
    moves,
    vector_id,
)

Change: TypeAlias = tuple[str, Row]
TAKES = {"delete", "update_preimage"}
# A wrong commit is wrong in many rows; the first few are enough.
_TEXTS = 3


@dataclass(frozen=True)
class Commit:
    """One commit to judge. `effect` is the effect of its operation if run alone at that point; None if foreign."""

    operation: Operation
    before: View
    after: View
    lines: list[Line]
    reader: Reader
    restorable: model.Rows
    effect: Effect | None
    unmapped: bool
    """Whether any commit of the history moved rows without lineage."""

    @property
    def ours(self) -> bool:
        return self.effect is not None

    @property
    def vectors(self) -> bool:
        return self.before.configuration.get("delta.enableDeletionVectors") == "true"

    @property
    def feed(self) -> bool:
        return self.before.configuration.get("delta.enableChangeDataFeed") == "true"

    @property
    def changes_data(self) -> bool:
        return bool(actions(self.lines, "cdc")) or any(
            action["dataChange"] for kind in ("add", "remove") for action in actions(self.lines, kind)
        )

    def moment(self) -> Moment:
        return self.before.moment(self.restorable)


def all_of(commit: Commit) -> Iterator[tuple[str, str]]:
    """(check, faults) for each check that objects."""
    for name, check in CHECKS.items():
        try:
            texts = list(itertools.islice(check(commit), _TEXTS))
        except BrokenLogError as error:
            texts = [str(error)]
        if texts:
            yield name, "; ".join(texts)


def rows(commit: Commit) -> Iterator[str]:
    """The rows are those of running the operation alone at the commit point."""
    if commit.effect is None:
        return
    wanted = model.after(commit.moment(), commit.effect)
    found = Counter(commit.after.rows.values())
    if wanted != found:
        yield f"missing {_bag(wanted - found)}, too many {_bag(found - wanted)}"


def identity(commit: Commit) -> Iterator[str]:
    """Exactly the rows of the operation die; every other row keeps its identity."""
    if commit.effect is None:
        return
    gone, new = (
        commit.before.rows.keys() - commit.after.rows.keys(),
        commit.after.rows.keys() - commit.before.rows.keys(),
    )
    if commit.operation.kind is Kind.COMPACTION or not commit.changes_data:
        if gone or new:
            yield f"no row should die or appear, but {sorted(gone)} died and {sorted(new)} appeared"
        return
    # Copied survivors have new addresses, and so have rows that another engine moved.
    if not commit.vectors or (isinstance(commit.operation, Restore) and commit.unmapped):
        return
    if gone != commit.effect.dead:
        yield f"{sorted(gone)} died, but {sorted(commit.effect.dead)} should have"
    if not commit.effect.back <= new:
        yield f"{sorted(commit.effect.back - new)} should have come back"
    doubled = [address for address in new - commit.effect.back if address[0] in commit.before.removed]
    if doubled:
        yield f"{doubled} came back"


def tombstones(commit: Commit) -> Iterator[str]:
    """A tombstone is there for each key that the operation deletes, and no other one comes or goes."""
    if commit.effect is None or isinstance(commit.operation, Restore) or commit.before.forgets:
        return
    wanted = {} if commit.effect.lifts else dict(commit.before.tombstones)
    for key, order in commit.effect.buried.items():
        wanted[key] = max(order, wanted.get(key, order))
    if wanted != commit.after.tombstones:
        yield f"they are {commit.after.tombstones}, not {wanted}"


def values(commit: Commit) -> Iterator[str]:
    """A row that stays or moves keeps its values."""
    for origin, row in commit.after.rows.items():
        before = commit.before.rows.get(origin)
        if before is not None and before != row:
            yield f"{origin} was {tuple(before)} and is {tuple(row)} at {commit.after.addresses[origin]}"


def log(commit: Commit) -> Iterator[str]:
    """The protocol allows the commit."""
    lines, before = commit.lines, commit.before
    infos = actions(lines, "commitInfo")
    if len(infos) != 1 or "commitInfo" not in lines[0]:
        yield "commitInfo is not the first line, or not the only one"
        return
    if infos[0].get("inCommitTimestamp", 0) <= before.timestamp_ms:
        yield f"its time {infos[0].get('inCommitTimestamp')} is not after {before.timestamp_ms}"
    if len(lines) == 1:
        yield "it has no actions"
    for kind, key in (("add", "path"), ("remove", "path"), ("txn", "appId"), ("cdc", "path")):
        doubled = [name for name, count in Counter(action[key] for action in actions(lines, kind)).items() if count > 1]
        if doubled:
            yield f"more than one {kind} for {doubled}"
    adds = {add["path"]: add for add in actions(lines, "add")}
    removes = {remove["path"]: remove for remove in actions(lines, "remove")}
    for path, remove in removes.items():
        yield from _remove_faults(commit, path, remove)
        if path in adds and vector_id(adds[path]) == vector_id(remove):
            yield f"{path} is removed and added with the same vector"
    for path in adds:
        if (
            path in before.files
            and path not in removes
            and before.files[path].vector != commit.after.files[path].vector
        ):
            yield f"{path} is added with another vector, and not removed with the one that is live"
        yield from _add_faults(commit, commit.after.files[path])
    if any(cdc["dataChange"] for cdc in actions(lines, "cdc")):
        yield "a cdc file says dataChange"


def _remove_faults(commit: Commit, path: str, remove: dict[str, Any]) -> Iterator[str]:
    live = commit.before.files.get(path)
    if live is None:
        yield f"{path} is removed and was not live"
    elif live.vector != vector_id(remove):
        yield f"{path} is removed with the vector {vector_id(remove)}, live is {live.vector}"
    if commit.ours and not (remove.get("extendedFileMetadata") and "partitionValues" in remove and "size" in remove):
        yield f"the remove of {path} lacks partition values or size"
    if remove["dataChange"] and commit.before.configuration.get("delta.appendOnly") == "true":
        yield f"{path} is removed from an append-only table"
    if live is None or not commit.ours or path in {add["path"] for add in actions(commit.lines, "add")}:
        return
    rows_die = commit.operation.kind is not Kind.COMPACTION and bool(live_addresses(live, commit.reader))
    if remove["dataChange"] and not rows_die:
        yield f"{path} has no live row, and its remove counts as a change of rows"
    if rows_die and not remove["dataChange"]:
        yield f"{path} has live rows, and its remove does not count as a change of rows"


def _add_faults(commit: Commit, file: LiveFile) -> Iterator[str]:
    path, stats = file.add["path"], json.loads(file.add.get("stats") or "{}")
    stored = len(commit.reader.rows(path))
    if stats.get("numRecords", stored) != stored:
        yield f"{path} has {stored} rows, its statistics say {stats['numRecords']}"
    if file.vector is not None:
        if not file.dead:
            yield f"{path} has an empty vector"
        if max(file.dead, default=0) >= stored:
            yield f"the vector of {path} names rows that it does not have"
        if "numRecords" not in stats:
            yield f"{path} has a vector and no row count"
        if stats.get("tightBounds", True) and commit.ours:
            yield f"{path} has a vector, but its bounds claim to be tight"
    for position, row in enumerate(commit.reader.rows(path)):
        for column in ("k", "v"):
            low, high = stats.get("minValues", {}).get(column), stats.get("maxValues", {}).get(column)
            if position not in file.dead and low is not None and not low <= row[column] <= high:
                yield f"{path}: {column}={row[column]} is outside of its statistics, {low} to {high}"
    if commit.ours:
        yield from _own_add_faults(commit, file, stored)


def _own_add_faults(commit: Commit, file: LiveFile, stored: int) -> Iterator[str]:
    path, old = file.add["path"], commit.before.files.get(file.add["path"])
    restoring = isinstance(commit.operation, Restore)
    if old is not None and not old.dead <= file.dead and not restoring:
        yield f"the new vector of {path} lacks {sorted(old.dead - file.dead)} of the old one"
    if len(file.dead) == stored and not restoring and (old is None or old.vector is None):
        # A file with a vector can stay with one over all its rows, for the feeds of other readers.
        yield f"{path} is added without a live row"
    if old is None and path in commit.before.removed and not restoring:
        yield f"{path} was removed once and is added again"
    if not commit.vectors and file.vector is not None and not restoring:
        yield f"{path} gets a vector, but the table has them off"


def lineage(commit: Commit) -> Iterator[str]:
    """A compaction records where each of its rows went."""
    if not commit.ours or commit.operation.kind is not Kind.COMPACTION:
        if commit.ours and lineage_of(commit.lines):
            yield "it has lineage, but is not a compaction"
        return
    groups = lineage_of(commit.lines)
    inputs = {entry["path"]: entry for group in groups for entry in group["inputs"]}
    outputs = {entry["path"]: entry for group in groups for entry in group["outputs"]}
    for path, entry in {**inputs, **outputs}.items():
        # The file of an output whose rows all died need not exist.
        if (path in inputs or path in commit.after.files) and entry["rows"] != len(commit.reader.rows(path)):
            yield f"{path} has {len(commit.reader.rows(path))} rows, its lineage says {entry['rows']}"
    moved = {new for group in groups for _, new in moves(group, commit.reader)}
    for add in actions(commit.lines, "add"):
        for address in live_addresses(commit.after.files[add["path"]], commit.reader):
            if address not in moved and add["path"] not in commit.before.files:
                yield f"the lineage lacks the row at {address}"
    for remove in actions(commit.lines, "remove"):
        if remove["path"] not in inputs and remove["path"] not in commit.after.files:
            yield f"{remove['path']} is removed, but is not an input of the lineage"


def feed(commit: Commit) -> Iterator[str]:
    """The changes of the commit, applied to the rows before, give the rows after."""
    found = changes(commit)
    taken = Counter(row for kind, row in found if kind in TAKES)
    given = Counter(row for kind, row in found if kind not in TAKES)
    before, after = Counter(commit.before.rows.values()), Counter(commit.after.rows.values())
    if taken - before - given:
        yield f"it reports deletes of rows that did not exist: {_bag(taken - before - given)}"
    expected = before + given
    expected.subtract(taken)
    if +expected != after or any(count < 0 for count in expected.values()):
        yield f"applied to the rows before it gives {_bag(+expected)}, the table holds {_bag(after)}"
    if not commit.changes_data and (found or before != after):
        yield "dataChange is false, and rows changed"
    if commit.effect is not None and (commit.vectors or commit.feed) and not isinstance(commit.operation, Restore):
        yield from _exact_feed(commit, commit.effect, taken, given)


def _exact_feed(commit: Commit, effect: Effect, taken: Counter[Row], given: Counter[Row]) -> Iterator[str]:
    dead = Counter(commit.before.rows[address] for address in effect.dead)
    if taken != dead:
        yield f"it reports deletes of {_bag(taken)}, expected {_bag(dead)}"
    if given != Counter(effect.born):
        yield f"it reports inserts of {_bag(given)}, expected {_bag(Counter(effect.born))}"
    kinds = {kind for kind, _ in changes(commit)}
    if commit.feed and commit.operation.kind is Kind.UPDATE and kinds - {"update_preimage", "update_postimage"}:
        yield f"an update reports {kinds}"
    if actions(commit.lines, "cdc") or commit.operation.kind is Kind.REPLACING:
        return
    for remove in actions(commit.lines, "remove"):
        if remove["dataChange"] and vector_id(remove) and remove["path"] not in commit.after.files:
            # Other readers take this for the deletion of all rows, even dead ones.
            yield f"{remove['path']}, which has a vector, is removed and not added again"


def changes(commit: Commit) -> list[Change]:
    """The changes of the commit's actions, as the protocol defines them."""
    reader, lines = commit.reader, commit.lines
    found: list[Change] = []
    cdc_files = actions(lines, "cdc")
    for cdc in cdc_files:
        for position, values in enumerate(reader.rows(cdc["path"])):
            kind: Any = values["_change_type"]
            found.append((kind, reader.row(cdc["path"], position, cdc["partitionValues"])))
    if cdc_files:
        return found
    adds = {add["path"]: add for add in actions(lines, "add") if add["dataChange"]}
    removes = {remove["path"]: remove for remove in actions(lines, "remove") if remove["dataChange"]}
    for path in {**adds, **removes}:
        stored = set(range(len(reader.rows(path))))
        was = stored - reader.vector(vector_id(removes[path])) if path in removes else set()
        is_now = stored - reader.vector(vector_id(adds[path])) if path in adds else set()
        values = (adds.get(path) or removes[path])["partitionValues"]
        found += [("delete", reader.row(path, position, values)) for position in sorted(was - is_now)]
        found += [("insert", reader.row(path, position, values)) for position in sorted(is_now - was)]
    return found


def shown(commit: Commit) -> Counter[Change]:
    """The changes as tidelog's feed shows them: no rows that were rewritten unchanged, and the images of updates."""
    found = changes(commit)
    replaces = commit.operation.kind is Kind.REPLACING and not isinstance(commit.operation, Restore)
    if actions(commit.lines, "cdc") or replaces:
        return Counter(found)
    taken = Counter(row for kind, row in found if kind in TAKES)
    given = Counter(row for kind, row in found if kind not in TAKES)
    taken, given = taken - given, given - taken
    updates = commit.lines[0]["commitInfo"]["operation"] == "UPDATE"
    images = Counter(row.k for row in taken) & Counter(row.k for row in given)
    by_key = commit.operation.kind in {Kind.UPSERT, Kind.ORDERED, Kind.MERGE}
    return Counter(
        [
            *_labelled(taken, images if by_key else None, "update_preimage", "delete", updates=updates),
            *_labelled(given, images if by_key else None, "update_postimage", "insert", updates=updates),
        ]
    )


def _labelled(
    rows: Counter[Row], images: Counter[int] | None, image: str, other: str, *, updates: bool
) -> Iterator[Change]:
    left = Counter(images or {})
    for row in sorted(rows.elements(), key=lambda row: row.k):
        yield (image if updates or left[row.k] > 0 else other), row
        left[row.k] -= 1


def time_version(commit: Commit) -> Iterator[str]:
    """Only a change of rows makes a time version."""
    if not commit.ours:
        return
    without_time_version = commit.operation.kind in {Kind.COMPACTION, Kind.METADATA}
    replaces_nothing = commit.operation.kind is Kind.REPLACING and not isinstance(commit.operation, Restore)
    replaces_nothing = replaces_nothing and commit.before.rows == commit.after.rows
    lifts = commit.effect is not None and commit.effect.lifts
    if replaces_nothing and not lifts:
        yield "it replaces nothing and is a commit"
    if commit.changes_data and (without_time_version or replaces_nothing):
        yield "it makes a time version"
    if (
        not commit.changes_data
        and not without_time_version
        and Counter(commit.before.rows.values()) != Counter(commit.after.rows.values())
    ):
        yield "it changes rows and makes no time version"


def operation_class(commit: Commit) -> Iterator[str]:
    """The recorded class is that of the staged operation."""
    if not commit.ours:
        return
    recorded = (commit.lines[0].get("commitInfo", {}).get("tidelog") or {}).get("class")
    if recorded != commit.operation.operation_class:
        yield f"its class is {recorded}, staged was {commit.operation.operation_class}"


CHECKS: dict[str, Callable[[Commit], Iterator[str]]] = {
    "rows": rows,
    "identity": identity,
    "values": values,
    "tombstones": tombstones,
    "log": log,
    "lineage": lineage,
    "feed": feed,
    "time version": time_version,
    "class": operation_class,
}


def _bag(rows: Counter[Row]) -> str:
    return str(sorted(tuple(row) for row in rows.elements()))

"""Judge the outcome of a transaction that lost a race.

A conflict must be necessary: running the operation again from the start would give other rows than the staged
transaction. The exceptions are rows moved without lineage, restored rows, tables without deletion vectors, staged
change files of rows that have changed, and incompatible metadata changes. A compaction must be superseded only if none
of its rows is left to move.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.log.oracle.model import Address
from tests.log.oracle.operations import Insert, Kind, Operation, Ordered, Restore
from tests.log.oracle.settings import Setting
from tests.log.oracle.view import Line, Reader, View, actions, lineage_of, moves

_HARMLESS = {"delta.checkpointInterval"}
_LEVELS = {"MINOR": 1, "MAJOR": 2}


@dataclass(frozen=True)
class Step:
    """A commit in the log, with what matters to transactions staged before it."""

    operation: Operation
    before: View
    after: View
    lines: Sequence[Line]
    reader: Reader

    @cached_property
    def removed(self) -> frozenset[str]:
        """The paths that it removed, or gave another vector."""
        return frozenset(remove["path"] for remove in actions(self.lines, "remove"))

    @cached_property
    def resurrects(self) -> bool:
        """Whether it brought back rows at their old addresses."""
        return any(
            add["path"] in self.before.removed
            if add["path"] not in self.before.files
            else not self.before.files[add["path"]].dead <= self.after.files[add["path"]].dead
            for add in actions(self.lines, "add")
        )

    @cached_property
    def lifts(self) -> bool:
        """Whether it took all tombstones away."""
        return bool(self.before.tombstones) and not self.after.tombstones

    @cached_property
    def unmapped(self) -> bool:
        """Whether it moved rows without lineage."""
        moved = [add for add in actions(self.lines, "add") if not add["dataChange"]]
        return bool(moved) and not lineage_of(self.lines)

    @cached_property
    def moved(self) -> frozenset[Address]:
        """The rows that it moved according to its lineage, by the address at which each was inserted."""
        return frozenset(
            self.before.origins.get(old, old)
            for group in lineage_of(self.lines)
            for old, _ in moves(group, self.reader)
        )

    @property
    def level(self) -> int:
        return _LEVELS.get(self.operation.operation_class, 0)

    @property
    def metadata_changed(self) -> bool:
        before, after = self.before, self.after
        return (before.schema, before.configuration) != (after.schema, after.configuration)

    @property
    def incompatible(self) -> bool:
        """Whether its metadata change can make a transaction wrong that was staged before."""
        before, after = self.before, self.after
        if before.protocol != after.protocol:
            return True
        fields, more = json.loads(before.schema)["fields"], json.loads(after.schema)["fields"]
        grown = more[: len(fields)] == fields and all(entry["nullable"] for entry in more[len(fields) :])
        keys = {*before.configuration, *after.configuration}
        changed = {key for key in keys if before.configuration.get(key) != after.configuration.get(key)}
        return not grown or bool(changed - _HARMLESS)


@dataclass(frozen=True)
class Race:
    """A transaction at its commit: the view that it was staged on, its winners, and the view now."""

    setting: Setting
    operation: Operation
    base: View
    now: View
    winners: Sequence[Step]
    groups: Sequence[frozenset[str]]
    """For a compaction: the paths of the inputs of each group. `outputs` has those of its outputs."""
    outputs: Sequence[frozenset[str]]
    has_metadata: bool

    @cached_property
    def matched_then(self) -> frozenset[Address]:
        return self.operation.matched(self.base.rows)

    @cached_property
    def matched_now(self) -> frozenset[Address]:
        return self.operation.matched(self.now.rows)

    def must_conflict(self) -> str | None:
        """Why it must not be committed, apart from its rows; None if it can be."""
        if any(winner.incompatible for winner in self.winners):
            return "the metadata changed incompatibly"
        return None

    def may_conflict(self) -> str | None:
        """Why a conflict is allowed; None if the transaction has to be committed."""
        reasons = [*self._metadata(), *self._stream()]
        match self.operation.kind:
            case Kind.DELETE | Kind.UPDATE | Kind.UPSERT | Kind.ORDERED | Kind.MERGE | Kind.REPLACING_MATCHES:
                reasons += self._row_change()
            case Kind.COMPACTION:
                reasons += ["rows were restored" for winner in self.winners if winner.resurrects]
                if not self.setting.vectors and all(map(self._touched, self.groups)):
                    reasons.append("every group was touched, without vectors")
            case Kind.BLIND | Kind.REPLACING | Kind.METADATA | Kind.FOREIGN:
                pass
        return next(iter(reasons), None)

    def may_not_be_superseded(self) -> str | None:
        """Why it must not be superseded; None if it can be."""
        if self.operation.kind is not Kind.COMPACTION:
            return "superseded, but not a compaction"
        left = sorted(frozenset().union(*self.left_to_move()))
        return f"superseded, with {left} to move" if left and self.may_conflict() is None else None

    def left_to_move(self) -> list[frozenset[Address]]:
        """For each group, the live rows that no winner of its level or above moved; empty for an exempt group."""
        level = _LEVELS[self.operation.operation_class]
        taken = {row for winner in self.winners if winner.level >= level for row in winner.moved}
        found = []
        for group in self.groups:
            own = {origin for origin, (path, _) in self.base.addresses.items() if path in group}
            exempt = not self.setting.vectors and self._touched(group)
            found.append(frozenset() if exempt else frozenset((own & self.now.rows.keys()) - taken))
        return found

    def _metadata(self) -> Iterator[str]:
        if any(winner.incompatible for winner in self.winners):
            yield "the metadata changed incompatibly"
        stages = self.has_metadata or self.operation.kind is Kind.METADATA or isinstance(self.operation, Restore)
        if stages and any(winner.metadata_changed for winner in self.winners):
            yield "both change the metadata"

    def _stream(self) -> Iterator[str]:
        key = self.operation.key if isinstance(self.operation, Insert) else None
        for winner in self.winners:
            if key is not None and any(txn["appId"] == key[0] for txn in actions(winner.lines, "txn")):
                yield "it is the second copy of one stream"

    def _row_change(self) -> Iterator[str]:
        kind, fresh = self.operation.kind, self.matched_now - self.matched_then
        for winner in self.winners:
            if winner.resurrects:
                yield "rows were restored"
            if winner.unmapped and self.matched_then & winner.before.rows.keys():
                yield "its rows were moved without lineage"
        deletes_only = kind in (Kind.DELETE, Kind.REPLACING_MATCHES)
        stages_changes = not deletes_only or not self.setting.vectors
        if self.setting.feed and stages_changes and self.matched_now != self.matched_then:
            yield "its change files hold other rows"
        if kind in (Kind.MERGE, Kind.ORDERED) and self.matched_now != self.matched_then:
            yield "it depends on other rows"
        if kind is Kind.ORDERED:
            yield from self._tombstones()
        if kind is Kind.UPDATE and fresh:
            yield "new rows match"
        buries = kind in (Kind.UPDATE, Kind.UPSERT) and self.operation.effect(self.base.moment({})).buried
        if buries and self.matched_now != self.matched_then:
            yield "it leaves tombstones of other rows"
        if not self.setting.vectors:
            paths = frozenset(self.base.addresses[row][0] for row in self.matched_then)
            if fresh or self._touched(paths):
                yield "without vectors, its files were touched"

    def _tombstones(self) -> Iterator[str]:
        then, now = self.base.tombstones, self.now.tombstones
        assert isinstance(self.operation, Ordered)
        if any(then.get(row.k) != now.get(row.k) for row in self.operation.rows):
            yield "its keys were deleted"
        if any(isinstance(winner.operation, Restore) for winner in self.winners) and then != now:
            yield "tombstones were taken back"
        if any(winner.lifts for winner in self.winners):
            yield "all tombstones were taken away"

    def _touched(self, paths: frozenset[str]) -> bool:
        return any(winner.removed & paths for winner in self.winners)

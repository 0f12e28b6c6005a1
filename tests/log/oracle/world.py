"""The table of a history. Operations are staged and committed on it, and each commit is judged."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.log.oracle import checks
from tests.log.oracle.checks import Commit
from tests.log.oracle.foreign import Site
from tests.log.oracle.judge import Race, Step
from tests.log.oracle.model import Row
from tests.log.oracle.operations import ForeignWrite, Kind, Operation, Restore
from tests.log.oracle.settings import INITIAL_VERSION, Setting, discard, fresh
from tests.log.oracle.view import BrokenLogError, Reader, View, follow, initial
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.errors import ConfigurationError, ConflictError
from tidelog.log.state.loader import LogState, load


@dataclass(frozen=True)
class Node:
    """The table at one version of a history, as the oracle and as tidelog see it."""

    view: View
    state: LogState
    time_version_ms: int
    step: Step | None = None
    parent: Node | None = None

    def steps_since(self, base: Node) -> list[Step]:
        found: list[Step] = []
        node: Node | None = self
        while node is not None and node is not base and node.step is not None:
            found.append(node.step)
            node = node.parent
        return found[::-1]


@dataclass(frozen=True)
class Pending:
    """An operation staged on `base`. Without a transaction it was refused, or it belongs to another engine."""

    operation: Operation
    base: Node
    transaction: Transaction | None = None

    @property
    def possible(self) -> bool:
        return self.transaction is not None or isinstance(self.operation, ForeignWrite)


@dataclass(frozen=True)
class Verdict:
    """How a commit ended, and what is wrong with it: pairs of check and text."""

    outcome: str
    findings: tuple[tuple[str, str], ...] = ()


class World:
    """A table in memory. With `thorough`, tidelog's own readers are compared with the oracle at each version."""

    def __init__(self, setting: Setting, *, thorough: bool = False) -> None:
        self.setting = setting
        self.thorough = thorough
        self.store, self.system = fresh(setting)
        self.reader = Reader(self.store._files)
        view = initial(self.reader)
        state = load(self.store)
        while view.version < state.head.version:
            view = follow(view, self.reader.lines(view.version + 1), self.reader)
        assert view.version == INITIAL_VERSION
        self.start = self.node = Node(view, state, state.head.timestamp_ms)

    def close(self) -> None:
        discard(self.store)

    def mark(self) -> tuple[Node, dict[str, tuple[bytes, int]]]:
        return self.node, dict(self.store._files)

    def reset(self, mark: tuple[Node, dict[str, tuple[bytes, int]]]) -> None:
        """Reset the log and files. Transactions staged up to then can be committed again."""
        self.node, files = mark
        self.store._files.clear()
        self.store._files.update(files)

    def stage(self, operation: Operation) -> Pending:
        if isinstance(operation, ForeignWrite):
            return Pending(operation, self.node)
        table = Table(self.store, self.node.state, self.system)
        try:
            return Pending(operation, self.node, operation.stage(table))
        except ConfigurationError:  # for example, on an append-only table
            return Pending(operation, self.node)

    def commit(self, pending: Pending) -> Verdict:
        """Commit a staged operation at the newest version."""
        try:
            return self._foreign(pending) if isinstance(pending.operation, ForeignWrite) else self._own(pending)
        except BrokenLogError as error:
            return Verdict("broken", (("log", str(error)),))

    def _foreign(self, pending: Pending) -> Verdict:
        operation = pending.operation
        assert isinstance(operation, ForeignWrite)
        site = Site(self.node.view, self.start.view, self.reader, self.store, self.system)
        if not operation.foreign.commit(site):
            return Verdict("nothing to do")
        return Verdict("foreign", self._advance(pending))

    def _own(self, pending: Pending) -> Verdict:
        race = self._race(pending)
        # A staged transaction is committed in many histories, so each commits a copy.
        transaction = copy.copy(pending.transaction)
        assert transaction is not None
        try:
            outcome = transaction.commit()
        except ConflictError as error:
            reason = race.may_conflict()
            if reason is not None:
                return Verdict(f"conflict: {reason}")
            return Verdict("conflict", (("need", f"an unnecessary conflict: {error.message}"),))
        except Exception as error:  # noqa: BLE001 - the oracle looks for unexpected errors
            return Verdict("failed", (("failure", repr(error)),))
        if isinstance(outcome, Superseded):
            reason = race.may_not_be_superseded()
            return Verdict("superseded", () if reason is None else (("need", reason),))
        return self._committed(pending, race, outcome)

    def _committed(self, pending: Pending, race: Race, outcome: Committed) -> Verdict:
        head = self.node.view.version
        if outcome.version <= head:
            return Verdict("nothing to do", tuple(self._idle_faults(pending, race, outcome.version)))
        findings = [("rules", reason)] if (reason := race.must_conflict()) else []
        if outcome.rebased_over != tuple(range(pending.base.view.version + 1, head + 1)):
            findings.append(("outcome", f"it reports that it was rebased over {outcome.rebased_over}"))
        findings += self._advance(pending)
        if pending.operation.kind is Kind.COMPACTION and not race.may_conflict():
            findings += self._left_behind(race)
        return Verdict("committed", tuple(findings))

    def _idle_faults(self, pending: Pending, race: Race, version: int) -> list[tuple[str, str]]:
        """An operation writes no commit only if it has nothing to do at the version that it saw."""
        if version not in {pending.base.view.version, self.node.view.version}:
            return [("outcome", f"nothing was committed, but it names version {version}")]
        seen = pending.base if version == pending.base.view.version else self.node
        if pending.operation.kind is Kind.COMPACTION:
            return [("outcome", "nothing was committed, but it is not superseded")] if race.groups else []
        if pending.operation.kind is Kind.METADATA or isinstance(pending.operation, Restore):
            return []
        effect = pending.operation.effect(seen.view.moment(self.start.view.rows))
        return [] if effect.is_empty else [("rows", f"nothing was committed, but its effect is {effect}")]

    def _left_behind(self, race: Race) -> list[tuple[str, str]]:
        """Rows that a compaction had to move must be in its outputs. A group with nothing to move has no outputs."""
        view = self.node.view
        found = []
        for expected, outputs in zip(race.left_to_move(), race.outputs, strict=True):
            left = [row for row in expected if row in view.addresses and view.addresses[row][0] not in outputs]
            if left:
                found.append(("need", f"it should have moved {sorted(left)}"))
            if not expected and outputs & view.files.keys():
                found.append(("need", f"{sorted(outputs & view.files.keys())} hold rows that winners had compacted"))
        return found

    def _race(self, pending: Pending) -> Race:
        staged: Any = pending.transaction._staged if pending.transaction else None
        moves = staged.moves if staged else ()
        inputs = [frozenset(remove.path for remove in group.inputs) for group in moves]
        outputs = [frozenset(add.path for add in group.outputs) for group in moves]
        winners = self.node.steps_since(pending.base)
        has_metadata = staged is not None and staged.metadata is not None
        view = self.node.view
        return Race(self.setting, pending.operation, pending.base.view, view, winners, inputs, outputs, has_metadata)

    def _advance(self, pending: Pending) -> tuple[tuple[str, str], ...]:
        """Move to the version that was just written and judge it."""
        before, operation = self.node.view, pending.operation
        lines = self.reader.lines(before.version + 1)
        after = follow(before, lines, self.reader)
        ours = not isinstance(operation, ForeignWrite)
        restorable = self.start.view.rows
        effect = operation.effect(before.moment(restorable)) if ours else None
        unmapped = any(step.unmapped for step in self.node.steps_since(self.start))
        commit = Commit(operation, before, after, lines, self.reader, restorable, effect, unmapped)
        findings = tuple(checks.all_of(commit))
        table = Table(self.store, self.node.state, self.system).refresh()
        time_version = after.timestamp_ms if commit.changes_data else self.node.time_version_ms
        step = Step(operation, before, after, lines, self.reader)
        self.node = Node(after, table._state, time_version, step, self.node)
        return findings + tuple(self._second_reading(commit) if self.thorough else ())

    def _second_reading(self, commit: Commit) -> list[tuple[str, str]]:
        """Compare tidelog's own readers, on a newly loaded table, with the oracle."""
        table = Table(self.store, load(self.store), self.system)
        found = []
        rows = Counter(_rows(table.scan().to_arrow()))
        if rows != Counter(commit.after.rows.values()):
            found.append(("scan", f"it reads {sorted(rows.elements())}"))
        changes = table.changes(after=commit.before.version, until=commit.after.version).to_arrow()
        shown = Counter(zip(changes["_change_type"].to_pylist(), _rows(changes), strict=True))
        if _by_key(shown) != _by_key(checks.shown(commit)):
            found.append(("changes", f"they are {sorted(shown.elements())}"))
        found += self._net(table, commit)
        stamp = table.time_version
        if stamp is None or round(stamp.timestamp() * 1000) != self.node.time_version_ms:
            found.append(("time version", f"{stamp} is not {self.node.time_version_ms}"))
        return found

    def _net(self, table: Table, commit: Commit) -> list[tuple[str, str]]:
        """Compare the net changes of the version, with whole rows as keys; skipped if a row occurs twice."""
        before, after = (Counter(view.rows.values()) for view in (commit.before, commit.after))
        changed = Counter((kind in checks.TAKES, row) for kind, row in checks.changes(commit))
        if max([*before.values(), *after.values(), *changed.values(), 0]) > 1:
            return []
        after_version, until = commit.before.version, commit.after.version
        net = table.changes(after=after_version, until=until, mode="net", keys=Row._fields).to_arrow()
        shown = Counter(zip(net["_change_type"].to_pylist(), _rows(net), strict=True))
        gone, new = (before - after).elements(), (after - before).elements()
        wanted = Counter([*(("delete", row) for row in gone), *(("insert", row) for row in new)])
        return [] if shown == wanted else [("net", f"it is {sorted(shown.elements())}")]


def _by_key(changes: Counter[checks.Change]) -> tuple[Counter[tuple[bool, Row]], Counter[tuple[str, int]]]:
    """Rows without their change types, and change types of keys: any of several rows of a key can be the image."""
    rows = Counter((kind in checks.TAKES, row) for kind, row in changes.elements())
    return rows, Counter((kind, row.k) for kind, row in changes.elements())


def _rows(table: Any) -> list[Row]:
    return [Row(*values) for values in zip(*(table[name].to_pylist() for name in Row._fields), strict=True)]

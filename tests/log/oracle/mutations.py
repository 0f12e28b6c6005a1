"""Mutation tests of the oracle: switch off one rule of the rebase at a time, and the oracle must object.

    python -m tests.log.oracle.mutations [PART OF A NAME]

Each mutation patches a function by its name; the code itself has no switches. If the code is renamed, the patch raises
an error, so this table stays up to date.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tests.log.oracle.history import Report, Turn, explore, run
from tests.log.oracle.settings import FORGETTING, SETTINGS, Setting
from tests.log.oracle.world import Verdict
from tests.patching import Function, gives, patched


@dataclass(frozen=True)
class Mutation:
    """`replaced` takes the function, method or property at `target` (module:name) and returns a wrong one.

    `witness` is a history, on a table with vectors or on that of `setting`, in which the oracle objects.
    """

    name: str
    target: str
    replaced: Callable[[Function], Any]
    witness: str
    setting: Setting = Setting()  # noqa: RUF009 - a frozen value


class Objected(Exception):  # noqa: N818 - the wanted result, not an error
    """The oracle found a fault that the unpatched code does not have."""


def none_lost(original: Function) -> Function:
    """Rule 4 off: no row counts as deleted by a winner."""

    def judge(*args: Any) -> Any:
        alive, _ = original(*args)
        return alive, np.empty(0, np.int64)

    return judge


def not_computed(original: Function) -> Function:
    """A MERGE counts as an upsert, whose rows do not depend on those that they replace."""
    return lambda *args: dataclasses.replace(original(*args), is_computed=False)


def ties_go_to_the_record(original: Function) -> Function:
    """A tombstone of a row that a DELETE removed is like that of a record."""
    return lambda rows: np.zeros_like(original(rows))


def unchanged(original: Function) -> Function:
    """The transaction stays as it is."""
    del original
    return lambda staged: staged


def by_the_commit_before(original: Function) -> Function:
    """The table's time is that of its newest commit, which is a millisecond before the commit at hand."""
    return lambda head: original(head) + 1


def keeps_nothing(original: Function) -> Function:
    """An upsert with an order says nothing of the rows that are newer than its own."""
    return lambda ordered, staged: original(ordered._replace(kept=[]), staged)


def staged_removes(original: Function) -> Function:
    """Inputs are removed with the vectors that they had when they were read."""
    del original
    return lambda group: iter(group.group.inputs)


def lowest_level(original: Function) -> Function:
    """Every winning compaction counts as one of a lower level."""
    return lambda group, move, _level: original(group, move, 0)


def group_unchanged(original: Function) -> Function:
    """The lineage stays that of the rewrite, even after a rebase over another compaction."""
    del original
    return lambda _self, group, *_args: group


def not_to_replace(original: Any) -> Any:
    """Matches join no OVERWRITE of matching rows."""
    return property(lambda staged: not staged.replaces_matches and original.fget(staged))


def first_state(original: Function) -> Function:
    """Every attempt replaces the files that the first attempt saw."""
    # The scope stays the same object in all attempts. It is kept here, so that its id is not used again.
    seen: dict[int, tuple[Any, Any]] = {}

    def replaced(staged: Any, state: Any, *args: Any) -> Any:
        scope = staged.replaces if staged.restores is None else staged.restores
        _, first = seen.setdefault(id(scope), (scope, state))
        return original(staged, first, *args)

    return replaced


def only_added_outputs(original: Function) -> Function:
    """The lineage lacks outputs whose rows all died."""

    def finished(staged: Any, *args: Any) -> Any:
        prepared = original(staged, *args)
        added = {getattr(action, "path", None) for action in prepared.actions}
        return _with_groups(
            prepared,
            lambda group: msgspec.structs.replace(group, outputs=tuple(e for e in group.outputs if e.path in added)),
        )

    return finished


def removed_vectors(original: Function) -> Function:
    """The lineage names the vectors that the commit removes instead of those that the rewrite read."""

    def finished(staged: Any, *args: Any) -> Any:
        removed = {remove.path: remove.key[1] for group in staged.moves for remove in group.inputs}
        return _with_groups(
            original(staged, *args),
            lambda group: msgspec.structs.replace(
                group,
                inputs=tuple(
                    msgspec.structs.replace(entry, dv_id=removed.get(entry.path, entry.dv_id)) for entry in group.inputs
                ),
            ),
        )

    return finished


def _with_groups(prepared: Any, change: Callable[[Any], Any]) -> Any:
    if prepared.lineage is None:
        return prepared
    lineage = msgspec.structs.replace(prepared.lineage, groups=tuple(map(change, prepared.lineage.groups)))
    return type(prepared)(prepared.actions, lineage, prepared.written)


def rows_die(original: Function) -> Function:
    """Every file that is replaced counts as a change of rows."""
    del original
    return lambda add, now_ms, **_: add.removed(now_ms, data_change=True)


def never(original: Function) -> Any:
    del original
    return property(lambda _self: False)


def always(original: Function) -> Any:
    del original
    return property(lambda _self: True)


ORDERED = SETTINGS["vectors, partitions"]

_CONFLICT = "tidelog.log.conflict"
MUTATIONS = (
    Mutation(
        "1: deletes keep their staged addresses",
        f"{_CONFLICT}.rebase:FollowedDeletes.follow",
        gives(None),
        "MINOR; DELETE k=1@0",
    ),
    Mutation(
        "1: rows moved without lineage do not conflict",
        f"{_CONFLICT}.rebase:Rebase._displaced",
        gives(()),
        "foreign OPTIMIZE; DELETE k=1@0",
    ),
    Mutation(
        "2: deleted rows stay live in the outputs",
        f"{_CONFLICT}.groups:FollowedGroup._lost",
        gives(np.empty(0, np.int64)),
        "DELETE k=1; MINOR@0",
    ),
    Mutation(
        "3: moved rows are not followed",
        f"{_CONFLICT}.groups:FollowedGroup.follow",
        gives(value=False),
        "MINOR; MAJOR@0",
    ),
    Mutation(
        "3: no row map", f"{_CONFLICT}.groups:FollowedGroup._remapped", group_unchanged, "MINOR; MAJOR@0; UPDATE k=1@1"
    ),
    Mutation(
        "3: moved rows also stay in the winner's file",
        "tidelog.log.commit.content:_left_behind",
        gives(()),
        "MINOR; MAJOR@0",
    ),
    Mutation("3: a MINOR undoes a MAJOR", f"{_CONFLICT}.groups:FollowedGroup.follow", lowest_level, "MINOR; MINOR@0"),
    Mutation(
        "4: rows that winners deleted stay in the deletes",
        f"{_CONFLICT}.rebase:FollowedDeletes.judge",
        none_lost,
        "DELETE k=1; UPDATE k=1@0",
    ),
    Mutation(
        "4: images of deleted rows stay live",
        f"{_CONFLICT}.rebase:FollowedDeletes.dead_images",
        gives({}),
        "DELETE k=1; UPDATE k=1@0",
    ),
    Mutation(
        "4: a MERGE takes over values that winners changed",
        "tidelog.log.operations.merge:_staged",
        not_computed,
        "UPDATE k=1; MERGE@0",
    ),
    Mutation(
        "4: rows that a MERGE found are forgotten",
        "tidelog.log.operations.merge:_Merge._keep",
        gives(None),
        "DELETE k=1; MERGE new@0",
    ),
    Mutation(
        "5: new rows are not checked",
        f"{_CONFLICT}.rebase:Rebase._possible_matches",
        gives({}),
        "INSERT k=1; DELETE k=1@0",
    ),
    Mutation(
        "5: new matches join an UPDATE too",
        f"{_CONFLICT}.staged:Staged.joins_matches",
        always,
        "INSERT k=1; UPDATE k=1@0",
    ),
    Mutation(
        "5: new matches do not join a DELETE",
        f"{_CONFLICT}.staged:Staged.joins_matches",
        never,
        "INSERT k=1; DELETE k=1@0",
    ),
    Mutation(
        "5: new matches do not join an OVERWRITE of matching rows",
        f"{_CONFLICT}.staged:Staged.joins_matches",
        not_to_replace,
        "INSERT k=1; REPLACE k<=3@0",
    ),
    Mutation(
        "6: incompatible metadata does not conflict",
        f"{_CONFLICT}.rebase:metadata_conflict",
        gives(None),
        "foreign append-only; INSERT@0",
    ),
    Mutation(
        "7: a second copy of a stream does not conflict",
        f"{_CONFLICT}.rebase:application_conflict",
        gives(None),
        "INSERT once; INSERT once@0",
    ),
    Mutation(
        "a winner's tombstones are not looked at",
        "tidelog.log.commit.race:Race._buried",
        gives(None),
        "ORDERED delete; ORDERED@0",
    ),
    Mutation(
        "tombstones are forgotten",
        "tidelog.log.operations.upsert_order:tombstones_of",
        gives(()),
        "ORDERED delete; ORDERED",
    ),
    Mutation(
        "an OVERWRITE keeps tombstones",
        "tidelog.log.commit.content:_without_tombstones",
        gives(None),
        "ORDERED delete; OVERWRITE",
    ),
    Mutation(
        "a TRUNCATE of an empty table keeps tombstones",
        "tidelog.log.operations.overwrite:_lifts_tombstones",
        gives(value=False),
        "TRUNCATE; ORDERED delete; TRUNCATE",
    ),
    Mutation(
        "a DELETE leaves no tombstones",
        "tidelog.log.operations.delete_update:columns_of_rows",
        gives(None),
        "DELETE k=1; ORDERED same",
        ORDERED,
    ),
    Mutation(
        "a record that is equal to a deleted row brings it back",
        "tidelog.log.operations.upsert_order:_wins_ties",
        ties_go_to_the_record,
        "DELETE k=1; ORDERED same",
        ORDERED,
    ),
    Mutation(
        "a DELETE leaves the tombstones of the rows that it found first",
        f"{_CONFLICT}.staged:Staged.with_other_rows",
        unchanged,
        "INSERT k=1; DELETE k=1@0",
        ORDERED,
    ),
    Mutation(
        "a DELETE leaves tombstones of rows that a winner has replaced",
        f"{_CONFLICT}.staged:Staged.with_other_rows",
        unchanged,
        "TRUNCATE p=1; DELETE k<=3@0",
        ORDERED,
    ),
    Mutation(
        "an UPDATE of keys knows which rows get another one",
        "tidelog.log.operations.delete_update:stage_update",
        not_computed,
        "DELETE k=3; UPDATE k<=3@0",
        ORDERED,
    ),
    Mutation(
        "the age of tombstones is that at the commit before",
        "tidelog.log.state.tombstones:_kept_ms",
        by_the_commit_before,
        "ORDERED delete; INSERT; INSERT; ORDERED late",
        FORGETTING,
    ),
    Mutation(
        "rows that are newer do not matter to the rebase",
        "tidelog.log.operations.upsert:Ordered.staged",
        keeps_nothing,
        "DELETE k=5; ORDERED delete@0",
    ),
    Mutation(
        "an upsert with an order takes new matches with it",
        "tidelog.log.operations.upsert:Ordered.staged",
        not_computed,
        "INSERT k=1; ORDERED@0",
    ),
    Mutation(
        "restored rows are not noticed",
        f"{_CONFLICT}.rebase:Rebase._resurrected",
        gives(()),
        "foreign smaller vector; MINOR@0",
    ),
    Mutation(
        "a compaction removes its inputs as staged",
        f"{_CONFLICT}.groups:FollowedGroup._removes_at_head",
        staged_removes,
        "DELETE k=1; MINOR@0",
    ),
    Mutation("a file stays with all its rows dead", f"{_CONFLICT}.staged:RowDelete.kills_all", never, "DELETE p=1"),
    Mutation(
        "an OVERWRITE replaces the files that it saw when staged",
        "tidelog.log.commit.content:_replaced",
        first_state,
        "INSERT; OVERWRITE@0",
    ),
    Mutation(
        "dead rows die again when their file is replaced",
        "tidelog.log.commit.content:_gone",
        rows_die,
        "DELETE p=1; TRUNCATE@1",
    ),
    Mutation(
        "the lineage lacks dead outputs",
        "tidelog.log.commit.content:_finished",
        only_added_outputs,
        "DELETE p=1; MINOR of two@0",
    ),
    Mutation(
        "the lineage names the removed vectors",
        "tidelog.log.commit.content:_finished",
        removed_vectors,
        "DELETE k=1; MINOR@0",
    ),
)

# Histories that show faults which no pair shows; tried last.
TRAPS = (
    "MINOR; MAJOR@0; UPDATE k=1@1",
    "DELETE k=1; MINOR@0; UPDATE v<70@1",
    "DELETE k<5; MAJOR into two@0; UPDATE v<70@1",
    "DELETE k=1; foreign RESTORE; DELETE k<=3@0",
    "MAJOR clustered; MINOR@0; DELETE k=1@1",
)


class _Alert(Report):
    """Stops at the first new finding."""

    def __init__(self, known: frozenset[tuple[str, str, str]]) -> None:
        super().__init__()
        self._known = known

    def note(self, setting: Setting, trail: Sequence[Turn], verdict: Verdict) -> bool:
        continues = super().note(setting, trail, verdict)
        for found in self.findings:
            if found[:3] not in self._known:
                raise Objected(str(found))
        return continues


@functools.cache
def _known(setting: Setting) -> frozenset[tuple[str, str, str]]:
    """The findings in the unpatched code."""
    reports = [explore(setting, 2), *(run(setting, trap, thorough=False) for trap in TRAPS)]
    return frozenset(found[:3] for report in reports for found in report.findings)


def objection(mutation: Mutation) -> str | None:
    """The oracle's first objection to the mutation; None if it has none."""
    for setting in (SETTINGS["vectors"], SETTINGS["vectors, feed, partitions"], SETTINGS["copies"]):
        known = _known(setting)
        with patched(mutation):
            try:
                explore(setting, 2, report=_Alert(known))
                for trap in TRAPS:
                    run(setting, trap, thorough=False, report=_Alert(known))
            except Objected as found:
                return str(found)
    return None


def main() -> int:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = 0
    for mutation in MUTATIONS:
        if part in mutation.name:
            found = objection(mutation)
            missed += found is None
            print(f"{'MISSED' if found is None else 'noticed'}: {mutation.name}: {found}"[:400], flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

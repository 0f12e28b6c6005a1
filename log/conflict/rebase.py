"""The rebase: adjust a staged transaction to the winners, the commits that landed after its base version.

A rebase is allowed only if running the operation again at the head would leave the same rows and a true change feed.
The winners are folded in, oldest first, then the transaction is judged at the newest of them. The rules:

1. A winner moved rows that the transaction deletes: translate the addresses through the move. A move without lineage is
   a conflict.
2. A winner deleted rows that the transaction moves: they are dead at their new address.
3. A winner moved rows that the transaction moves: move them from their current addresses. A group is dropped if none of
   its rows is left, if compactions of its level or above moved all of them, or if a move has no lineage.
4. A winner deleted rows that the transaction deletes: they leave its deletes, and their images die with them. If it
   staged change rows for them it is a conflict, because the change feed would be wrong, and so it is if its new rows
   have values or row ids of those that it replaces. Rows that it found and keeps may not be deleted either. Only the
   rows that it still deletes get tombstones.
5. A winner added rows: this matters only if the transaction reads. Rows that match join its deletes if deleting is all
   that it does with them, else it is a conflict, as it is if new rows would need their values or row ids. Whether rows
   match is a Question, which the caller answers by reading them.
6. A winner changed the schema or protocol: see `metadata_conflicts`.
7. A winner recorded progress of the transaction's own stream: see `metadata_conflicts`.
8. A winner is a vacuum that may have deleted the transaction's files: see `horizon`.

Removes are computed at the head: a file is removed if all its live rows go, else it gets a vector. A rebase writes only
vectors, row maps and log entries, no data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.effects import Effect, LiveFiles, brings_back, effect_of
from tidelog.log.conflict.fences import horizon_conflict
from tidelog.log.conflict.groups import FollowedGroup, JudgedGroup
from tidelog.log.conflict.metadata_conflicts import (
    application_conflict,
    metadata_conflict,
    named_version_taken,
    protocol_and_metadata_after,
)
from tidelog.log.conflict.moves import Blobs, Move, Rows, concatenated, starts, to_bitmap, to_numbers
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Answer, Conflict, NothingLeft, Question, Rebased, RebaseOutcome
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DataFileMissingError,
    TidelogError,
)
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol
from tidelog.log.format.paths import canonical
from tidelog.log.format.protocol import has_deletion_vectors
from tidelog.log.format.row_tracking import preserves_ids
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning.file_pruning import may_match

# A compaction of a lower level never undoes one of a higher level.
_LEVELS = {OperationClass.MINOR: 1, OperationClass.MAJOR: 2}

Answers: TypeAlias = Mapping[str, Answer | None]
"""The matches in each file of a Question; None if reading the file would exceed the budget."""


class Rebase:
    """The rebase of one staged transaction. Call `fold` once for each winner, in order, then `judge`.

    Does no I/O, except that `blobs` reads small files that the log names.

    With `blind_appends_follow` a winner that only added rows and read nothing can be ordered after this transaction
    (Delta's WriteSerializable), so its rows are not checked. A transaction with keys checks them always, as does one
    with `sees_appends`.
    `newest_change` is the newest winner that touched files of this transaction.
    """

    def __init__(
        self,
        staged: Staged,
        base_version: int,
        base_protocol: Protocol,
        base_metadata: Metadata,
        blobs: Blobs,
        *,
        blind_appends_follow: bool = False,
    ) -> None:
        self._staged = staged
        self._base_version = base_version
        self._protocol_and_metadata = (base_protocol, base_metadata)
        self._metadata = staged.metadata or base_metadata
        self._blobs = blobs
        has_keys = staged.reads is not None and staged.reads.keys is not None
        self._blind_appends_follow = blind_appends_follow and not (has_keys or staged.sees_appends)
        self._vectors = has_deletion_vectors(base_protocol, base_metadata)
        # The written rows of an UPSERT have the ids of the rows that they replace, and a rebase cannot rewrite them.
        # Nor can it compute new values.
        self._reuses_rows = staged.is_computed or (preserves_ids(base_metadata) and staged.replaces_by_key)
        self._rules: set[int] = set()
        self._conflict: Conflict | None = None
        self.newest_change = 0
        self._classes: dict[int, OperationClass] = {}
        self._live = LiveFiles(blobs)
        self._deletes = FollowedDeletes(staged, self._live)
        self._kept = FollowedDeletes(replace(staged, deletes=staged.kept), self._live)
        self._groups = [
            FollowedGroup(group, self._live, _LEVELS.get(staged.operation_class, 1)) for group in staged.moves
        ]
        self._candidates = CandidateFiles(self._live, blobs) if staged.reads is not None else None
        # The groups that have ever had rows in a file, so that each winner is checked against few of many groups.
        self._owners: dict[str, list[FollowedGroup]] = {}
        for group in self._groups:
            for remove in group.group.inputs:
                self._owners.setdefault(canonical(remove.path), []).append(group)
        # Every file that has ever held rows of this transaction. If one comes back, its deletes or moves are undone.
        self._touched = set(self._live.files)

    def fold(self, winner: Commit, operation_class: OperationClass) -> None:
        """Take one more winner into account."""
        if self._conflict is not None:
            return
        self._classes[winner.version] = operation_class
        for number, found in (
            (6, named_version_taken(self._staged)),
            (6, metadata_conflict(self._staged, *self._protocol_and_metadata, winner)),
            (7, application_conflict(self._staged, winner)),
            (8, horizon_conflict(self._base_version, winner)),
        ):
            if found:
                self._rules.add(number)
                self._conflict = self._lost_to(winner.version, *found)
                return
        if self._staged.sees_all and winner.data_change:
            self._rules.add(5)
            self._conflict = self._lost_to(
                winner.version, ConcurrentAppendException, "the winner changed rows that this transaction may have read"
            )
            return
        if self._staged.sees_deletes and self._may_have_read(winner):
            self._rules.add(4)
            self._conflict = self._lost_to(
                winner.version,
                ConcurrentDeleteReadException,
                "the winner deleted or changed rows that this transaction may have read",
            )
            return
        self._protocol_and_metadata = protocol_and_metadata_after(*self._protocol_and_metadata, winner)
        if self._touched or self._candidates is not None:
            self._fold_rows(effect_of(winner, operation_class, self._blobs))

    def judge(self, answers: Answers | None = None) -> RebaseOutcome:
        """The outcome at the newest winner.

        If the outcome is a Question, call again with `answers`: the matching live rows of each of its files.
        """
        if self._conflict is not None:
            return self._conflict
        if self._groups:
            return self._judge_groups()
        return self._judge_rows(answers)

    def class_of(self, version: int) -> OperationClass:
        """The class of a winner that was folded in."""
        return self._classes.get(version, OperationClass.NONE)

    def _may_have_read(self, winner: Commit) -> bool:
        """Whether the winner deleted or changed rows of files in which this transaction has looked for rows."""
        removes = [remove for remove in winner.removes if remove.data_change]
        if not removes or self._staged.reads is None:
            return bool(removes)
        schema = columns_of(self._metadata, "")
        return any(may_match(removes, self._staged.reads.predicate, schema, self._metadata))

    # --- folding

    def _fold_rows(self, effect: Effect) -> None:
        level = _LEVELS.get(effect.operation_class, 1)
        moves = [move for move in effect.moves if self._can_follow(move)]
        for move in moves:
            self._deletes.follow(move)
            self._kept.follow(move)
            owners = {id(group): group for path in move.inputs for group in self._owners.get(path, ())}
            for group in owners.values():
                if group.follow(move, level, effect.version):
                    self._rules.add(3)
                    self.newest_change = effect.version
                    for path in move.outputs:
                        if group.touches(path):
                            self._owners.setdefault(path, []).append(group)
            self._touched.update(path for path in move.outputs if self._holds(path))
        displaced = [path for path in self._displaced(effect, moves) if self._lives_in(path)]
        self._lose(effect, displaced, "moved rows, without lineage to follow them,")
        self._lose(effect, self._resurrected(effect), "brought back rows")
        if self._candidates is not None:
            may_follow = self._blind_appends_follow and effect.is_blind_append
            if effect.changes_rows and not may_follow:
                # This winner may have read or changed rows of earlier blind appends, so those cannot be ordered later.
                self._candidates.release()
            self._candidates.apply(effect, held=may_follow)
        if any(path in self._touched for path in (*effect.removed, *effect.vectored)):
            self.newest_change = effect.version
        self._live.apply(effect)

    def _holds(self, path: str) -> bool:
        return path in self._deletes.rows.at or path in self._kept.rows.at or self._moves_rows_of(path)

    def _moves_rows_of(self, path: str) -> bool:
        return any(group.touches(path) for group in self._owners.get(path, ()))

    def _lives_in(self, path: str) -> bool:
        """Whether a row of this transaction was live in the file until now. Dead rows need no lineage."""
        return self._deletes.live_in(path) or self._kept.live_in(path) or self._moves_rows_of(path)

    def _can_follow(self, move: Move) -> bool:
        """Whether the lineage needed to follow `move` still exists. A vacuum deletes it after a while."""
        if any(self._holds(path) for path in move.inputs):
            try:
                move.load()
            except DataFileMissingError:
                return False
        return True

    def _displaced(self, effect: Effect, followed_moves: Iterable[Move]) -> Iterable[str]:
        """Files whose rows moved to unknown addresses."""
        followed = {path for move in followed_moves for path in move.inputs}
        gone = (path for path, died in effect.removed.items() if not died)
        thinned = (path for path, vectored in effect.vectored.items() if not vectored.data_change)
        return [path for path in (*gone, *thinned) if path not in followed]

    def _resurrected(self, effect: Effect) -> Iterable[str]:
        """Files with rows of the transaction, now or earlier, in which dead or moved rows are live again."""
        for path in effect.added:
            if path in self._touched and path not in self._live.files:
                yield path
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if path in self._touched and brings_back(vectored, self._blobs):
                    yield path

    def _lose(self, effect: Effect, paths: Iterable[str], what: str) -> None:
        """Give up the rows in these files, which cannot be followed: drop groups; conflict if rows are deleted."""
        for path in paths:
            self.newest_change = effect.version
            for group in self._owners.get(path, ()):
                group.drop(effect.version)
                self._rules.add(3)
            if self._staged.deletes and self._conflict is None:
                self._rules.add(1)
                evidence = f"the winner {what} in {path}, where this transaction changes rows"
                self._conflict = self._lost_to(effect.version, ConcurrentDeleteDeleteException, evidence)

    # --- judging: compactions

    def _judge_groups(self) -> RebaseOutcome:
        judged = [(followed.group, followed.judge(vectors=self._vectors)) for followed in self._groups]
        dropped = tuple(group for group, found in judged if found is None)
        kept = [found for _, found in judged if found is not None]
        if not kept:
            # The winner that took the last group; if rows died instead, the newest winner that touched the inputs.
            takers = [followed.taken_by for followed in self._groups]
            return NothingLeft(max(takers) if all(takers) else self.newest_change)
        dead = {path: rows for found in kept for path, rows in found.dead.items()}
        if dead:
            self._rules.add(2)
        moved = tuple(self._moved(kept))
        groups = tuple(found.group for found in kept)
        staged = replace(self._staged, moves=groups, moved=moved, dead=dead)
        return Rebased(staged, dropped, frozenset(self._rules))

    def _moved(self, kept: Iterable[JudgedGroup]) -> Iterable[RowDelete]:
        """The rows of all groups to delete from outputs of winners' compactions."""
        rows: dict[str, BitMap64] = {}
        for found in kept:
            for path, positions in found.moved.items():
                rows[path] = rows.get(path, BitMap64()) | positions
        for path, positions in rows.items():
            yield self._row_delete(path, positions)

    def _row_delete(self, path: str, positions: BitMap64) -> RowDelete:
        file = self._live.files[path]
        if not isinstance(file, AddFile):
            raise AssertionError(file)  # noqa: TRY004 - rows are followed only into files that a winner added
        return RowDelete(file, positions, self._live.rows[path])

    # --- judging: changed rows

    def _judge_rows(self, answers: Answers | None) -> RebaseOutcome:
        alive, lost = self._deletes.judge()
        if len(self._kept.judge()[1]):
            self._rules.add(4)
            return self._row_conflict("the winner changed rows whose keys this transaction found")
        if self._deletes.moved:
            self._rules.add(1)
        if len(lost):
            self._rules.add(4)
            if self._reuses_rows:
                return self._row_conflict("the winner changed rows whose values or row ids this transaction reuses")
            if self._staged.cdc:
                return self._row_conflict(
                    "the winner changed rows for which this transaction has already written change feed rows"
                )
        dead = self._deletes.dead_images(lost)
        copies = any(delete.survivors is not None for delete in self._staged.deletes)
        found: list[RowDelete] | Conflict = [self._row_delete(*item) for item in alive.items()]
        if copies:
            found = self._unchanged_copies(lost, dead)
        if isinstance(found, Conflict):
            return found
        staged = replace(
            self._staged, deletes=tuple(found), dead=dead, metrics=_counted(self._staged.metrics, -len(lost))
        )
        return self._judge_reads(staged.with_other_rows() if len(lost) else staged, answers)

    def _unchanged_copies(self, lost: Int64Array, dead: Mapping[str, BitMap64]) -> list[RowDelete] | Conflict:
        """The copy-on-write deletes of a table without vectors: each is kept as staged, or all its rows died."""
        kept = []
        for delete, numbers in zip(self._staged.deletes, self._deletes.lost_of_each(lost), strict=True):
            live = self._live.files.get(canonical(delete.file.path))
            if live is not None and live.key == delete.file.key:
                kept.append(delete)
            elif len(numbers) < len(delete.positions):
                return self._row_conflict(
                    f"the winner changed or moved rows of {delete.file.path}, and the table has no deletion vectors"
                )
        rows = {canonical(add.path): statistics.num_records(add.stats) for add in self._staged.adds}
        if any(len(positions) != rows[path] for path, positions in dead.items()):
            return self._row_conflict(
                "the winner changed rows that this transaction updates, and the table has no deletion vectors"
            )
        return kept

    def _judge_reads(self, staged: Staged, answers: Answers | None) -> RebaseOutcome:
        """Rule 5."""
        files = self._possible_matches()
        if not files or staged.reads is None:
            return Rebased(staged, rules=frozenset(self._rules))
        if answers is None:
            return Question(files, staged.reads)
        self._rules.add(5)
        deletes = {canonical(delete.file.path): delete for delete in staged.deletes}
        joined = 0
        for path, file in files.items():
            answer = answers.get(path)
            if answer is None:
                return self._append_conflict(
                    path, f"there are too many new rows to check for matches, such as in {path}"
                )
            mine = deletes[path].positions if path in deletes else BitMap64()
            extra = answer.matching - mine
            if extra and not (self._vectors and staged.joins_matches and not self._reuses_rows):
                return self._append_conflict(path, f"new rows match what the operation read: {len(extra)} in {path}")
            if extra:
                deletes[path] = RowDelete(file, mine | extra, answer.rows)
                joined += len(extra)
        staged = replace(staged, deletes=tuple(deletes.values()), metrics=_counted(staged.metrics, joined))
        return Rebased(staged.with_other_rows() if joined else staged, rules=frozenset(self._rules))

    def _possible_matches(self) -> dict[str, AddFile]:
        """The live files with rows of winners that may match, according to the log."""
        if self._candidates is None or self._staged.reads is None:
            return {}
        files = self._candidates.at_head()
        if not files:
            return {}
        by_file = self._candidates.origins(files)
        possible = self._that_may_match({path: add for found in by_file.values() for path, add in found.items()})
        return self._that_may_match({path: file for path, file in files.items() if by_file[path].keys() & possible})

    def _that_may_match(self, files: Mapping[str, AddFile]) -> dict[str, AddFile]:
        if not files or self._staged.reads is None:
            return {}
        schema = columns_of(self._metadata, "")
        keep = may_match([*files.values()], self._staged.reads.predicate, schema, self._metadata)
        return {path: file for (path, file), kept in zip(files.items(), keep, strict=True) if kept}

    def _append_conflict(self, path: str, evidence: str) -> Conflict:
        if self._candidates is None:
            raise AssertionError(path)
        return self._lost_to(self._candidates.brought_by(path), ConcurrentAppendException, evidence)

    def _row_conflict(self, evidence: str) -> Conflict:
        return self._lost_to(self.newest_change, ConcurrentDeleteDeleteException, evidence)

    def _lost_to(self, version: int, error: type[TidelogError], evidence: str) -> Conflict:
        return Conflict(error, version, self._classes[version], self._staged.operation_class, evidence)


def _counted(metrics: Mapping[str, int], difference: int) -> dict[str, int]:
    """The metrics with `difference` more deleted rows. An UPSERT had counted those rows as inserted."""
    counted = dict(metrics)
    for name in ("numDeletedRows", "numUpdatedRows", "numTargetRowsUpdated"):
        if name in counted:
            counted[name] = max(0, counted[name] + difference)
    if "numTargetRowsInserted" in counted:
        counted["numTargetRowsInserted"] = max(0, counted["numTargetRowsInserted"] - difference)
    return counted


# --- rule 5: the live files with rows from winners, which the transaction might have read -----------------------------


class CandidateFiles:
    """Files with rows that winners added, followed through compactions.

    A compacted file also holds older rows. Those that match are already among the transaction's deletes.
    """

    def __init__(self, live: LiveFiles, blobs: Blobs) -> None:
        self._live = live
        self._blobs = blobs
        # The newest winner with rows in each file.
        self._versions: dict[str, int] = {}
        # For each file, the winners' files that its rows came from. Rows that cannot match by the statistics of the
        # file that brought them cannot match in a larger file either.
        self._origins: dict[str, dict[str, AddFile]] = {}
        self._held: set[str] = set()

    def apply(self, effect: Effect, *, held: bool = False) -> None:
        """Add the files of one more winner. Call this before `LiveFiles.apply`.

        `held` files are not candidates until `release` is called: their winner can be ordered after the transaction.
        If a compaction mixes held rows with rows that are not, its output is not held.
        """
        if held:
            self._held.update(effect.added)
        for move in effect.moves:
            self._carry(move.inputs, move.outputs, effect.version)
        self._carry([path for path, died in effect.removed.items() if not died], effect.arrived, effect.version)
        for path in effect.removed:
            # Its rows have been carried to other files. Forgetting it keeps a long race small.
            self._versions.pop(path, None)
            self._origins.pop(path, None)
            self._held.discard(path)
        for path, add in effect.added.items():
            live = self._live.files.get(path)
            if live is None or live.key != add.key:
                self._versions[path] = effect.version
                self._origins[path] = {path: add}
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if brings_back(vectored, self._blobs):
                    self._versions[path] = effect.version
                    self._origins[path] = {path: vectored.file}

    def release(self) -> None:
        """Make held files candidates: another winner may have built on them, so they cannot be ordered later."""
        self._held.clear()

    def at_head(self) -> dict[str, AddFile]:
        """The candidate files that are live."""
        found = {path: self._live.files.get(path) for path in self._versions if path not in self._held}
        return {path: file for path, file in found.items() if isinstance(file, AddFile)}

    def origins(self, paths: Iterable[str]) -> dict[str, dict[str, AddFile]]:
        """For each of these files, the winners' files that its rows came from, by path."""
        return {path: self._origins[path] for path in paths}

    def _carry(self, sources: Iterable[str], targets: Iterable[str], version: int) -> None:
        carried = [path for path in sources if path in self._versions]
        if not carried:
            return
        origins: dict[str, AddFile] = {}
        for path in carried:
            origins |= self._origins[path]
        held = all(path in self._held for path in carried)
        for target in targets:
            self._versions[target] = version
            self._origins[target] = self._origins.get(target, {}) | origins
            if held:
                self._held.add(target)
            else:
                self._held.discard(target)

    def brought_by(self, path: str) -> int:
        """The newest winner with rows in the file."""
        return self._versions[path]


# --- rules 1 and 4: the rows that a transaction deletes, followed through winners -------------------------------------


class FollowedDeletes:
    """The rows that the transaction deletes, at their current addresses."""

    def __init__(self, staged: Staged, live: LiveFiles) -> None:
        self._staged = staged
        self._live = live
        self.moved = False
        self._starts = starts([len(delete.positions) for delete in staged.deletes])
        at = {}
        for delete, start in zip(staged.deletes, self._starts.tolist(), strict=True):
            path = canonical(delete.file.path)
            live.files[path] = delete.file
            live.rows[path] = delete.physical_rows
            positions = to_numbers(delete.positions)
            at[path] = positions, start + np.arange(len(positions))
        self.rows = Rows(at)

    def follow(self, move: Move) -> None:
        """Translate the addresses of rows that the move relocates."""
        followed = self.rows.follow(move)
        self.moved = self.moved or followed is not self.rows
        self.rows = followed

    def live_in(self, path: str) -> bool:
        """Whether any of them is live in this file after the winners folded so far."""
        if path not in self.rows.at or path not in self._live.files:
            return False
        positions, _ = self.rows.at[path]
        return bool(to_bitmap(positions) - self._live.dead(path))

    def judge(self) -> tuple[dict[str, BitMap64], Int64Array]:
        """The rows that are still live, by file path, and the numbers of those that winners deleted."""
        alive: dict[str, BitMap64] = {}
        lost = []
        for path, (positions, numbers) in self.rows.at.items():
            if path not in self._live.files:
                lost.append(numbers)
                continue
            mine = to_bitmap(positions)
            left = mine - self._live.dead(path)
            if left:
                alive[path] = left
            if len(left) < len(mine):
                lost.append(numbers[~np.isin(positions, to_numbers(left))])
        return alive, concatenated(lost)

    def lost_of_each(self, lost: Int64Array) -> list[Int64Array]:
        """The numbers of the lost rows of each staged delete, counted from its own first row."""
        ordered = np.sort(lost)
        bounds = [(start, start + len(delete.positions)) for start, delete in self._with_starts()]
        cuts = np.searchsorted(ordered, np.array(bounds, np.int64).reshape(-1, 2))
        return [ordered[low:high] - start for (start, _), (low, high) in zip(bounds, cuts.tolist(), strict=True)]

    def _with_starts(self) -> list[tuple[int, RowDelete]]:
        return [*zip(self._starts.tolist(), self._staged.deletes, strict=True)]

    def dead_images(self, lost: Int64Array) -> dict[str, BitMap64]:
        """The positions of the images of lost rows, by the path of the added file that holds them."""
        dead: dict[str, BitMap64] = {}
        if not len(lost):
            return dead
        for delete, inside in zip(self._staged.deletes, self.lost_of_each(lost), strict=True):
            if delete.images is None:
                continue
            adds, positions = delete.images.adds[inside], delete.images.positions[inside]
            for number in np.unique(adds).tolist():
                path = canonical(self._staged.adds[number].path)
                dead[path] = dead.get(path, BitMap64()) | to_bitmap(positions[adds == number])
        return dead

"""The rebase: a staged transaction, seen again after others committed.

It is allowed only where running the operation again from the start on the new version would leave the same rows, and a
true feed. The winners are folded in, oldest first, then the transaction is judged at the newest of them. The rules:

1. A winner moved rows that I delete: I follow them. A move that records no lineage: conflict.
2. A winner deleted rows that I move: they die at their new address.
3. A winner moved rows that I move: I move them from where they are now. A group is dropped where none of its rows is
   left, or all were moved by a compaction of my level or above.
4. A winner deleted rows that I delete: they are no longer mine, and what I made of them dies with them. Conflict where
   I staged change rows for them, which would be false.
5. A winner added rows: they matter only if I read. Those that match join my deletes where nothing else was made of the
   rows; else conflict. Whether they match is a question, which the caller answers by reading.
6. A winner changed schema or protocol, 7. noted the progress of my own stream: see `rules`.

Removes are computed at the head: a file goes when all rows that are live in it go, else it gets a vector. Only vectors,
row maps and log entries are written for a rebase, no data file ("metadata-level retry").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.candidate_files import CandidateFiles
from tidelog.log.conflict.deletes import FollowedDeletes
from tidelog.log.conflict.effects import Effect, brings_back, effect_of
from tidelog.log.conflict.groups import FollowedGroup, JudgedGroup
from tidelog.log.conflict.live_files import LiveFiles
from tidelog.log.conflict.metadata_conflicts import (
    application_conflict,
    metadata_conflict,
    named_version_taken,
    protocol_and_metadata_after,
)
from tidelog.log.conflict.moves import Blobs, Move
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Answer, Conflict, NothingLeft, Question, Rebased, RebaseOutcome
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    DataFileMissingError,
    TidelogError,
)
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol
from tidelog.log.format.paths import canonical
from tidelog.log.format.protocol import has_deletion_vectors
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning.file_pruning import may_match

# How much of a table a compaction may rearrange: one of a higher level is not undone by one of a lower.
_LEVELS = {OperationClass.MINOR: 1, OperationClass.MAJOR: 2}

Answers: TypeAlias = Mapping[str, Answer | None]
"""For each file of a Question what matches in it; None where it was too much to read."""


class Rebase:
    """One staged transaction on its way over the winners. `fold` each of them once, in order; then `judge`.

    Pure but for `blobs`, which looks up small files that the log names.
    `blind_appends_follow`: a winner that only added rows, and read nothing, may be ordered after this transaction
    (Delta's WriteSerializable), so that its rows are not looked at; by keys they always are.
    `newest_change` is the newest winner that touched files of this transaction.
    """

    def __init__(
        self,
        staged: Staged,
        base_protocol: Protocol,
        base_metadata: Metadata,
        blobs: Blobs,
        *,
        blind_appends_follow: bool = False,
    ) -> None:
        self._staged = staged
        self._protocol_and_metadata = (base_protocol, base_metadata)
        self._metadata = base_metadata
        self._blobs = blobs
        self._blind_appends_follow = blind_appends_follow and not (staged.reads and staged.reads.keys is not None)
        self._vectors = has_deletion_vectors(base_protocol, base_metadata)
        self._rules: set[int] = set()
        self._conflict: Conflict | None = None
        self.newest_change = 0
        self._classes: dict[int, OperationClass] = {}
        self._live = LiveFiles(blobs)
        self._deletes = FollowedDeletes(staged, self._live)
        self._groups = [
            FollowedGroup(group, self._live, _LEVELS.get(staged.operation_class, 1)) for group in staged.moves
        ]
        self._arrivals = CandidateFiles(self._live, blobs) if staged.reads is not None else None
        # The groups that had rows in a file at some time: a race over thousands of groups looks at a few of them.
        self._owners: dict[str, list[FollowedGroup]] = {}
        for group in self._groups:
            for remove in group.group.inputs:
                self._owners.setdefault(canonical(remove.path), []).append(group)
        # Every file that held rows of this transaction at some time: one that comes back brings back what is undone.
        self._touched = set(self._live.files)

    def fold(self, winner: Commit, operation_class: OperationClass) -> None:
        """Take one more winner, of this class, into account."""
        if self._conflict is not None:
            return
        self._classes[winner.version] = operation_class
        for number, found in (
            (6, named_version_taken(self._staged)),
            (6, metadata_conflict(self._staged, *self._protocol_and_metadata, winner)),
            (7, application_conflict(self._staged, winner)),
        ):
            if found:
                self._rules.add(number)
                self._conflict = self._lost_to(winner.version, *found)
                return
        self._protocol_and_metadata = protocol_and_metadata_after(*self._protocol_and_metadata, winner)
        if self._touched or self._arrivals is not None:
            self._fold_rows(effect_of(winner, operation_class, self._blobs))

    def judge(self, answers: Answers | None = None) -> RebaseOutcome:
        """What becomes of the transaction at the newest winner.

        `answers`, once a Question was the outcome: the live positions that match in each of its files.
        """
        if self._conflict is not None:
            return self._conflict
        if self._groups:
            return self._judge_groups()
        return self._judge_rows(answers)

    def class_of(self, version: int) -> OperationClass:
        """The class of a winner that was folded in."""
        return self._classes.get(version, OperationClass.NONE)

    # --- folding

    def _fold_rows(self, effect: Effect) -> None:
        level = _LEVELS.get(effect.operation_class, 1)
        moves = [move for move in effect.moves if self._can_follow(move)]
        for move in moves:
            self._deletes.follow(move)
            owners = {id(group): group for path in move.inputs for group in self._owners.get(path, ())}
            for group in owners.values():
                if group.follow(move, level, effect.version):
                    self._rules.add(3)
                    self.newest_change = effect.version
                    for path in move.outputs:
                        if group.touches(path):
                            self._owners.setdefault(path, []).append(group)
            self._touched.update(path for path in move.outputs if self._holds(path))
        astray = [path for path in self._displaced(effect, moves) if self._lives_in(path)]
        self._lose(effect, astray, "moved, and nothing tells where to,")
        self._lose(effect, self._resurrected(effect), "brought back")
        if self._arrivals is not None:
            may_follow = self._blind_appends_follow and effect.is_blind_append
            if effect.changes_rows and not may_follow:
                # It may have read or changed the rows of appends before it: those cannot follow this transaction then.
                self._arrivals.release()
            self._arrivals.apply(effect, held=may_follow)
        if any(path in self._touched for path in (*effect.removed, *effect.vectored)):
            self.newest_change = effect.version
        self._live.apply(effect)

    def _holds(self, path: str) -> bool:
        return path in self._deletes.rows.at or self._moves_rows_of(path)

    def _moves_rows_of(self, path: str) -> bool:
        return any(group.touches(path) for group in self._owners.get(path, ()))

    def _lives_in(self, path: str) -> bool:
        """Whether a row of this transaction was live in the file until now: of one that died nobody needs to tell."""
        return self._deletes.live_in(path) or self._moves_rows_of(path)

    def _can_follow(self, move: Move) -> bool:
        """Whether what tells where its rows went is there; a clean-up may have taken it from a slow transaction."""
        if any(self._holds(path) for path in move.inputs):
            try:
                move.load()
            except DataFileMissingError:
                return False
        return True

    def _displaced(self, effect: Effect, followed_moves: Iterable[Move]) -> Iterable[str]:
        """Files whose rows went elsewhere, nobody knows where."""
        followed = {path for move in followed_moves for path in move.inputs}
        gone = (path for path, died in effect.removed.items() if not died)
        thinned = (path for path, vectored in effect.vectored.items() if not vectored.data_change)
        return [path for path in (*gone, *thinned) if path not in followed]

    def _resurrected(self, effect: Effect) -> Iterable[str]:
        """Files of mine, of now or before, that hold rows again that were dead or elsewhere."""
        for path in effect.added:
            if path in self._touched and path not in self._live.files:
                yield path
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if path in self._touched and brings_back(vectored, self._blobs):
                    yield path

    def _lose(self, effect: Effect, paths: Iterable[str], what: str) -> None:
        """Rows of mine in these files cannot be followed: groups are dropped, deletes conflict."""
        for path in paths:
            self.newest_change = effect.version
            for group in self._owners.get(path, ()):
                group.drop(effect.version)
                self._rules.add(3)
            if self._staged.deletes and self._conflict is None:
                self._rules.add(1)
                evidence = f"it {what} rows of the file {path}, which this transaction changes"
                self._conflict = self._lost_to(effect.version, ConcurrentDeleteDeleteException, evidence)

    # --- judging: compactions

    def _judge_groups(self) -> RebaseOutcome:
        judged = [(followed.group, followed.judge(vectors=self._vectors)) for followed in self._groups]
        dropped = tuple(group for group, found in judged if found is None)
        kept = [found for _, found in judged if found is not None]
        if not kept:
            # Whoever moved the last of it; where rows died instead, the last to kill any.
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
        """The rows to take out of other compactions' files, all groups' together."""
        rows: dict[str, BitMap64] = {}
        for found in kept:
            for path, positions in found.moved.items():
                rows[path] = rows.get(path, BitMap64()) | positions
        for path, positions in rows.items():
            yield self._row_delete(path, positions)

    def _row_delete(self, path: str, positions: BitMap64) -> RowDelete:
        file = self._live.files[path]
        if not isinstance(file, AddFile):
            raise AssertionError(file)  # noqa: TRY004 - whatever was followed here was added by a winner
        return RowDelete(file, positions, self._live.rows[path])

    # --- judging: changed rows

    def _judge_rows(self, answers: Answers | None) -> RebaseOutcome:
        alive, lost = self._deletes.judge()
        if self._deletes.moved:
            self._rules.add(1)
        if len(lost):
            self._rules.add(4)
            if self._staged.cdc:
                return self._row_conflict("it changed rows whose change rows are written already")
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
        return self._judge_reads(staged, answers)

    def _unchanged_copies(self, lost: Int64Array, dead: Mapping[str, BitMap64]) -> list[RowDelete] | Conflict:
        """The deletes that write files anew, without vectors: each stands as it was staged, or all its rows died."""
        kept = []
        for delete, numbers in zip(self._staged.deletes, self._deletes.lost_of_each(lost), strict=True):
            live = self._live.files.get(canonical(delete.file.path))
            if live is not None and live.key == delete.file.key:
                kept.append(delete)
            elif len(numbers) < len(delete.positions):
                return self._row_conflict(
                    f"it changed or moved rows of {delete.file.path}, and the table has no vectors"
                )
        rows = {canonical(add.path): statistics.num_records(add.stats) for add in self._staged.adds}
        if any(len(positions) != rows[path] for path, positions in dead.items()):
            return self._row_conflict("it changed rows of which new images are written, and the table has no vectors")
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
                return self._append_conflict(path, "there are too many rows to look through in files such as")
            mine = deletes[path].positions if path in deletes else BitMap64()
            extra = answer.matching - mine
            if extra and not (self._vectors and staged.joins_matches):
                return self._append_conflict(path, f"{len(extra)} rows that the operation looks for are new in")
            if extra:
                deletes[path] = RowDelete(file, mine | extra, answer.rows)
                joined += len(extra)
        staged = replace(staged, deletes=tuple(deletes.values()), metrics=_counted(staged.metrics, joined))
        return Rebased(staged, rules=frozenset(self._rules))

    def _possible_matches(self) -> dict[str, AddFile]:
        """The live files with rows of winners that may match, by what the log says of them."""
        if self._arrivals is None or self._staged.reads is None:
            return {}
        files = self._arrivals.at_head()
        if not files:
            return {}
        by_file = self._arrivals.origins(files)
        possible = self._that_may_match({path: add for found in by_file.values() for path, add in found.items()})
        return self._that_may_match({path: file for path, file in files.items() if by_file[path].keys() & possible})

    def _that_may_match(self, files: Mapping[str, AddFile]) -> dict[str, AddFile]:
        if not files or self._staged.reads is None:
            return {}
        schema = columns_of(self._metadata, "")
        keep = may_match([*files.values()], self._staged.reads.predicate, schema, self._metadata)
        return {path: file for (path, file), kept in zip(files.items(), keep, strict=True) if kept}

    def _append_conflict(self, path: str, what: str) -> Conflict:
        if self._arrivals is None:
            raise AssertionError(path)
        return self._lost_to(self._arrivals.brought_by(path), ConcurrentAppendException, f"{what} {path}")

    def _row_conflict(self, evidence: str) -> Conflict:
        return self._lost_to(self.newest_change, ConcurrentDeleteDeleteException, evidence)

    def _lost_to(self, version: int, error: type[TidelogError], evidence: str) -> Conflict:
        return Conflict(error, version, self._classes[version], self._staged.operation_class, evidence)


def _counted(metrics: Mapping[str, int], difference: int) -> dict[str, int]:
    """The metrics of a row change over so many more rows; those of an upsert were taken for new ones."""
    counted = dict(metrics)
    for name in ("numDeletedRows", "numUpdatedRows", "numTargetRowsUpdated"):
        if name in counted:
            counted[name] = max(0, counted[name] + difference)
    if "numTargetRowsInserted" in counted:
        counted["numTargetRowsInserted"] = max(0, counted["numTargetRowsInserted"] - difference)
    return counted

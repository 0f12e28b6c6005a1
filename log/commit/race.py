"""A lost race: what the table's conflict policy and the rebase decide about the winners."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.conflict.operation_class import OperationClass, classify, is_own
from tidelog.log.conflict.outcome import Answer, Conflict, Question, RebaseOutcome
from tidelog.log.conflict.partitions import FilesByPartition
from tidelog.log.conflict.policies import POLICIES, WRITE_SERIALIZABLE
from tidelog.log.conflict.policy_check import check_policy
from tidelog.log.conflict.rebase import Rebase
from tidelog.log.conflict.staged import Reads, Staged
from tidelog.log.data import row_maps
from tidelog.log.data.deletion_vectors import read_bitmap, read_dead_rows
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.reader import DataFile, physical_rows, read_numbered_batches
from tidelog.log.data.staged_keys import read_keys
from tidelog.log.data.tombstones import read_tombstones, tombstone_columns
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    FencedError,
    TidelogError,
)
from tidelog.log.format import deletion_vector, properties, tombstone_list
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, FileKey, Metadata
from tidelog.log.format.deletion_vector import StoredBitmap
from tidelog.log.format.paths import canonical
from tidelog.log.format.schema import columns_of
from tidelog.log.format.statistics import num_records
from tidelog.log.predicate import Condition
from tidelog.log.predicate import columns as columns_of_predicate
from tidelog.log.pruning.file_pruning import is_partition_only
from tidelog.log.read.key_index import index_of
from tidelog.log.state.files import add_table
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store


class Race:
    """A transaction staged on `base`, and its winners so far.

    Without `metadata_retry` the matrix of the policy comes first, and a winner that it refuses is a conflict.
    """

    def __init__(self, store: Store, base: LogState, staged: Staged, *, metadata_retry: bool) -> None:
        self.policy = POLICIES[properties.conflict_policy(base.head.metadata.configuration)]
        self._store = store
        self._base = base
        self._staged = staged
        # The columns as the transaction has them, and with them the types of its keys.
        self._own_metadata = staged.metadata or base.head.metadata
        self._metadata_retry = metadata_retry
        self._earlier: list[Commit] = []
        # Paths that winners added, which the transaction cannot have read.
        self._fresh: set[str] = set()
        self._before: FilesByPartition | None = None
        self._answers: dict[FileKey, Answer] = {}
        self._rebase = Rebase(
            staged,
            base.head.version,
            base.head.protocol,
            base.head.metadata,
            StoreBlobs(store),
            blind_appends_follow=self.policy is WRITE_SERIALIZABLE,
        )

    def judge(self, new: Sequence[Commit]) -> RebaseOutcome:
        """Decide about the transaction after these further winners. Can read rows that they added."""
        for winner in new:
            operation_class = self._classify(winner)
            refused = self._refused(winner, operation_class)
            if refused:
                return refused
            self._rebase.fold(winner, operation_class)
        outcome = self._rebase.judge()
        if isinstance(outcome, Conflict):
            return outcome
        for winner in new:
            buried = self._buried(winner)
            if buried:
                return buried
        if isinstance(outcome, Question):
            answers = answer(outcome, self._store, self._own_metadata, self._answers)
            outcome = self._rebase.judge(answers)
        return outcome

    def _buried(self, winner: Commit) -> Conflict | None:
        """The conflict if the winner changed a tombstone that the transaction has looked for."""
        change, reads, found = self._staged.tombstones, self._staged.reads, tombstone_list.list_of(winner.info)
        if found is None or change is None or not change.is_ordered or reads is None or reads.keys is None:
            return None
        evidence = "the winner took back tombstones that this transaction may have looked for"
        if found.own is not None:
            names = reads.keys.column_names
            columns = tombstone_columns(self._own_metadata, self._store.url, names, change.order)
            own = [file for file in found.files if file.path == found.own and columns.fit(file)]
            narrowed = None if reads.key_files else reads.keys
            rows = [rows for file in own for rows in read_tombstones(self._store, file, columns, narrowed)]
            if not any(_among(table.select(names), keys).any() for keys in _keys(reads, self._store) for table in rows):
                return None
            evidence = "the winner deleted a key that this transaction has a record of"
        error, earlier = ConcurrentDeleteReadException, self._rebase.class_of(winner.version)
        return Conflict(error, winner.version, earlier, self._staged.operation_class, evidence)

    @property
    def newest_overlap(self) -> int:
        """The version of the newest winner that touched files of the transaction."""
        return self._rebase.newest_change

    def class_of(self, version: int) -> OperationClass:
        """The operation class of a winner."""
        return self._rebase.class_of(version)

    def _classify(self, winner: Commit) -> OperationClass:
        """The winner's class. The matrix needs the exact one, which depends on the files before the winner's commit."""
        if self._metadata_retry:
            return classify(winner)
        if self._before is None and not is_own(winner):
            self._before = FilesByPartition(self._base.files(), self._base.head.metadata)
            for earlier in self._earlier:
                self._before.apply(earlier)
        found = classify(winner, self._before)
        if self._before is not None:
            self._before.apply(winner)
        self._earlier.append(winner)
        return found

    def _refused(self, winner: Commit, operation_class: OperationClass) -> Conflict | None:
        """The conflict if there is no metadata retry and the policy's matrix does not allow following this winner."""
        if self._metadata_retry:
            return None
        metadata = self._own_metadata
        found = check_policy(self.policy, self._staged, winner, operation_class, metadata, fresh=self._fresh)
        self._fresh.update(canonical(add.path) for add in winner.adds)
        return found


# The advice of a FencedError.
STOP = "stop this process: another one has taken over"
# The other conflicts are about the metadata, the protocol or an application id.
_ABOUT_ROWS = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


def error_of(conflict: Conflict, policy: str, path: str, base_version: int) -> TidelogError:
    """The exception for a conflict."""
    return conflict.error(
        f"a transaction on version {base_version} of {path} lost to version {conflict.winning_version}: "
        f"{conflict.evidence}",
        advice=_advice(conflict),
        path=path,
        base_version=base_version,
        winning_version=conflict.winning_version,
        policy=policy,
        scope=conflict.scope or ("the rows that both touch" if issubclass(conflict.error, _ABOUT_ROWS) else None),
        earlier=str(conflict.earlier),
        later=str(conflict.later),
        evidence=conflict.evidence,
    )


def _advice(conflict: Conflict) -> str:
    if issubclass(conflict.error, FencedError):
        return STOP
    advice = "run the operation again on the newest version"
    # With the retry on, the matrix alone is never the reason.
    return f"{advice}, or set {properties.METADATA_RETRY}=true" if conflict.policy else advice


# --- what a rebase may read: deletion vectors, row maps, and rows that may match a predicate --------------------------

# The most that a rebase reads to find out whether rows added by winners match. Above that, running the operation again
# costs no more, and it does not widen the window for further winners.
MAX_READ_FILES = 64
MAX_READ_BYTES = 256 * 2**20
# The most new files that can match in one race, whether or not their rows have to be read. Of each one the footer is
# read, and its matching rows stay in memory.
MAX_ANSWERED_FILES = 4_096
# What a rebase keeps in memory of the vectors and row maps of its race, which can be those of thousands of winners.
# What does not fit is read again when it is needed, which is slower and gives the same result.
MAX_KEPT_BYTES = 256 * 2**20


class StoreBlobs:
    """Deletion vectors and row maps of a table. Reads each one once, as long as MAX_KEPT_BYTES hold them all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        self._kept_bytes = 0

    def dead_rows(self, vector: DeletionVectorDescriptor | str) -> BitMap64:
        """See tidelog.log.conflict.moves.Blobs."""
        unique_id = vector if isinstance(vector, str) else vector.unique_id
        dead: BitMap64 = self._get("vector", unique_id, lambda: self._decoded(vector))
        return dead

    def row_map(self, path: str) -> pa.Table:
        """See tidelog.log.conflict.moves.Blobs."""

        def read() -> tuple[pa.Table, int]:
            found = row_maps.read_row_map(self._store, path)
            return found, found.nbytes

        return self._get("row map", path, read)

    def _decoded(self, vector: DeletionVectorDescriptor | str) -> tuple[BitMap64, int]:
        stored = deletion_vector.of_id(vector) if isinstance(vector, str) else deletion_vector.location(vector)
        known: dict[str, bytes] = {}
        if isinstance(stored, bytes):
            encoded = stored
        else:
            # One file can hold many vectors.
            content = self._get("file", stored.path, lambda: self._file(stored))
            known[stored.path] = content
            encoded = read_bitmap(self._store, stored, known)
        return deletion_vector.decode_bitmap(encoded), len(encoded)

    def _file(self, stored: StoredBitmap) -> tuple[bytes, int]:
        known: dict[str, bytes] = {}
        read_bitmap(self._store, stored, known)
        return known[stored.path], len(known[stored.path])

    def _get(self, kind: str, name: str, read: Callable[[], tuple[Any, int]]) -> Any:
        """What was kept or is read now; the entries that were not used for the longest time are forgotten."""
        key = (kind, name)
        if key not in self._kept:
            self._kept[key] = read()
            self._kept_bytes += self._kept[key][1]
        self._kept.move_to_end(key)
        found = self._kept[key][0]
        while self._kept_bytes > MAX_KEPT_BYTES:
            _, (_, size) = self._kept.popitem(last=False)
            self._kept_bytes -= size
        return found


def answer(
    question: Question, store: Store, metadata: Metadata, known: dict[tuple[str, str | None], Answer]
) -> dict[str, Answer | None]:
    """The matching rows of each file; None for files beyond the bounds.

    `known` keeps the answers for later attempts, but only those about files that this one still asks about.
    """
    wanted = {file.key for file in question.files.values()}
    for key in known.keys() - wanted:
        del known[key]
    if len(wanted) > MAX_ANSWERED_FILES:
        return dict.fromkeys(question.files)
    asked = {path: file for path, file in question.files.items() if file.key not in known}
    if question.reads.keys is None and is_partition_only(question.reads.predicate, metadata):
        # Then all live rows of a file match, and its deletion vector says which rows are live.
        known.update({file.key: _all_live(file, store) for file in asked.values()})
        asked = {}
    if question.reads.keys is not None and asked:
        known.update(_indexed([*asked.values()], question.reads, store, metadata))
        asked = {path: file for path, file in asked.items() if file.key not in known}
    within = len(asked) <= MAX_READ_FILES and sum(file.size for file in asked.values()) <= MAX_READ_BYTES
    if within:
        known.update({file.key: _matching(file, question.reads, store, metadata) for file in asked.values()})
    return {path: known.get(file.key) for path, file in question.files.items()}


def _keys(reads: Reads, store: Store) -> Iterator[pa.Table]:
    """The keys that an operation looked for, in pieces. There is one at least, which can be empty."""
    if reads.keys is not None:
        yield reads.keys
    for path in reads.key_files:
        yield from read_keys(store, path)


def _indexed(asked: Sequence[AddFile], reads: Reads, store: Store, metadata: Metadata) -> dict[FileKey, Answer]:
    """The answers for files that the table's key index covers, which need not be read."""
    names = [] if reads.keys is None else reads.keys.column_names
    index = index_of(store, IndexedKey.of(metadata, columns_of(metadata, store.url)), names)
    if index is None:
        return {}
    files = add_table(asked)
    open_to_all = np.zeros(len(asked), dtype=bool)
    found = {file.key: Answer(BitMap64(), num_records(file.stats) or 0) for file in asked}
    for keys in _keys(reads, store):
        located, is_left = index.locate(files, keys)
        open_to_all |= is_left
        for hits in located:
            key = asked[hits.place].key
            found[key] = Answer(found[key].matching | BitMap64(hits.positions), hits.rows)
    return {file.key: found[file.key] for file, is_open in zip(asked, open_to_all, strict=True) if not is_open}


def _matching(file: AddFile, reads: Reads, store: Store, metadata: Metadata) -> Answer:
    schema = columns_of(metadata, store.url)
    keys = [] if reads.keys is None else reads.keys.column_names
    wanted = columns_of_predicate(reads.predicate) | set(keys)
    narrow = pa.schema([field for field in schema if field.name in wanted])
    found = BitMap64()
    numbered = read_numbered_batches(store, DataFile.of(file), narrow)
    pieces: Iterator[tuple[Int64Array, pa.Table]] = (
        (positions, pa.Table.from_batches([batch])) for positions, batch in numbered
    )
    if reads.key_files and (held := [*pieces]):
        # Those files are read once, and not for each piece.
        pieces = iter([(np.concatenate([piece[0] for piece in held]), pa.concat_tables([piece[1] for piece in held]))])
    for positions, rows in pieces:
        found |= BitMap64(positions[_true_for(rows, reads, store)].tolist())
    return Answer(found, physical_rows(store, DataFile.of(file)))


def _all_live(file: AddFile, store: Store) -> Answer:
    rows = physical_rows(store, DataFile.of(file))
    dead = read_dead_rows(store, file.deletion_vector) if file.deletion_vector else BitMap64()
    live = BitMap64()
    live.add_range(0, rows)
    return Answer(live - dead, rows)


def _true_for(rows: pa.Table, reads: Reads, store: Store) -> Int64Array:
    kept: Int64Array = np.flatnonzero(Condition(reads.predicate, rows.schema).mask(rows))
    if reads.keys is None:
        return kept
    candidates = rows.select(reads.keys.column_names).take(pa.array(kept))
    is_match = np.zeros(len(kept), dtype=bool)
    for keys in _keys(reads, store):
        is_match |= _among(candidates, keys)
    return kept[is_match]


def _among(rows: pa.Table, keys: pa.Table) -> BoolArray:
    """Which rows are one of the keys; both have the same columns."""
    together = pa.concat_tables([rows, keys.select(rows.column_names).cast(rows.schema)])
    numbers = np.asarray(group_numbers(together, rows.column_names))
    found: BoolArray = np.isin(numbers[: rows.num_rows], numbers[rows.num_rows :])
    return found

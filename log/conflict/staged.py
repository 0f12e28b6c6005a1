"""A staged transaction as a value: the rows that it deletes, moves and adds, its reads, and metadata changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.format.actions import (
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.predicate import Expression
from tidelog.log.pruning.partition_scope import Scope


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """One group of a compaction: every live row of `inputs` is in `outputs`.

    Without a `row_map` the rows are in the order of the `lineage`. A row map (see `tidelog.log.data.row_maps`) says
    where each row is; it numbers inputs and outputs like the lineage, and is not written before the commit.
    """

    inputs: tuple[RemoveFile, ...]
    outputs: tuple[AddFile, ...]
    lineage: LineageGroup
    # A rebase over another compaction takes files that it removed out of `inputs`; see Staged.moved.
    row_map: pa.Table | None = None


def move_metrics(groups: Sequence[MoveGroup]) -> dict[str, int]:
    """The metrics of a compaction of these groups, as its commit reports them."""
    inputs = [remove for group in groups for remove in group.inputs]
    outputs = [add for group in groups for add in group.outputs]
    return {
        "numRemovedFiles": len(inputs),
        "numRemovedBytes": sum(remove.size or 0 for remove in inputs),
        "numAddedFiles": len(outputs),
        "numAddedBytes": sum(add.size for add in outputs),
    }


@dataclass(frozen=True, slots=True)
class UpdateImages:
    """The addresses of the new images of a file's deleted rows, in the order of the deleted positions.

    `adds` are indices into the transaction's added files, `positions` are the positions in those files.
    """

    adds: Int64Array
    positions: Int64Array


@dataclass(frozen=True, slots=True)
class RowDelete:
    """The rows of one live file that a transaction deletes.

    None of `positions` is dead in the vector of `file`. `physical_rows` counts the file's rows, dead ones included.
    `survivors` is set if the table has no deletion vectors: the file is removed, and these files hold the rows that
    are left (copy-on-write). `images` are the rows that an UPDATE writes for the deleted ones: if another commit
    deletes a row first, its image dies with it.
    """

    file: AddFile
    positions: BitMap64
    physical_rows: int
    survivors: tuple[AddFile, ...] | None = None
    images: UpdateImages | None = None

    @property
    def kills_all(self) -> bool:
        """Whether no live row of the file is left."""
        dead = self.file.deletion_vector.cardinality if self.file.deletion_vector else 0
        return len(self.positions) + dead == self.physical_rows

    @property
    def needs_vector(self) -> bool:
        """Whether the file stays, with a vector.

        A file without a vector is removed with its last row. A file with a vector gets one over all its rows instead,
        because readers of the change feed can take its removal for the deletion of all its rows, even those that were
        dead before. The next compaction removes the file.
        """
        if self.survivors is not None:
            return False
        return not self.kills_all or self.file.deletion_vector is not None


@dataclass(frozen=True, slots=True)
class Reads:
    """The rows that an operation looked for. Another matching row would have changed what it staged.

    A row matches if `predicate` is true for it and, if `keys` is set, its values in the columns of `keys` are one of
    the rows of `keys` (columns named as in the table). With keys, the predicate only narrows the search. `key_files`
    have further keys, with the same columns; see `tidelog.log.data.staged_keys`.
    """

    predicate: Expression
    keys: pa.Table | None = None
    key_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """What a transaction will commit.

    `deletes`, `moves` and `adds` are its rows. `replaces` is the scope whose live rows die at the commit, whichever
    they are then. `restores` lists the files that make up the table afterwards, with the columns of the `add` action.
    `cdc` are the files with change rows.

    With `replaces_matches` the added rows stand for all rows that match `reads` at the commit, whichever they are then,
    and not for single ones.

    `kept` are rows that it read and leaves as they are: a winner that deletes or changes one of them is a conflict.
    With `sees_all` it may have read any row, and a winner that changes rows is a conflict.
    With `sees_deletes` it depends on rows that it leaves as they are: a winner that deletes or changes rows in files
    that `reads` may match is a conflict.
    With `sees_appends` no policy orders a blind append that came first after it, as is so with `reads.keys`.
    With `is_computed` what it stages was computed from the deleted rows, and no other one with `reads.keys` may appear:
    a winner that changed or added such a row is a conflict.

    `tombstones` are what it does to the tombstones of deleted keys. If it has compared its rows with them, it has read
    those of `reads.keys`: a winner that wrote one of them, or took tombstones back, is a conflict. If they are those of
    the rows that it deletes, a rebase over winners that change which rows these are says so, and the commit writes them
    again.

    A rebase fills `dead` and `moved`. `dead` are positions of rows that died before the commit, by the path of the file
    in `adds` or in the outputs of `moves`. `moved` are rows in outputs of winners' compactions that go to the outputs.

    The commit writes `domains`, and conflicts with a winner that wrote one of the same name. It also writes
    `transactions`, and conflicts with a winner that wrote one of the same application id, or of one
    in `read_applications`. It also writes `fence`, which loses only to a higher epoch.

    `timestamp_ms` is the required commit time, if `metadata` names the version and time of its own commit. Any winner
    is then a conflict. `operation` and `parameters` are what other engines show for the commit. `record` goes into
    `commitInfo.tidelog`.
    """

    operation: str
    operation_class: OperationClass
    adds: tuple[AddFile, ...] = ()
    moves: tuple[MoveGroup, ...] = ()
    moved: tuple[RowDelete, ...] = ()
    deletes: tuple[RowDelete, ...] = ()
    dead: Mapping[str, BitMap64] = field(default_factory=dict)
    cdc: tuple[AddCDCFile, ...] = ()
    replaces: Scope | None = None
    restores: pa.Table | None = None
    reads: Reads | None = None
    replaces_matches: bool = False
    is_computed: bool = False
    kept: tuple[RowDelete, ...] = ()
    tombstones: TombstoneChange | None = None
    sees_all: bool = False
    sees_deletes: bool = False
    sees_appends: bool = False
    domains: tuple[DomainMetadata, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    read_applications: frozenset[str] = frozenset()
    fence: SetTransaction | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    timestamp_ms: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def with_other_rows(self) -> Staged:
        """The transaction after a rebase that changed which rows it deletes."""
        if self.tombstones is None or not self.tombstones.keys:
            return self
        return replace(self, tombstones=replace(self.tombstones, rows_differ=True))

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows and reads nothing."""
        return bool(self.adds) and not (self.moves or self.changes_rows or self.metadata or self.reads is not None)

    @property
    def joins_matches(self) -> bool:
        """Whether newly found matches can simply join the deletes, without an image or a change row for each."""
        if self.reads is None or self.cdc:
            return False
        return self.reads.keys is not None or not self.adds or self.replaces_matches

    @property
    def replaces_by_key(self) -> bool:
        """Whether it writes rows that replace those with the same keys, wherever they are (UPSERT)."""
        return bool(self.adds) and self.reads is not None and self.reads.keys is not None

    @property
    def changes_rows(self) -> bool:
        """Whether it deletes rows of the table, which an append-only table forbids."""
        return bool(self.deletes) or self.replaces is not None or self.restores is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        buried = self.tombstones is not None and (self.tombstones.written or self.tombstones.restored is not None)
        other = self.transactions or self.metadata or self.domains or self.fence or buried
        return not (self.adds or self.moves or self.changes_rows or other)

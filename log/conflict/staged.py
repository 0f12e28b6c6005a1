"""A staged transaction as a value: the rows that it deletes, moves and adds, and what else its commit says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.format.actions import AddCDCFile, AddFile, Metadata, Protocol, RemoveFile, SetTransaction
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.predicate import Expression
from tidelog.log.pruning.partition_scope import Scope


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """One group of a compaction: every live row of `inputs` is in `outputs`.

    In order, as `lineage` records it; or, where `row_map` is given (see `tidelog.log.data.row_maps`), as it says: its
    numbers of inputs and outputs are those of the lineage. Nothing is written of the map before the commit.
    """

    inputs: tuple[RemoveFile, ...]
    outputs: tuple[AddFile, ...]
    lineage: LineageGroup
    # A rebase over another compaction leaves out of `inputs` what that one removed: see Staged.moved.
    row_map: pa.Table | None = None


def move_metrics(groups: Sequence[MoveGroup]) -> dict[str, int]:
    """What a compaction of these groups does, as the commit reports it."""
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
    """Where the new images of a file's deleted rows lie, one for each in the order of their positions.

    `adds` are indices into the transaction's added files, `positions` those of the rows in them.
    """

    adds: Int64Array
    positions: Int64Array


@dataclass(frozen=True, slots=True)
class RowDelete:
    """Rows of one live file that die.

    `positions` are those that this transaction kills: none of them is dead in the vector of `file`. `physical_rows`
    counts the file's rows, dead ones included. Where `survivors` are given the table has no deletion vectors: the file
    goes, and these hold what is left of it (copy-on-write).
    `images` are the rows that an update made of them: where another commit kills a row first, its image dies with it.
    """

    file: AddFile
    positions: BitMap64
    physical_rows: int
    survivors: tuple[AddFile, ...] | None = None
    images: UpdateImages | None = None

    @property
    def kills_all(self) -> bool:
        """Whether no row of the file is live afterwards."""
        dead = self.file.deletion_vector.cardinality if self.file.deletion_vector else 0
        return len(self.positions) + dead == self.physical_rows

    @property
    def needs_vector(self) -> bool:
        """Whether the file stays, under a vector.

        A file without a vector goes with its last row. One that has a vector stays under one over all its rows: a
        reader of changes was seen to take its bare removal for the deletion of all rows. The next compaction drops it.
        """
        if self.survivors is not None:
            return False
        return not self.kills_all or self.file.deletion_vector is not None


@dataclass(frozen=True, slots=True)
class Reads:
    """The rows that an operation looked for: had there been others, it would have staged another thing.

    A row is one of them where `predicate` is true for it and, where `keys` are given, its values in their columns are
    among them (one row a key, columns by the table's names). With keys the predicate only narrows the search.
    """

    predicate: Expression
    keys: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """What a transaction will commit.

    `replaces` is the scope whose live rows die, whichever these are at the commit; `restores` holds, with the columns
    of the `add` action, the files that are the table afterwards.
    `cdc` holds the change rows.
    `dead` are positions in files of `adds` or of the outputs of `moves`, by their path: rows that died before the
    commit, as a rebase found. `moved` are rows that go to the outputs from files of others' compactions.
    `transactions` are both written and read, `read_applications` only read: a winner that wrote one of the same
    application is a conflict. `fence` is written with them, and lost only to a higher epoch.
    `timestamp_ms` is the time that the commit has to have, where what is staged names it and the version after its
    base: then any winner is a conflict.
    `operation` and `parameters` are the names under which other engines show the commit; `record` goes into
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
    transactions: tuple[SetTransaction, ...] = ()
    read_applications: frozenset[str] = frozenset()
    fence: SetTransaction | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    timestamp_ms: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows and read nothing."""
        return bool(self.adds) and not (self.moves or self.changes_rows or self.metadata or self.reads is not None)

    @property
    def joins_matches(self) -> bool:
        """Whether rows that match as well, found late, may simply die with the others: no image, no change row."""
        deletes_only = self.reads is not None and (self.reads.keys is not None or not self.adds)
        return deletes_only and not self.cdc

    @property
    def changes_rows(self) -> bool:
        """Whether rows that are in the table die, which an append-only table forbids."""
        return bool(self.deletes) or self.replaces is not None or self.restores is not None

    @property
    def is_empty(self) -> bool:
        """Whether a commit of it would say nothing."""
        return not (self.adds or self.moves or self.changes_rows or self.transactions or self.metadata or self.fence)

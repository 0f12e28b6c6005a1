"""The live rows of a group into new files, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import pyarrow as pa
from pyroaring import BitMap64

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting.growth import fits
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.layouts import layouts_of_inputs, usual_layouts
from tidelog.compaction_daemon.rewriting.outputs import delete_files, write_files
from tidelog.compaction_daemon.rewriting.sequences import SequenceDigest
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.new_file import Layout
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import CompactionGrowthError
from tidelog.log.format.actions import AddFile


def write_in_order(
    writer: DataWriter, group: PlannedGroup, inputs: Inputs, length: int
) -> tuple[list[AddFile], SequenceDigest]:
    """Write the live rows in the first layout that is small enough. Returns the files, and the digest of what was read.

    If no layout is small enough, a purge keeps the last one, and any other rewrite raises a CompactionGrowthError.
    """
    for layouts, is_last in _choices(inputs, length):
        digest = SequenceDigest()
        rows = _digested(inputs, digest)
        written = write_files(writer, dict(group.partition_values), rows, length, layouts)
        if fits(group, written, writer) or (group.purge and is_last):
            return written, digest
        delete_files(writer, written)
    raise CompactionGrowthError(
        f"{len(group.inputs)} files of {writer.store.url} with {group.size_bytes} bytes would become more than a "
        "tenth larger",
        advice="the files stay as they are",
        path=writer.store.url,
    )


def _choices(inputs: Inputs, length: int) -> Iterator[tuple[Iterable[Layout], bool]]:
    """The layouts to try, one after the other, and whether each is the last."""
    for layout in usual_layouts():
        yield repeat(layout), False
    vectors = [file.deletion_vector for file in inputs.files]
    dead = [BitMap64() if vector is None else read_dead_rows(inputs.store, vector) for vector in vectors]
    yield layouts_of_inputs(inputs.footers, dead, length), True


def _digested(inputs: Inputs, digest: SequenceDigest) -> Iterator[pa.RecordBatch]:
    for batch in inputs.batches():
        digest.add(batch)
        yield batch

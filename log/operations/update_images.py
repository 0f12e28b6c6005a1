"""The addresses of an update's images: for each row that it deletes, the file and position of the new row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidelog.log.conflict.moves import located, starts
from tidelog.log.conflict.staged import RowDelete, UpdateImages
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile


def with_image_addresses(
    deletes: Sequence[RowDelete], writer: DataWriter, rows: pa.Table, adds: Sequence[AddFile]
) -> list[RowDelete]:
    """The deletes, with the addresses of their images.

    `rows` are the images in the order of the deletes and their positions. `adds` are the files in which
    `DataWriter.write` stored them: partition by partition, each in the order of the rows.
    """
    partition_columns = writer.metadata.partition_columns
    order = np.argsort(group_numbers(writer.prepared(rows), partition_columns).to_numpy(), kind="stable")
    written = located(np.arange(rows.num_rows), starts([statistics.num_records(add.stats) or 0 for add in adds]))
    files, positions = np.empty_like(written.files), np.empty_like(written.positions)
    files[order], positions[order] = written.files, written.positions
    begins = starts([len(delete.positions) for delete in deletes]).tolist()
    return [
        replace(delete, images=UpdateImages(files[begin:end], positions[begin:end]))
        for delete, begin, end in zip(deletes, begins, [*begins[1:], rows.num_rows], strict=True)
    ]

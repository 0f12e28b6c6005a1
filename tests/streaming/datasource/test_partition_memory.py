"""What a task holds in memory while it reads a file: some batches, however large the file and its row groups are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.support import add, put_foreign
from tests.peak_memory import in_a_process, needs_proc
from tidelog.log import Table

ROWS = 10_000_000
FILE_MB = ROWS * 8 // 2**20
MEASURED = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from tests.peak_memory import grown_mb
from tidelog.streaming import TidelogDataSource

def by_partitions(after=1):
    options = {"path": sys.argv[1], "changes": "append", "after": str(after), "endingVersion": str(after + 1)}
    source = TidelogDataSource(options)
    reader = source.reader(source.schema())
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))

def whole():
    return pq.read_table(Path(sys.argv[1]) / "large.parquet").num_rows

assert by_partitions(after=0) == 1  # what is imported and made on first use
counts = []
in_batches, at_once = (grown_mb(lambda: counts.append(read())) for read in (by_partitions, whole))
print(json.dumps({"rows": counts, "in_batches": in_batches, "at_once": at_once}))
"""


@needs_proc
def test_a_task_holds_batches_and_not_the_file(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    table.insert([{"n": 0}])
    numbers = np.random.default_rng(1).integers(0, 2**62, ROWS)
    file = Path(table.path) / "large.parquet"
    pq.write_table(pa.table({"n": numbers}), file, row_group_size=ROWS)
    put_foreign(table, add(file.name, size=file.stat().st_size))
    measured = in_a_process(MEASURED, table.path)
    assert measured["rows"] == [ROWS, ROWS]
    assert measured["at_once"] > FILE_MB
    assert measured["in_batches"] < FILE_MB / 2

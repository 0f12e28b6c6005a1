"""What a task holds in memory while it reads a file: some batches, however large the file and its row groups are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import add, put_foreign
from tidelog.log import Table

REPOSITORY = Path(__file__).parents[3]
ROWS = 10_000_000
FILE_MB = ROWS * 8 // 2**20
MEASURED = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from tidelog.log import Table
from tidelog.streaming import TidelogDataSource

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024

def grown(read):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status("VmRSS")
    rows = read()
    return {"rows": rows, "grown_mb": status("VmHWM") - before}

def by_partitions(after=1):
    options = {"path": sys.argv[1], "changes": "append", "startingVersion": str(after), "endingVersion": str(after + 1)}
    source = TidelogDataSource(options)
    reader = source.reader(source.schema())
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))

def whole():
    return pq.read_table(Path(sys.argv[1]) / "large.parquet").num_rows

assert by_partitions(after=0) == 1  # what is imported and made on first use
print(json.dumps([grown(by_partitions), grown(whole)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_task_holds_batches_and_not_the_file(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    table.insert([{"n": 0}])
    numbers = np.random.default_rng(1).integers(0, 2**62, ROWS)
    file = Path(table.path) / "large.parquet"
    pq.write_table(pa.table({"n": numbers}), file, row_group_size=ROWS)
    put_foreign(table, add(file.name, size=file.stat().st_size))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, table.path], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    in_batches, whole = json.loads(done.stdout)
    assert in_batches["rows"] == whole["rows"] == ROWS
    assert whole["grown_mb"] > FILE_MB
    assert in_batches["grown_mb"] < FILE_MB / 2

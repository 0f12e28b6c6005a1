"""The compaction daemon is killed with SIGKILL at random moments: the table stays valid without any repair."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA, numbers_of, put
from tests.lanes import full_but
from tests.randomness import seed
from tidelog.compaction_daemon import compact
from tidelog.log import OperationClass, Table

pytestmark = pytest.mark.crash

COMPACTOR = Path(__file__).parent / "compactor.py"
# It is killed on until it has compacted, and taken over from a killed one. A slow machine needs more and longer lives.
MOST_KILLS = 50


@pytest.mark.parametrize("least_kills", full_but([10], [10, 25]))
def test_a_daemon_killed_at_random_moments_loses_no_row(tmp_path: Path, least_kills: int) -> None:
    chance = random.Random(seed())
    path = str(tmp_path / "table")
    table = Table.create(path, SCHEMA, partition_by=["part"], properties={"delta.checkpointInterval": 7})
    written: list[int] = []
    with subprocess.Popen(
        [sys.executable, str(COMPACTOR), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as compactor:
        assert compactor.stdin
        assert compactor.stdout
        assert compactor.stdout.readline() == "ready\n"
        for kills in range(1, MOST_KILLS + 1):
            print("go", file=compactor.stdin, flush=True)
            pid = int(compactor.stdout.readline())
            deadline = time.monotonic() + chance.uniform(0.01, 0.8) * max(1.0, kills / least_kills)
            while time.monotonic() < deadline:
                put(table, len(written), part=chance.choice("ab"))
                written.append(len(written))
            os.kill(pid, signal.SIGKILL)
            fresh = Table.open(path)
            assert sorted(numbers_of(fresh)) == written
            history = fresh.history()
            minor = sum(record.operation_class is OperationClass.MINOR for record in history)
            # A killed daemon keeps its lease until the next one takes over, which is a commit without rows.
            taken_over = sum(record.operation == "TAKE OVER" for record in history)
            if kills >= least_kills and minor and taken_over:
                break
        compactor.stdin.close()

    table = Table.open(path)
    print(f"{len(written)} inserts, {minor} compactions, {kills} kills")
    assert minor > 0
    assert taken_over > 0
    assert table.version == len(written) + minor + taken_over
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == written
    # The next compaction completes what a killed one had begun.
    while compact(table).did_anything:
        pass
    assert table.refresh().at().num_files == 2
    assert sorted(numbers_of(table)) == written
    # The commits alone have the same rows, without the checksums and checkpoints of killed processes.
    for hint in [*Path(path, "_delta_log").glob("*.crc"), *Path(path, "_delta_log").glob("*checkpoint*")]:
        hint.unlink()
    assert sorted(numbers_of(Table.open(path))) == written

"""Upkeep is killed with SIGKILL amid checkpoints and clean-ups, beside a writer: nothing live is deleted."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA, numbers_of, put
from tests.log.cleanup.support import written_when_committed
from tests.log.support import Clock, new_table
from tests.randomness import seed
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.storage import open_store

pytestmark = pytest.mark.crash

KEEPER = Path(__file__).parent / "keeper.py"
DAY_MS = 86_400_000
KILLS = 15
# From one life of the keeper to the next, by the clock that decides what is old.
DAYS_APART = 24


def test_nothing_live_is_deleted_and_the_next_one_does_the_rest(tmp_path: Path) -> None:
    chance = random.Random(seed())
    path = str(tmp_path / "table")
    written = old_table(path)
    old_files = data_files(path)
    table = Table.open(path)
    statuses = []
    with subprocess.Popen(
        [sys.executable, str(KEEPER), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as keeper:
        assert keeper.stdin
        assert keeper.stdout
        assert keeper.stdout.readline() == "ready\n"
        for life in range(KILLS + 1):
            change = chance.randint(1, 25) if life < KILLS else 0
            print(change, DAYS_APART * (KILLS - life), file=keeper.stdin, flush=True)
            while not select.select([keeper.stdout], [], [], 0)[0]:
                put(table, len(written), part=chance.choice("ab"))
                written.append(len(written))
            statuses.append(int(keeper.stdout.readline()))
            assert sorted(numbers_of(Table.open(path))) == written
        keeper.stdin.close()

    killed = statuses.count(signal.SIGKILL)
    left = data_files(path)
    print(f"{killed} kills, {len(old_files - left)} of {len(old_files)} old files deleted, {len(written)} rows")
    assert set(statuses) <= {0, signal.SIGKILL}
    assert statuses[-1] == 0
    assert killed >= 5
    assert len(old_files - left) >= 100
    # All that was old enough is gone, and nothing else: the files of the versions that are left, and only those.
    table = Table.open(path)
    assert not table.expire(dry_run=True).files
    assert not table.vacuum(dry_run=True).files
    earliest = min(int(name.stem) for name in Path(path, "_delta_log").glob("*.json"))
    assert earliest > 0
    kept: set[str] = set()
    for version in range(earliest, table.version + 1):
        kept.update(table.at(version=version).files()["path"].to_pylist())
    assert left == kept


def old_table(path: str) -> list[int]:
    """A table of last year whose files are as old as their commits: a day of inserts and a compaction every two months.

    Returns its rows.
    """
    clock = Clock(int(datetime.now(UTC).timestamp() * 1000) - 410 * DAY_MS)
    table = new_table(open_store(path), SCHEMA, partition_by=["part"], system=clock)
    dated: set[str] = set()
    for number in range(120):
        clock.ms += DAY_MS // 24 if number % 20 else 59 * DAY_MS
        put(table, number, part="ab"[number % 2])
        if number % 20 == 19:
            compact(table)
            table.checkpoint()
        for name in data_files(path) - dated:
            os.utime(Path(path, name), (clock.ms / 1000, clock.ms / 1000))
            dated.add(name)
    written_when_committed(table)
    return list(range(120))


def data_files(path: str) -> set[str]:
    return {str(name.relative_to(path)) for name in Path(path).rglob("*.parquet") if "_delta_log" not in str(name)}

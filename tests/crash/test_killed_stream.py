"""A streaming process is killed with SIGKILL repeatedly, at random moments: every row is in the table once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.randomness import seed
from tests.streaming.support import NUMBERS, SINCE_CHANGES, Input, numbers_in
from tidelog.compaction_daemon import compact
from tidelog.log import OperationClass, Table

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.full]

WRITER = Path(__file__).parent / "stream_writer.py"
# A kill comes at most MAX_DELAY_S after a milestone that the writer reports; a batch takes some tenths of a second. As
# the delay counts from a milestone, not from the start, a slow machine kills at the same places.
MILESTONES = ("streaming", "batch", "committed", "committed", "second committed")
MAX_DELAY_S = 0.6


@contextmanager
def writer(tmp_path: Path, number: int) -> Iterator[subprocess.Popen[str]]:
    """Start the program in its own process group, which is killed after the block."""
    arguments = [str(tmp_path / name) for name in ("input", "table", "checkpoint")]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(WRITER), *arguments, str(number)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            kill_group(process)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill Python and the JVM that it started at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def java_of(process: subprocess.Popen[str]) -> int | None:
    """The process id of the JVM in the group."""
    for entry in Path("/proc").iterdir():
        try:
            in_group = entry.name.isdigit() and os.getpgid(int(entry.name)) == process.pid
            if in_group and (entry / "comm").read_text().strip() == "java":
                return int(entry.name)
        except (OSError, ProcessLookupError):
            continue
    return None


def wait_for(process: subprocess.Popen[str], milestone: str, tmp_path: Path) -> None:
    """Wait until the program reports the milestone or its end."""
    left = 2 if milestone.startswith("second ") else 1
    assert process.stdout
    for line in process.stdout:
        left -= line.strip() == milestone.removeprefix("second ")
        if not left or line.strip() == "drained":
            return
    raise AssertionError(f"the writer ended by itself: {errors_of(tmp_path)}")


def kill(process: subprocess.Popen[str], victim: str) -> None:
    """SIGKILL Python, the JVM, or both at once. If only one is killed, the other one notices and ends."""
    if victim == "both":
        kill_group(process)
    elif victim == "python":
        process.kill()
    elif (java := java_of(process)) is not None:
        os.kill(java, signal.SIGKILL)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()


def was_killed_between_commits(tmp_path: Path) -> bool:
    """Whether the table has a batch that Spark's commit log lacks."""
    commits = tmp_path / "checkpoint" / "commits"
    if not (tmp_path / "table").exists() or not commits.exists():
        return False
    recorded = max((int(file.name) for file in commits.iterdir() if file.name.isdigit()), default=-1)
    numbers = [
        number for name, number in Table.open(str(tmp_path / "table")).transactions.items() if name.endswith("/default")
    ]
    return max((number for number in numbers if number < 2**31), default=-1) > recorded


def errors_of(tmp_path: Path) -> str:
    return (tmp_path / "errors").read_text()[-3000:]


def run_with_kills(victims: list[str | None], tmp_path: Path, put: Callable[[int], object]) -> list[str]:
    """Kill one program after the other while `put` adds to the input, then let one end; what was killed when."""
    chance = random.Random(seed())
    kills: list[str] = []
    between = 0
    while len(kills) < len(victims):
        with writer(tmp_path, chance.randrange(10**6)) as process:
            milestone = chance.choice(MILESTONES)
            victim = victims[len(kills)] or chance.choice(["both", "both", "python", "java"])
            wait_for(process, milestone, tmp_path)
            time.sleep(chance.uniform(0, MAX_DELAY_S))
            if process.poll() is None:
                kill(process, victim)
                kills.append(f"{victim} after {milestone}")
        between += was_killed_between_commits(tmp_path)
        put(chance.randint(1, 3))
    print(f"kills: {', '.join(kills)}; {between} of them between the sink's commit and Spark's")

    with writer(tmp_path, 0) as process:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, errors_of(tmp_path)
        assert out.splitlines()[-1] == "drained"
    return kills


# Without victims given, each is chosen at random.
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(["python", "java"], id="one each"),
        pytest.param([None] * 8, id="random", marks=pytest.mark.nightly),
    ],
)
def test_each_row_is_in_the_table_once_after_repeated_kills(victims: list[str | None], tmp_path: Path) -> None:
    source = Input(tmp_path / "input").put(4)
    kills = run_with_kills(victims, tmp_path, source.put)
    path = tmp_path / "table"
    assert numbers_in(path) == source.numbers
    table = Table.open(str(path))
    # Each commit after the first is a batch. There are fewer batches than files if a kill came between the file
    # source's own record of new files and Spark's offsets, as those files and the next ones then become one batch.
    offsets = [int(file.name) for file in (tmp_path / "checkpoint" / "offsets").iterdir() if file.name.isdigit()]
    assert sorted(offsets) == list(range(table.version))
    assert source.count - len(kills) <= table.version <= source.count
    assert {record.operation_class for record in table.history(table.version)} == {OperationClass.INSERT}
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == source.numbers
    log = path / "_delta_log"
    assert [file.name for file in sorted(log.glob("*.json"))] == [f"{v:020d}.json" for v in range(table.version + 1)]
    batches = [
        json.loads(file.read_text().splitlines()[0])["commitInfo"]["tidelog"]["batch"]["batchId"]
        for file in sorted(log.glob("*.json"))[1:]
    ]
    assert batches == list(range(table.version))
    # The commits alone have the same rows, without checkpoints and checksums.
    for hint in [*log.glob("*.crc"), *log.glob("*.parquet"), *log.glob("_last_checkpoint")]:
        hint.unlink()
    assert numbers_in(path) == source.numbers


@SINCE_CHANGES
@pytest.mark.nightly
def test_each_change_is_in_the_table_once_after_repeated_kills(tmp_path: Path) -> None:
    """The stream is `readStream.changes`. Compactions come between the commits."""
    source = Table.create(str(tmp_path / "input"), NUMBERS)
    numbers = itertools.count()

    def put(commits: int) -> None:
        for _ in range(commits):
            source.insert([{"n": n} for n in itertools.islice(numbers, 10)])
        compact(source)

    put(4)
    run_with_kills([None] * 6, tmp_path, put)
    assert numbers_in(tmp_path / "table") == numbers_in(source.path)

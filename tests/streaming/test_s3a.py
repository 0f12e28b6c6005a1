"""The sink with `writer="spark"` into S3, through Hadoop's connector, on a gateway with an S3 API."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.storage.servers import SECRET, Server
from tests.streaming.executors import hadoop_jars
from tests.streaming.support import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3a")


@pytest.fixture(scope="module")
def observed(s3: Server, folder: Path) -> dict[str, Any]:
    """What the program observed. Starting such a Spark takes many seconds, so one program runs all scenarios."""
    jars = ",".join(map(str, hadoop_jars.jars()))
    done = subprocess.run(
        [sys.executable, "-m", "tests.streaming.s3a_program", jars, str(folder)],
        input=json.dumps({"url": s3.store("a b").url, "options": s3.options}),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def test_each_batch_is_committed_once_and_a_replay_is_skipped(observed: dict[str, Any]) -> None:
    batches = observed["batches"]
    assert batches["rows"] == list(range(40))
    assert batches["skipped"] == [True, False]


def test_the_jvm_wrote_the_files_and_left_no_others(observed: dict[str, Any]) -> None:
    batches = observed["batches"]
    assert batches["live"] == batches["objects"]
    assert len({path.split("/")[1] for path in batches["live"]}) == 4, "each batch has its own folder"
    assert all(path.endswith(".snappy.parquet") for path in batches["live"])


def test_after_failed_tasks_each_row_is_in_the_table_once(observed: dict[str, Any]) -> None:
    failing = observed["failing_tasks"]
    assert failing["failed"] > 0
    assert failing["rows"] == list(range(20))
    assert len(failing["live"]) == len(failing["objects"])


def test_the_daemon_compacts_files_of_the_jvm_and_the_feed_has_no_batch_for_it(observed: dict[str, Any]) -> None:
    result = observed["daemon_and_feed"]
    assert result["error"] == ""
    assert (result["compacted"], result["files"]) == (True, 1)
    assert result["before"] == result["rows"] == list(range(40))
    assert result["after"] == []


def test_frames_are_read_by_the_jvm_and_their_plans_hold_no_secret(observed: dict[str, Any]) -> None:
    frames = observed["frames"]
    assert frames["by_spark"] == [True, True]
    assert (frames["read"], frames["deleted"]) == (list(range(5, 20)), list(range(5)))
    assert SECRET not in json.dumps(frames["plans"])


def test_other_credentials_for_a_bucket_that_the_jvm_has_opened_are_refused(observed: dict[str, Any]) -> None:
    assert (
        "already connected to s3a://bucket/ with other settings: fs.s3a.bucket.bucket.secret.key"
        in (observed["other_credentials"])
    )
    assert "another" not in observed["other_credentials"]


def test_no_secret_is_in_the_event_log_or_a_checkpoint(observed: dict[str, Any], folder: Path) -> None:
    assert observed
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(b"fs.s3a.bucket.bucket.secret.key" in path.read_bytes() for path in files), "the setting is logged"
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]

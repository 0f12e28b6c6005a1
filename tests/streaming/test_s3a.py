"""The sink's `spark` path into S3, through Hadoop's connector, on a gateway that speaks S3."""

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

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3a")


@pytest.fixture(scope="module")
def seen(s3: Server, folder: Path) -> dict[str, Any]:
    """What the program saw; starting such a Spark costs many seconds, so it plays all scenes."""
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


def test_each_batch_is_there_once_and_a_replayed_one_is_skipped(seen: dict[str, Any]) -> None:
    batches = seen["batches"]
    assert batches["rows"] == list(range(40))
    assert batches["skipped"] == [True, False]


def test_the_jvm_wrote_the_files_and_left_nothing_else(seen: dict[str, Any]) -> None:
    batches = seen["batches"]
    assert batches["live"] == batches["objects"]
    assert len({path.split("/")[1] for path in batches["live"]}) == 4, "each batch has a folder of its own"
    assert all(path.endswith(".snappy.parquet") for path in batches["live"])


def test_tasks_that_fail_leave_each_row_once(seen: dict[str, Any]) -> None:
    failing = seen["failing_tasks"]
    assert failing["failed"] > 0
    assert failing["rows"] == list(range(20))
    assert len(failing["live"]) == len(failing["objects"])


def test_the_daemon_compacts_what_the_jvm_wrote_and_the_feed_does_not_see_it(seen: dict[str, Any]) -> None:
    scene = seen["daemon_and_feed"]
    assert scene["error"] == ""
    assert (scene["compacted"], scene["files"]) == (True, 1)
    assert scene["before"] == scene["rows"] == list(range(40))
    assert scene["after"] == []


def test_other_credentials_for_a_bucket_that_the_jvm_knows_are_refused(seen: dict[str, Any]) -> None:
    assert (
        "already connected to s3a://bucket/ with other settings: fs.s3a.bucket.bucket.secret.key"
        in (seen["other_credentials"])
    )
    assert "another" not in seen["other_credentials"]


def test_no_secret_is_in_the_event_log_or_a_checkpoint(seen: dict[str, Any], folder: Path) -> None:
    assert seen
    noted = [path for path in folder.rglob("*") if path.is_file()]
    assert any(b"fs.s3a.bucket.bucket.secret.key" in path.read_bytes() for path in noted), "else this proves nothing"
    assert not [path for path in noted if SECRET.encode() in path.read_bytes()]

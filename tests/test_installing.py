"""What an install brings: the wheel, installed into empty environments and used there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.test_packaging import built, uv

__all__ = ["built"]

_LOG_ONLY = """
import importlib.util, subprocess, sys
from pathlib import Path

for missing in ("pyspark", "py4j", "pandas"):
    assert importlib.util.find_spec(missing) is None, missing

import pyarrow as pa
from tidelog import Daemon, Table
from tidelog.compaction_daemon import compact
from tidelog.log.errors import PrerequisiteError

path = sys.argv[1]
schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
table = Table.create(path, schema, properties={"tidelog.primaryKey": "n", "delta.checkpointInterval": "5"})
for n in range(6):
    table.insert([{"n": n, "text": str(n)}])
table.delete("n = 0")
table.update("n = 1", {"text": "'one'"})
assert table.scan("n < 3").to_arrow().sort_by("n").to_pylist() == [{"n": 1, "text": "one"}, {"n": 2, "text": "2"}]
assert table.changes(mode="net").count() == 5
assert compact(table).groups == 1
(step,) = Daemon([path]).step().tables
assert step.error is None, step.error
log = Path(path) / "_delta_log"
newest = max(log.glob("*.checkpoint.parquet")).name[:20]
for found in [*log.glob("*.json"), *log.glob("*.crc")]:
    if found.suffix == ".crc" or found.name[:20] < newest:
        found.unlink()
assert Table.open(path).scan().count() == 5, "read from the checkpoint"
command = Path(sys.executable).with_name("tidelog")
shown = subprocess.run([command, "scan", path], capture_output=True, text=True, check=True)
assert "one" in shown.stdout, shown.stdout

for use in ("import tidelog.streaming", "from tidelog import Sink", "from tidelog import read"):
    try:
        exec(use)
    except ImportError as error:
        assert isinstance(error, PrerequisiteError)
        assert "pip install '.[spark]'" in str(error), error
    else:
        raise AssertionError(use)
try:
    table.scan().to_pandas()
except PrerequisiteError as error:
    assert "pip install pandas" in str(error)
else:
    raise AssertionError("to_pandas")
print("used")
"""

_STREAM = """
import sys
from pyspark.sql import SparkSession
from tidelog import Feed, Sink, Table, read

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
spark.range(10).write.parquet(f"{folder}/in")
stream = spark.readStream.schema("id long").parquet(f"{folder}/in")


def run(writer, name):
    query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
    assert query.awaitTermination(120)


for writer in ("driver", "spark"):
    path = f"{folder}/{writer}"
    run(stream.writeStream.foreachBatch(Sink(path, writer=writer)), f"cp_{writer}")
    upsert = Sink(path + "_keys", writer=writer, mode="upsert", keys=["id"])
    run(stream.writeStream.foreachBatch(upsert), f"up_{writer}")
    assert Table.open(path).scan().count() == Table.open(path + "_keys").scan().count() == 10
Table.open(path).delete("id = 3")
assert read(spark, path).count() == 9
seen = []
run(Feed(spark, path, changes="cdc").foreachBatch(lambda batch, _: seen.append(batch.count())), "cp_feed")
assert sum(seen) == 11
print("used")
"""


def used_in_empty_environment(built: Path, folder: Path, extra: str, program: str, *options: str) -> None:
    (wheel,) = built.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([uv(), "venv", "--quiet", "--python", "3.11", str(folder / "venv")], check=True, timeout=120)
    install = [uv(), "pip", "install", "--quiet", "--no-config", "--python", str(python), *options, f"{wheel}{extra}"]
    subprocess.run(install, check=True, timeout=600)
    script = folder / "program.py"
    script.write_text(program)
    environment = {"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(
        [python, script, folder / "data"],
        capture_output=True, text=True, check=False, timeout=600, cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split()[-1] == "used"


def test_without_extras_there_are_the_log_the_command_line_and_the_daemon(built: Path, tmp_path: Path) -> None:
    used_in_empty_environment(built, tmp_path, "", _LOG_ONLY)


def test_the_oldest_packages_that_it_asks_for_are_enough(built: Path, tmp_path: Path) -> None:
    """A platform may have them, and pip leaves them as they are."""
    used_in_empty_environment(built, tmp_path, "", _LOG_ONLY, "--resolution", "lowest-direct")


@pytest.mark.full  # PySpark is 450 MB
@pytest.mark.spark
def test_with_spark_there_are_streams(built: Path, tmp_path: Path) -> None:
    used_in_empty_environment(built, tmp_path, "[spark]", _STREAM)

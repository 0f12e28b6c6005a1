"""Run a MERGE and an UPDATE in a separate Spark whose tasks fail, are killed with their executor, or run twice.

python retried_statements.py MASTER TABLE FAULT

FAULT is `fails` (each task that meets a certain row, once), `killed` (an executor, once) or `slow` (a task, once: Spark
runs a copy of it). The table has the ids 0 to 399.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext

from tests.streaming.cluster_session import cluster_session
from tidelog.streaming import register

SETTINGS = {
    # A task has written files before it meets the row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}
LIMIT_S = 120


def main(master: str, path: str, fault: str) -> None:
    spark = cluster_session(master, f"{path}.spark", **SETTINGS)
    register(spark)

    def faulty(number: int) -> int:
        task, mark = TaskContext.get(), f"{path}.{fault}"
        if number % 100 != 90 or task is None or task.attemptNumber() > 0:
            return number
        if fault == "fails":
            raise OSError("the disk is full")
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            return number
        if fault == "killed":
            # The worker's parent is a daemon, and its parent the executor.
            [parent] = [
                int(line.split()[1])
                for line in Path(f"/proc/{os.getppid()}/status").read_text().splitlines()
                if line.startswith("PPid:")
            ]
            os.kill(parent, signal.SIGKILL)
        time.sleep(LIMIT_S)
        return number

    spark.udf.register("faulty", faulty, "long")
    source = "(SELECT faulty(id) AS k FROM range(0, 440, 1, 4))"
    spark.sql(
        f"MERGE INTO tidelog.`{path}` t USING {source} s ON abs(t.k) = s.k WHEN MATCHED AND t.k % 3 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 5)"
    )
    Path(f"{path}.{fault}").unlink(missing_ok=True)
    spark.sql(f"UPDATE tidelog.`{path}` SET v = v + 10 WHERE faulty(k) >= 0")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

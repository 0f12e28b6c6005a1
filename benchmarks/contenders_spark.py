"""All loops of `benchmarks.conflict` for delta-spark, as threads of one Spark: `python -m benchmarks.contenders_spark`.

It is controlled like `benchmarks.contenders`. It also creates the table, and finally writes its rows to a file for the
audit.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import loops
from benchmarks.loops import Refused, Tally
from benchmarks.peers import spark_session

_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_\w+|\w*Concurrent\w+Exception|DELTA_METADATA_CHANGED|ProtocolChangedException"
)
_PROPERTIES = "'delta.enableDeletionVectors' = 'true'"


class Contender:
    """The loops on one table, which it creates."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._name = f"delta.`{path}`"
        self._path = path
        self._newest = -1
        self._compacted = Tally()
        self._unknown = threading.Lock()
        session.sql(
            f"CREATE TABLE {self._name} (k BIGINT, v BIGINT, payload STRING) USING delta TBLPROPERTIES ({_PROPERTIES})"
        )
        self._write(range(loops.SEED_ROWS), None)

    def run(self, seconds: float) -> dict[str, Tally]:
        """Run all loops at once until the time is up."""
        works: dict[str, Callable[[], Tally]] = {
            "append": lambda: loops.appends(self._append, seconds),
            "delete": lambda: loops.statements(self._delete, loops.keys("delete", self._newest_batch), seconds),
            "update": lambda: loops.statements(self._update, loops.keys("update", self._newest_batch), seconds),
            "compact": lambda: loops.compactions(self._compact, seconds),
        }
        with ThreadPoolExecutor(len(works)) as pool:
            running = {role: pool.submit(work) for role, work in works.items()}
            tallies = {role: future.result() for role, future in running.items()}
        tallies["compact"].counts = self._compacted.counts
        return tallies

    def save_rows(self, file: str) -> None:
        """Write the table's keys and values, as Spark reads them, to a file."""
        found = self._session.sql(f"SELECT k, v FROM {self._name}").toArrow()
        with pa.ipc.new_file(file, found.schema) as writer:
            writer.write_table(found)

    def _append(self, number: int) -> Refused | None:
        refused = self._tried(lambda: self._write(loops.batch_keys(number), number))
        if refused is None:
            self._newest = number
        return refused

    def _write(self, keys: range, number: int | None) -> None:
        frame = self._session.range(keys.start, keys.stop, 1, 1)
        frame = frame.selectExpr("id AS k", "0L AS v", "concat('row ', id) AS payload")
        writer = frame.write.format("delta").mode("append")
        if number is not None:
            writer = writer.option("txnAppId", "stream").option("txnVersion", number)
        writer.save(self._path)

    def _delete(self, key: int) -> Refused | None:
        return self._tried(lambda: self._session.sql(f"DELETE FROM {self._name} WHERE k = {key}").collect())

    def _update(self, key: int) -> Refused | None:
        return self._tried(lambda: self._session.sql(f"UPDATE {self._name} SET v = v + 1 WHERE k = {key}").collect())

    def _compact(self, number: int) -> Refused | None:
        del number

        def optimize() -> None:
            (row,) = self._session.sql(f"OPTIMIZE {self._name}").collect()
            added = row["metrics"]["numFilesAdded"]
            self._compacted.count("commits", added > 0)
            self._compacted.count("bytes_written", row["metrics"]["filesAdded"]["totalSize"] or 0 if added else 0)

        return self._tried(optimize)

    def _newest_batch(self) -> int:
        return self._newest

    def _tried(self, statement: Callable[[], object]) -> Refused | None:
        try:
            statement()
        except Exception as error:  # noqa: BLE001 - every failed attempt counts
            conflict = _CONFLICT.search(str(error))
            if conflict is None:
                with self._unknown:
                    print(f"delta_spark: {str(error)[:1000]}", file=sys.stderr, flush=True)
            return Refused(conflict[0] if conflict else type(error).__name__)
        return None


def main(arguments: dict[str, Any]) -> None:
    session = spark_session()
    # Warm up on another table, since the first statement of each kind takes seconds to compile and load.
    Contender(session, arguments["warm_up"]).run(arguments["warm_up_seconds"])
    contender = Contender(session, arguments["path"])
    print("ready", flush=True)
    sys.stdin.readline()
    tallies = contender.run(arguments["seconds"])
    contender.save_rows(str(Path(arguments["rows"])))
    print(json.dumps({role: tally.to_builtins() for role, tally in tallies.items()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

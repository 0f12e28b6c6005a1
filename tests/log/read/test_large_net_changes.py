"""Net changes of intervals that are larger than the bound: the same rows in the same order, in bounded memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.log.read.test_net_changes import history, table_with
from tests.log.support import memory_store, new_table
from tests.peak_memory import in_a_process, needs_proc
from tests.randomness import seed
from tidelog.log import Table
from tidelog.log.data import spill
from tidelog.log.errors import DuplicateKeyError, StoreUnavailableError
from tidelog.log.read import net_changes

HISTORIES = 20


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any change reaches the bound, and each part is split as often as a hash allows."""
    monkeypatch.setattr(net_changes, "NET_BYTES", 1)
    monkeypatch.setattr(spill, "BUFFER_BYTES", 1)


def net(table: Table, after: int, until: int | None = None, **more: Any) -> pa.Table:
    return table.changes(after=after, until=until, mode="net", **more).to_arrow()


@pytest.mark.parametrize("bound", [1, 300, 3000])
def test_net_changes_of_random_histories_do_not_depend_on_the_bound(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    randomness = random.Random(seed())
    outcomes = {"error": 0, "rows": 0}
    for _ in range(HISTORIES):
        table = table_with()
        versions = [version for version, _ in history(table, randomness)]
        after, until = versions[0], versions[-1]
        for keys in (["k"], ["k", "v"]):
            expected = outcome(table, after, until, keys)
            with monkeypatch.context() as patched:
                patched.setattr(net_changes, "NET_BYTES", bound)
                found = outcome(table, after, until, keys)
            assert found == expected
            outcomes["error" if isinstance(expected, str) else "rows"] += 1
    assert min(outcomes.values()) > 0, outcomes


def outcome(table: Table, after: int, until: int, keys: list[str]) -> list[dict[str, Any]] | str:
    try:
        return net(table, after, until, keys=keys).to_pylist()  # type: ignore[no-any-return]
    except DuplicateKeyError:
        return "duplicate"


KEYS: dict[str, pa.Array] = {
    "long": pa.array([1, None, -1, 2**62]),
    "double": pa.array([0.0, None, float("nan"), 1.5]),
    "string": pa.array(["a", None, "", "ü\0"]),
    "binary": pa.array([b"a", None, b"", b"\xff\0"]),
    "boolean": pa.array([True, None, False]),
    "decimal": pa.array(["1.10", None, "0.00", "-3.00"]).cast(pa.decimal128(20, 2)),
    "date": pa.array([0, None, 2_932_897, -800_000], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([0, None, 2**60, -(2**60)], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "timestamp without zone": pa.array([0, None, 2**60], pa.int64()).cast(pa.timestamp("us")),
}


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("kind", list(KEYS))
def test_equal_keys_meet_in_one_part(kind: str) -> None:
    """Null is equal to null, NaN to NaN and -0.0 to 0.0, whatever part of the changes they come from."""
    keys = KEYS[kind]
    rows = pa.table({"k": keys, "v": range(len(keys))})
    table = new_table(memory_store(), rows.schema)
    table.insert(rows)
    start = table.version
    table.delete("v >= 0")
    again = pa.array([-0.0, None, float("nan"), 1.5]) if kind == "double" else keys
    table.insert(pa.table({"k": again, "v": range(100, 100 + len(keys))}))
    found = net(table, start, keys=["k"])
    assert found["_change_type"].to_pylist() == ["update_postimage"] * len(keys)
    assert found["v"].to_pylist() == list(range(100, 100 + len(keys)))


def test_the_order_is_that_of_the_last_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_changes, "NET_BYTES", 20_000)
    table = table_with()
    table.insert(pa.table({"k": np.arange(1000), "v": np.arange(1000)}))
    start = table.version
    table.upsert(pa.table({"k": np.arange(999, 400, -1), "v": np.arange(599) + 10_000}), keys=["k"])
    table.upsert(pa.table({"k": [700, 500, 1, 600], "v": [1, 2, 3, 4]}), keys=["k"])
    table.delete("k = 800")
    found = net(table, start)
    versions = found["_commit_version"].to_pylist()
    assert versions == sorted(versions)
    assert found["k"].to_pylist()[-5:] == [700, 500, 1, 600, 800]
    assert found.num_rows == 600


@pytest.mark.usefixtures("small_bound")
def test_a_filter_and_columns_apply_to_the_net_effect() -> None:
    table = table_with((1, 10), (2, 20))
    table.update("k = 1", {"v": "11"})
    found = net(table, table.version - 1, where="v > 10", columns=["v", "-_commit_version", "-_commit_timestamp"])
    assert found.to_pylist() == [{"v": 11, "_change_type": "update_postimage"}]
    assert net(table, table.version).num_rows == 0


@pytest.mark.usefixtures("small_bound")
def test_a_full_folder_for_temporary_files_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    table = table_with((1, 10), (2, 20))
    with pytest.raises(StoreUnavailableError, match="No space left on device"):
        net(table, 0)


# --- memory ----------------------------------------------------------------------------------------------------------

ROWS = 200_000
COMMITS = 6
MEASURED = """
import json, sys
import pandas.util
from tests.peak_memory import grown_mb
from tidelog.log import Table
from tidelog.log.data import spill
from tidelog.log.read import read_ahead
from tidelog.log.read import net_changes

net_changes.NET_BYTES, spill.BUFFER_BYTES, read_ahead.QUEUED_BYTES = (2**int(n) for n in sys.argv[2:5])

table = Table.open(sys.argv[1])
assert table.changes(mode="net", until=1).count()  # what is imported and made on first use
counts = []
grown = grown_mb(lambda: counts.extend(batch.num_rows for batch in table.changes(mode="net").to_batches()))
print(json.dumps({"rows": sum(counts), "grown": grown}))
"""


@pytest.fixture(scope="module")
def large_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("w", pa.float64())])
    path = str(tmp_path_factory.mktemp("large") / "t")
    table = Table.create(path, schema, properties={"tidelog.primaryKey": "k"})
    values = np.random.default_rng(1)
    for number in range(COMMITS):
        keys = values.permutation(np.arange(number * ROWS, (number + 1) * ROWS))
        table.insert(pa.table({"k": keys, "v": values.random(ROWS), "w": values.random(ROWS)}))
    return table


@needs_proc
@pytest.mark.full
def test_the_memory_does_not_depend_on_the_interval(large_table: Table) -> None:
    """With a bound above the interval's size, all of it is in memory: the same read takes several times as much."""
    bounded, whole = (in_a_process(MEASURED, large_table.path, power, 20, 21) for power in (21, 40))
    assert bounded["rows"] == whole["rows"] == ROWS * COMMITS
    assert bounded["grown"] < 100
    assert whole["grown"] > 2 * bounded["grown"]

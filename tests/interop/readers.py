"""All readers of Delta tables that the tests know, and a check that each sees the same rows.

They use three implementations of the protocol besides tidelog's: delta-rs (deltalake, and Polars on top of it), the
Rust kernel, and delta-spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import delta_kernel_rust_sharing_wrapper as kernel  # type: ignore[import-untyped]
import deltalake
import polars as pl
import pyarrow as pa

from tests.interop.delta_spark import DeltaSpark
from tidelog.log import Table


def by_tidelog(path: str) -> pa.Table:
    return Table.open(path).scan().to_arrow()


def by_delta_rs(path: str) -> pa.Table:
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute("select * from t")
    return pa.table(reader.read_all())


def by_delta_rs_arrow(path: str) -> pa.Table:
    return deltalake.DeltaTable(path).to_pyarrow_table()


def by_polars(path: str) -> pa.Table:
    return pl.read_delta(path).to_arrow()


def by_polars_lazily(path: str) -> pa.Table:
    return pl.scan_delta(path).collect().to_arrow()


def by_kernel(path: str) -> pa.Table:
    location = f"{Path(path).as_uri()}/"
    interface = kernel.PythonInterface(location)
    snapshot = kernel.Table(location).snapshot(interface)
    return pa.table(kernel.ScanBuilder(snapshot).build().execute(interface).read_all())


READERS: Mapping[str, Callable[[str], pa.Table]] = {
    "tidelog": by_tidelog,
    "delta-rs by SQL": by_delta_rs,
    "delta-rs to Arrow": by_delta_rs_arrow,
    "Polars": by_polars,
    "Polars, lazily": by_polars_lazily,
    "kernel": by_kernel,
}


POLARS = ("Polars", "Polars, lazily")


def assert_same_everywhere(
    path: str, expected: pa.Table, delta: DeltaSpark | None = None, *, but: Collection[str] = ()
) -> None:
    """Check that each reader finds exactly the rows `expected`, in any order.

    Skips the readers in `but`, and delta-spark unless `delta` is given. Types can differ (a large string, another
    timestamp unit) if the values are the same.
    """
    readers = {name: read for name, read in READERS.items() if name not in but}
    if "deletionVectors" in (deltalake.DeltaTable(path).protocol().reader_features or ()):
        readers.pop("delta-rs to Arrow")  # it refuses such tables by name
    if delta:
        readers["delta-spark"] = delta.arrow
    wanted = as_texts(expected, expected.schema)
    for name, read in readers.items():
        found = as_texts(read(path), expected.schema)
        assert found == wanted, f"{name}: {(found - wanted).most_common(3)} for {(wanted - found).most_common(3)}"


def as_texts(table: pa.Table, schema: pa.Schema) -> Counter[str]:
    """The rows, cast to `schema`, as the text of their Python values."""
    columns = [table[field.name].combine_chunks().cast(field.type) for field in schema]
    return Counter(map(repr, pa.table(columns, names=schema.names).to_pylist()))

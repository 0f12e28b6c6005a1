"""A folder of parquet files in S3 becomes a table."""

from __future__ import annotations

import pyarrow as pa

from tests.log.operations.converting import parquet
from tests.log.storage.servers import Server
from tidelog.log import Table


def test_a_folder_in_s3_becomes_a_table(s3: Server) -> None:
    store = s3.store("folder of files")
    for number in range(20):
        rows = pa.table({"n": [number], "text": ["x" * 100]})
        store.put_if_absent(f"day=2026-01-{number % 2 + 30}/n a%20{number}.parquet", parquet(rows))
    store.put_if_absent("_SUCCESS", b"")
    table = Table.convert(store.url, partition_by=["day"], storage_options=s3.options)
    assert table.schema.names == ["n", "text", "day"]
    assert table.scan("day = DATE '2026-01-31' AND n > 10").count() == 5
    table.delete("n = 4")
    found = Table.open(store.url, storage_options=s3.options)
    assert sorted(found.scan().to_arrow()["n"].to_pylist()) == [n for n in range(20) if n != 4]

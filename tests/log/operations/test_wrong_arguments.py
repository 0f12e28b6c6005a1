"""Arguments of the wrong type are errors, and nothing is committed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table, reopen
from tidelog.log.errors import (
    ConfigurationError,
    PredicateError,
)


@pytest.mark.parametrize(
    "key",
    [("a", "x"), (None, 1), (5, 1), ("a", None), ("a", 1.5), ("a", True), ("a", 2**70), "ab", ("a",), 5, (b"a", 1)],
)
def test_invalid_idempotency_keys(key: Any) -> None:
    table = new_table(memory_store())
    with pytest.raises(ConfigurationError, match="is not an idempotency key"):
        table.insert([{"n": 1}], idempotency_key=key)
    assert reopen(table).version == 0


def test_arguments_of_the_wrong_type() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("v", pa.list_(pa.int64()))]))
    table.insert([{"n": 1, "v": [1]}])
    wrong: list[Any] = [
        lambda: table.delete(None),  # type: ignore[arg-type]
        lambda: table.scan(5),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(PredicateError):
            call()
    wrong = [
        lambda: table.scan(columns="n"),
        lambda: table.history(limit=-1),
        lambda: table.update("n = 1", 5),  # type: ignore[arg-type]
        lambda: table.update("n = 1", {"n": "1", "N": "2"}),
        lambda: table.at(version="1"),  # type: ignore[arg-type]
        lambda: table.at(version=1.5),  # type: ignore[arg-type]
        lambda: table.at(timestamp=5),  # type: ignore[arg-type]
        lambda: table.restore(version=True),
        lambda: table.changes(after=1.0),  # type: ignore[arg-type]
        lambda: table.changes(mode="net", keys=None),  # type: ignore[arg-type]
        lambda: table.changes(mode="net", keys=["v"]),
    ]
    for call in wrong:
        with pytest.raises(ConfigurationError):
            call()
    assert table.refresh().version == 1

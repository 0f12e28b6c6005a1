"""Choosing the store for a path."""

from __future__ import annotations

import pytest

from tests.log.support import NUMBERS
from tidelog.log import Table
from tidelog.log.errors import StoreNotSupportedError
from tidelog.log.storage import open_store
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/t", LocalStore),
        ("relative/t", LocalStore),
        ("~/t", LocalStore),
        ("file:///data/t", LocalStore),
        ("FILE:///data/t", LocalStore),
        ("memory://t", MemoryStore),
        ("/data/odd:name", LocalStore),
        ("./a:b", LocalStore),
    ],
)
def test_the_scheme_chooses_the_store(path: str, kind: type[object]) -> None:
    assert type(open_store(path)) is kind


def test_the_scheme_is_case_insensitive() -> None:
    assert open_store("FILE:///data/t").url == "/data/t"


@pytest.mark.parametrize("path", ["ftp://host/t", "hdfs://name/t", "http://host/t", "weird+thing://x"])
def test_an_unsupported_store_is_refused(path: str) -> None:
    for use in (Table.open, lambda where: Table.create(where, NUMBERS)):
        with pytest.raises(StoreNotSupportedError) as raised:
            use(path)
        assert raised.value.fields == {"path": path}

"""URLs of object stores, buckets, and keys."""

from __future__ import annotations

import pytest

from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    StoreNotSupportedError,
)
from tidelog.log.storage import open_store
from tidelog.log.storage.object_store import ObjectStore


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://bucket/a/t/", "s3://bucket/a/t"),
        ("s3a://bucket/a/t", "s3://bucket/a/t"),
        ("S3://Bucket/A", "s3://Bucket/A"),
        ("s3://bucket//a/", "s3://bucket/a"),
        ("s3://bucket/", "s3://bucket"),
        ("gcs://bucket/t", "gs://bucket/t"),
        ("az://container/t", "az://container/t"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
    ],
)
def test_urls_are_normalised(path: str, url: str) -> None:
    store = open_store(path)
    assert type(store) is ObjectStore
    assert store.url == url


def test_an_azure_url_may_contain_the_account() -> None:
    for url, options in (
        ("abfs://c/t", {}),
        ("abfss://c@account.dfs.core.windows.net/t", {"account_name": "account"}),
        (
            "abfss://c@account.dfs.core.chinacloudapi.cn/t",
            {"account_name": "account", "account_host": "account.blob.core.chinacloudapi.cn"},
        ),
    ):
        store = ObjectStore(url)
        assert (store._root.bucket, store._root.key, store._options) == ("c", "t", options)


def test_a_url_without_a_bucket_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no bucket"):
        open_store("s3:///t")


def test_a_file_may_be_in_another_bucket_but_not_in_another_kind_of_store(moto: Server) -> None:
    moto.store()._cloud._fs.call_s3("create_bucket", Bucket="other")
    store, other = moto.store(), ObjectStore("s3://other/place", moto.options)
    other.put_if_absent("a b%20", b"there")
    for url in ("s3://other/place/a b%20", "s3a://other/place/a b%20"):
        assert store.read(url) == b"there"
        assert store.open_input(url).read() == b"there"
    assert [status.name for status in store.list("s3://other/place")] == ["a b%20"]
    with pytest.raises(StoreNotSupportedError, match="another kind of store"):
        store.read("gs://other/place/a")


def test_a_table_may_be_a_whole_bucket(moto: Server) -> None:
    moto.store()._cloud._fs.call_s3("create_bucket", Bucket="whole")
    table = Table.create("s3://whole", NUMBERS, storage_options=moto.options)
    table.insert(numbers([1, 2]))
    assert read_numbers(Table.open("s3://whole/", storage_options=moto.options)) == [1, 2]

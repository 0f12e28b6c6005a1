"""Errors of object stores: they say what to check, and show no secrets."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.storage.faulty import Faulty
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import KEY, SECRET, Server
from tests.log.support import NUMBERS, Clock
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    PathNotWritableError,
    PrerequisiteError,
    StoreAccessError,
    StoreUnavailableError,
)
from tidelog.log.storage.object_store import ObjectStore


def all_texts(error: BaseException) -> str:
    """The texts of an error and its causes."""
    texts = []
    following: BaseException | None = error
    while following is not None:
        texts.append(f"{following!r} {following}")
        following = following.__cause__
    return " ".join(texts)


def test_a_missing_bucket(moto: Server) -> None:
    store = ObjectStore("s3://no-such-bucket/t", moto.options)
    for use in (lambda: store.list(""), lambda: store.put_if_absent("a", b""), lambda: store.replace("a", b"")):
        with pytest.raises(StoreAccessError, match=r"the bucket of .* does not exist"):
            use()
    with pytest.raises(StoreAccessError):
        Table.create(store.url, NUMBERS, storage_options=moto.options)


@pytest.mark.parametrize(
    ("name", "url"), [("fake-gcs-server", "gs://no-such-bucket/t"), ("azurite", "abfs://no-such-container/t")]
)
def test_a_missing_bucket_in_other_clouds(server_of: Callable[[str], Server], name: str, url: str) -> None:
    store = ObjectStore(url, server_of(name).options)
    for use in (lambda: store.list(""), lambda: store.put_if_absent("a", b"")):
        with pytest.raises(StoreAccessError, match=r"the bucket of .* does not exist"):
            use()


def test_a_denied_request_says_what_to_check(faulty: Faulty) -> None:
    faulty.store.put_if_absent("a", b"")
    faulty.proxy.strike(Fault.DENIED, "PUT", "", 1000)
    faulty.proxy.strike(Fault.DENIED, "GET", "", 1000)
    with pytest.raises(PathNotWritableError, match="AccessDenied") as refused:
        faulty.store.put_if_absent("b", b"")
    with pytest.raises(StoreAccessError, match="AccessDenied"):
        faulty.store.read("a")
    assert "permissions" in refused.value.advice
    assert faulty.clock.slept_s == [], "retrying does not help"


def test_wrong_credentials_are_not_shown(server_of: Callable[[str], Server]) -> None:
    gateway = server_of("versitygw")
    wrong = "wrong-secret-that-must-not-show"
    for options in ({"secret": wrong}, {"key": "NOBODY", "secret": wrong}):
        store = ObjectStore(gateway.store().url, {**gateway.options, **options})
        with pytest.raises(StoreAccessError) as listed:
            store.list("")
        with pytest.raises(PathNotWritableError) as written:
            store.put_if_absent("a", b"")
        for error in (listed.value, written.value):
            assert wrong not in all_texts(error)
            assert wrong not in str(pickle.loads(pickle.dumps(error)))


def test_wrong_credentials_for_azure_are_not_shown(server_of: Callable[[str], Server]) -> None:
    given = server_of("azurite").options["connection_string"]
    key = "c2VjcmV0LXNlY3JldA=="
    connection = ";".join(f"AccountKey={key}" if part.startswith("AccountKey") else part for part in given.split(";"))
    with pytest.raises(StoreAccessError) as raised:
        ObjectStore("abfs://container/t", {"connection_string": connection}).list("")
    assert key not in all_texts(raised.value)


def test_missing_credentials(moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(StoreAccessError, match="cannot read s3://bucket/t: no credentials were found"):
        ObjectStore("s3://bucket/t", {"endpoint_url": moto.endpoint}).list("")


def test_no_text_of_a_store_contains_a_secret(moto: Server) -> None:
    store = moto.store()
    store.list("")
    for text in (repr(store), str(store), store.url, repr(moto)):
        assert SECRET not in text
    assert KEY in str(store.storage_options), "otherwise this test could not fail"


def test_a_secret_in_a_librarys_error_is_redacted(moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore("s3://bucket/t", moto.options, system=Clock())

    def fail(*_: Any) -> bytes:
        raise ConnectionError("no way") from ValueError(f"http://host/?sig=of-a-url&secret={SECRET}")

    monkeypatch.setattr(store._cloud, "read", fail)
    with pytest.raises(StoreUnavailableError, match="no way") as raised:
        store.read("a")
    assert SECRET not in all_texts(raised.value)

    def fail_plainly(*_: Any) -> bytes:
        raise ConnectionError(f"http://host/?sig=of-a-url&secret={SECRET}")

    monkeypatch.setattr(store._cloud, "read", fail_plainly)
    with pytest.raises(StoreUnavailableError) as raised:
        store.read("a")
    assert SECRET not in all_texts(raised.value)
    assert "sig=***&secret=***" in str(raised.value)


def test_the_error_for_an_unknown_option_names_the_options(moto: Server) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ObjectStore("s3://bucket/t", {**moto.options, "endpoint": "x"}).list("")
    assert "endpoint_url" in raised.value.advice
    assert SECRET not in all_texts(raised.value)


@pytest.mark.parametrize(
    ("url", "extra", "library"),
    [("s3://b/t", "s3", "s3fs"), ("gs://b/t", "gcs", "gcsfs"), ("abfs://c/t", "azure", "adlfs")],
)
def test_a_missing_library_says_how_to_install_it(
    url: str, extra: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"tidelog.log.storage.{extra}", raising=False)
    with pytest.raises(PrerequisiteError, match=library) as raised:
        ObjectStore(url, {"account_name": "a", "x": extra}).list("")
    assert raised.value.advice == f"run in a copy of tidelog's repository: pip install '.[{extra}]'"

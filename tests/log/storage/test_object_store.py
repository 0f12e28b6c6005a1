"""What object stores add to the contract: lost answers, retries, proofs, connections, errors in words."""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.log.storage.proxy import Fault, Proxy, in_front_of
from tests.log.storage.servers import AZURITE_ACCOUNT, KEY, SECRET, Server
from tests.log.support import NUMBERS, Clock, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    PathNotWritableError,
    StoreAccessError,
    StoreNotSupportedError,
    StoreUnavailableError,
)
from tidelog.log.storage import object_store, open_store
from tidelog.log.storage.object_store import ObjectStore
from tidelog.log.storage.retries import ATTEMPTS


@pytest.fixture
def moto(server_of: Callable[[str], Server]) -> Server:
    return server_of("moto")


@dataclass
class Faulty:
    """A store on moto behind a proxy, on a clock that does not wait."""

    proxy: Proxy
    store: ObjectStore
    clock: Clock

    def table(self) -> Table:
        """A table at the store, whose requests are only counted from now on."""
        Table.create(self.store.url, NUMBERS, storage_options=self.options)
        self.proxy.seen.clear()
        return Table.open(self.store.url, storage_options=self.options)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.store.storage_options)


@pytest.fixture
def faulty(moto: Server) -> Iterator[Faulty]:
    with in_front_of(moto.endpoint) as proxy:
        url = moto.store().url
        clock = Clock()
        yield Faulty(proxy, ObjectStore(url, {**moto.options, "endpoint_url": proxy.endpoint}, system=clock), clock)


# --- a lost answer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.DROPPED_AFTER, Fault.ERROR_AFTER])
@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_whose_answer_got_lost_is_found_by_its_transaction(faulty: Faulty, fault: Fault, times: int) -> None:
    table = faulty.table()
    struck = faulty.proxy.strike(fault, "PUT", "00001.json", times)
    committed = table.insert(numbers([1]))
    assert struck.times < times, "the fault never happened"
    assert (committed.version, committed.rebased_over) == (1, ())
    assert read_numbers(Table.open(table.path, storage_options=faulty.options)) == [1]


def test_a_put_without_an_answer_is_not_repeated_blindly(faulty: Faulty) -> None:
    faulty.store.put_if_absent("first", b"")
    faulty.proxy.strike(Fault.ERROR_AFTER, "PUT", "/lease")
    with pytest.raises(StoreUnavailableError):
        faulty.store.put_if_absent("lease", b"mine or another's?")
    assert faulty.proxy.count("PUT", "/lease") == 1
    assert faulty.clock.slept_s == []


@pytest.mark.parametrize(
    ("name", "method", "part"), [("azurite", "PUT", "/lease"), ("fake-gcs-server", "POST", "upload")]
)
def test_nor_is_it_by_another_clouds_library(
    server_of: Callable[[str], Server], name: str, method: str, part: str
) -> None:
    """Left to themselves gcsfs and Azure's library repeat a conditional put, and are told that their own exists."""
    server = server_of(name)
    origin = server.endpoint.removesuffix(f"/{AZURITE_ACCOUNT}")
    with in_front_of(origin) as proxy:
        options = {key: value.replace(origin, proxy.endpoint) for key, value in server.options.items()}
        store = ObjectStore(server.store().url, options, system=Clock())
        store.put_if_absent("first", b"")
        before = proxy.count(method, part)
        struck = proxy.strike(Fault.ERROR_AFTER, method, part)
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent("lease", b"mine or another's?")
        assert struck.times == 0
        assert proxy.count(method, part) == before + 1
        with pytest.raises(FileExistsError):
            store.put_if_absent("lease", b"second")


@pytest.mark.parametrize("fault", [Fault.DROPPED_AFTER, Fault.ERROR_AFTER])
def test_a_data_file_whose_answer_got_lost_is_written_once(faulty: Faulty, fault: Fault) -> None:
    content = random.Random(1).randbytes(20_000_000)
    faulty.store.put_if_absent("first", b"")
    struck = faulty.proxy.strike(fault, "PUT", "part-1")
    with faulty.store.create("part-1") as file:
        file.write(content)
    assert struck.times == 0
    assert faulty.store.read("part-1") == content


def test_a_data_file_of_a_name_that_another_took_is_refused_all_the_same(faulty: Faulty) -> None:
    for other in (b"other", b"longer than it was"):
        faulty.store.replace("part-1", other)
        with pytest.raises(FileExistsError), faulty.store.create("part-1") as file:
            file.write(b"whose")
        assert faulty.store.read("part-1") == other


# --- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.DROPPED_BEFORE, Fault.ERROR_AFTER, Fault.SLOW_DOWN, Fault.TOO_MANY])
def test_reads_lists_and_deletes_are_repeated_with_growing_waits(faulty: Faulty, fault: Fault) -> None:
    store = faulty.store
    store.put_if_absent("f/a", b"1")
    for method, part, request in (
        ("GET", "f/a", lambda: store.read("f/a")),
        ("GET", "list-type=2", lambda: store.list("f")),
        ("HEAD", "f/a", lambda: store.modified_ms("f/a")),
        ("PUT", "f/pointer", lambda: store.replace("f/pointer", b"1")),
        ("DELETE", "f/a", lambda: store.delete("f/a")),
    ):
        faulty.clock.slept_s.clear()
        struck = faulty.proxy.strike(fault, method, part, 3)
        request()
        assert struck.times == 0
        # An HTTP client repeats a request by itself where a connection that it had kept breaks.
        assert 1 <= len(faulty.clock.slept_s) <= 3
        assert all(0 <= waited <= 0.1 * 2**number for number, waited in enumerate(faulty.clock.slept_s))


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.TOO_MANY, Fault.CONFLICT])
def test_a_put_that_the_server_turned_away_is_repeated(faulty: Faulty, fault: Fault) -> None:
    faulty.store.put_if_absent("first", b"")
    faulty.proxy.strike(fault, "PUT", "/turned-away", 3)
    faulty.store.put_if_absent("turned-away", b"1")
    assert faulty.proxy.count("PUT", "/turned-away") == 4
    with pytest.raises(FileExistsError):
        faulty.store.put_if_absent("turned-away", b"2")
    assert faulty.store.read("turned-away") == b"1"


def test_a_store_that_stays_down_is_an_error_after_bounded_tries(faulty: Faulty) -> None:
    faulty.proxy.strike(Fault.SLOW_DOWN, "GET", "", 1000)
    with pytest.raises(StoreUnavailableError, match="SlowDown"):
        faulty.store.read("a")
    assert len(faulty.proxy.seen) == ATTEMPTS
    assert len(faulty.clock.slept_s) == ATTEMPTS - 1
    assert sum(faulty.clock.slept_s) < 12


def test_an_endpoint_where_nobody_listens_is_unavailable() -> None:
    store = ObjectStore(
        "s3://bucket/t", {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}, system=Clock()
    )
    with pytest.raises(StoreUnavailableError) as raised:
        store.list("")
    assert raised.value.advice


# --- a server that overwrites ----------------------------------------------------------------------------------------


def test_a_server_that_ignores_the_condition_is_refused_before_anything_is_written(
    faulty: Faulty, moto: Server
) -> None:
    faulty.proxy.strike(Fault.UNCONDITIONAL, "PUT", "", 10**6)
    for _ in range(2):
        with pytest.raises(StoreNotSupportedError, match="overwrote"):
            Table.create(faulty.store.url, NUMBERS, storage_options=faulty.options)
    here = ObjectStore(faulty.store.url, moto.options)
    assert here.list("") == here.list("_delta_log") == here.list("_tidelog") == []
    for write in (
        lambda: faulty.store.put_if_absent("a", b""),
        lambda: faulty.store.replace("a", b""),
        lambda: faulty.store.create("a").__enter__(),
    ):
        with pytest.raises(StoreNotSupportedError):
            write()


def test_the_proof_is_made_once_for_an_endpoint_and_bucket_and_leaves_nothing(faulty: Faulty) -> None:
    for number in range(3):
        ObjectStore(f"{faulty.store.url}/{number}", faulty.options).put_if_absent("a", b"")
    assert faulty.proxy.count("PUT", "_tidelog/probe-") == 2
    assert faulty.proxy.count("DELETE", "_tidelog/probe-") == 1
    assert faulty.store.list("0/_tidelog") == []


def test_reading_proves_nothing(faulty: Faulty) -> None:
    assert faulty.store.list("") == []
    with pytest.raises(FileNotFoundError):
        faulty.store.read("a")
    faulty.store.delete("a")
    assert faulty.proxy.count("PUT", "") == 0


def test_a_proof_whose_answers_get_lost_is_no_reason_to_refuse(faulty: Faulty) -> None:
    faulty.proxy.strike(Fault.ERROR_AFTER, "PUT", "_tidelog/probe-", 2)
    faulty.store.put_if_absent("a", b"1")
    assert faulty.store.read("a") == b"1"


# --- errors in words -------------------------------------------------------------------------------------------------


def everything_said(error: BaseException) -> str:
    said = []
    following: BaseException | None = error
    while following is not None:
        said.append(f"{following!r} {following}")
        following = following.__cause__
    return " ".join(said)


def test_a_bucket_that_is_not_there_says_so(moto: Server) -> None:
    store = ObjectStore("s3://no-such-bucket/t", moto.options)
    for use in (lambda: store.list(""), lambda: store.put_if_absent("a", b""), lambda: store.replace("a", b"")):
        with pytest.raises(StoreAccessError, match=r"the bucket of .* does not exist"):
            use()
    with pytest.raises(StoreAccessError):
        Table.create(store.url, NUMBERS, storage_options=moto.options)


@pytest.mark.parametrize(
    ("name", "url"), [("fake-gcs-server", "gs://no-such-bucket/t"), ("azurite", "abfs://no-such-container/t")]
)
def test_nor_does_another_clouds(server_of: Callable[[str], Server], name: str, url: str) -> None:
    store = ObjectStore(url, server_of(name).options)
    for use in (lambda: store.list(""), lambda: store.put_if_absent("a", b"")):
        with pytest.raises(StoreAccessError, match=r"the bucket of .* does not exist"):
            use()


def test_what_is_denied_says_what_to_check(faulty: Faulty) -> None:
    faulty.store.put_if_absent("a", b"")
    faulty.proxy.strike(Fault.DENIED, "PUT", "", 1000)
    faulty.proxy.strike(Fault.DENIED, "GET", "", 1000)
    with pytest.raises(PathNotWritableError, match="AccessDenied") as refused:
        faulty.store.put_if_absent("b", b"")
    with pytest.raises(StoreAccessError, match="AccessDenied"):
        faulty.store.read("a")
    assert "permissions" in refused.value.advice
    assert faulty.clock.slept_s == [], "asking again does not help"


def test_wrong_credentials_are_refused_without_being_shown(server_of: Callable[[str], Server]) -> None:
    gateway = server_of("versitygw")
    wrong = "wrong-secret-nobody-may-see"
    for options in ({"secret": wrong}, {"key": "NOBODY", "secret": wrong}):
        store = ObjectStore(gateway.store().url, {**gateway.options, **options})
        with pytest.raises(StoreAccessError) as listed:
            store.list("")
        with pytest.raises(PathNotWritableError) as written:
            store.put_if_absent("a", b"")
        for error in (listed.value, written.value):
            assert wrong not in everything_said(error)
            assert wrong not in str(pickle.loads(pickle.dumps(error)))


def test_wrong_credentials_for_azure_are_refused_without_being_shown(server_of: Callable[[str], Server]) -> None:
    given = server_of("azurite").options["connection_string"]
    key = "c2VjcmV0LXNlY3JldA=="
    connection = ";".join(f"AccountKey={key}" if part.startswith("AccountKey") else part for part in given.split(";"))
    with pytest.raises(StoreAccessError) as raised:
        ObjectStore("abfs://container/t", {"connection_string": connection}).list("")
    assert key not in everything_said(raised.value)


def test_no_credentials_at_all_say_so(moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(StoreAccessError, match="credentials"):
        ObjectStore("s3://bucket/t", {"endpoint_url": moto.endpoint}).list("")


def test_secrets_are_in_no_text_of_a_store(moto: Server) -> None:
    store = moto.store()
    store.list("")
    for text in (repr(store), str(store), store.url, repr(moto)):
        assert SECRET not in text
    assert KEY in str(store.storage_options), "else this test would prove nothing"


def test_a_secret_that_a_library_shows_is_taken_out(moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore("s3://bucket/t", moto.options, system=Clock())

    def fail(*_: Any) -> bytes:
        raise ConnectionError("no way") from ValueError(f"http://host/?sig=of-a-url&secret={SECRET}")

    monkeypatch.setattr(store._cloud, "read", fail)
    with pytest.raises(StoreUnavailableError, match="no way") as raised:
        store.read("a")
    assert SECRET not in everything_said(raised.value)

    def fail_plainly(*_: Any) -> bytes:
        raise ConnectionError(f"http://host/?sig=of-a-url&secret={SECRET}")

    monkeypatch.setattr(store._cloud, "read", fail_plainly)
    with pytest.raises(StoreUnavailableError) as raised:
        store.read("a")
    assert SECRET not in everything_said(raised.value)
    assert "sig=***&secret=***" in str(raised.value)


def test_an_option_that_does_not_exist_is_an_error_that_names_the_options(moto: Server) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ObjectStore("s3://bucket/t", {**moto.options, "endpoint": "x"}).list("")
    assert "endpoint_url" in raised.value.advice
    assert SECRET not in everything_said(raised.value)


@pytest.mark.parametrize(("url", "extra"), [("s3://b/t", "s3"), ("gs://b/t", "gcs"), ("abfs://c/t", "azure")])
def test_an_extra_that_is_not_installed_says_how_to_install_it(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name="thelibrary")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigurationError, match="thelibrary") as raised:
        ObjectStore(url, {"account_name": "a", "x": extra}).list("")
    assert raised.value.advice == f"run: pip install 'tidelog[{extra}]'"


# --- places ----------------------------------------------------------------------------------------------------------


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
def test_ways_to_write_a_url(path: str, url: str) -> None:
    store = open_store(path)
    assert type(store) is ObjectStore
    assert store.url == url


def test_a_url_of_azure_may_name_the_account() -> None:
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


def test_the_log_may_name_a_file_in_another_bucket_but_not_in_another_kind_of_store(moto: Server) -> None:
    moto.store()._cloud._fs.call_s3("create_bucket", Bucket="other")
    store, other = moto.store(), ObjectStore("s3://other/place", moto.options)
    other.put_if_absent("a b%20", b"there")
    for url in ("s3://other/place/a b%20", "s3a://other/place/a b%20"):
        assert store.read(url) == b"there"
        assert store.open_input(url).read() == b"there"
    assert [status.name for status in store.list("s3://other/place")] == ["a b%20"]
    with pytest.raises(StoreNotSupportedError, match="another kind of store"):
        store.read("gs://other/place/a")


def test_a_bucket_may_be_the_table(moto: Server) -> None:
    moto.store()._cloud._fs.call_s3("create_bucket", Bucket="whole")
    table = Table.create("s3://whole", NUMBERS, storage_options=moto.options)
    table.insert(numbers([1, 2]))
    assert read_numbers(Table.open("s3://whole/", storage_options=moto.options)) == [1, 2]


def test_a_long_listing_comes_whole(moto: Server, server_of: Callable[[str], Server]) -> None:
    """The servers give pages of a thousand; asked for small ones they show whether all are read."""
    names = [f"{number:02}" for number in range(7)]
    paged = {**moto.options, "s3_additional_kwargs": '{"MaxKeys": 2}'}
    stores = [ObjectStore(moto.store().url, paged)]
    gcs = server_of("fake-gcs-server").store()
    call = gcs._cloud._fs.call
    gcs._cloud._fs.call = lambda *args, **kwargs: call(*args, **kwargs, maxResults="2")
    try:
        for store in (*stores, gcs):
            for name in names:
                store.put_if_absent(f"f/{name}", b"")
            assert [status.name for status in store.list("f")] == names
    finally:
        gcs._cloud._fs.call = call


def test_content_may_hold_the_separator_of_gcsfs_forms(server_of: Callable[[str], Server]) -> None:
    store = server_of("fake-gcs-server").store()
    content = b"a\n--==0==--\nb\n--==0==\nc"
    store.put_if_absent("commit", content)
    with store.create("data") as file:
        file.write(content)
    assert store.read("commit") == store.read("data") == content
    with pytest.raises(FileExistsError):
        store.put_if_absent("commit", content + b"2")
    assert store.read("commit") == content


# --- processes -------------------------------------------------------------------------------------------------------


def _in_child(pickled: bytes, number: int) -> tuple[list[str], bytes]:
    store = pickle.loads(pickled)
    store.put_if_absent(f"child/{number}", str(number).encode())
    return [status.name for status in store.list("parent")], store.read("parent/1")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forking is what Spark's workers do
@pytest.mark.parametrize("name", ["moto", "fake-gcs-server", "azurite"])
def test_a_store_works_in_a_forked_process_after_its_parent_used_it(
    server_of: Callable[[str], Server], name: str
) -> None:
    """Spark's Python workers are forked from a daemon, and what fsspec keeps is of no use in another process."""
    store = server_of(name).store()
    store.put_if_absent("parent/1", b"one")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.starmap_async(_in_child, [(pickle.dumps(store), number) for number in range(4)]).get(60)
        pool.close()
        pool.join()
    assert answers == [(["1"], b"one")] * 4
    assert [status.name for status in store.list("child")] == ["0", "1", "2", "3"]


def test_stores_of_one_account_share_a_connection(moto: Server) -> None:
    first, second = moto.store(), moto.store()
    assert first._cloud is second._cloud
    assert first._cloud is not ObjectStore(first.url, {**moto.options, "key": "another"})._cloud


def test_a_process_keeps_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_CONNECTED", {})
    monkeypatch.setattr(object_store, "_MAX_CONNECTED", 3)
    clouds = [ObjectStore("abfs://c/t", {"account_name": f"a{number}", "anon": "true"})._cloud for number in range(5)]
    assert list(object_store._CONNECTED.values()) == clouds[2:]

"""What object stores add to the contract: listings in pages, connections, forked processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable

import pytest

from tests.log.storage.servers import Server
from tidelog.log.storage import object_store
from tidelog.log.storage.object_store import ObjectStore


def test_a_listing_of_several_pages_is_complete(moto: Server, server_of: Callable[[str], Server]) -> None:
    """Servers return pages of a thousand entries; small pages show whether all are read."""
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
            for name in names:
                store.put_if_absent(f"g/{name}/x", b"")
            assert store.folders("g") == names
        # The page that has the name is the last one that is asked for. (The other server ignores the size of pages.)
        assert stores[0].folders("g", until="03") == names[:4]
    finally:
        gcs._cloud._fs.call = call


def test_content_may_contain_the_boundary_of_gcsfs_forms(server_of: Callable[[str], Server]) -> None:
    store = server_of("fake-gcs-server").store()
    content = b"a\n--==0==--\nb\n--==0==\nc"
    store.put_if_absent("commit", content)
    with store.create("data") as file:
        file.write(content)
    assert store.read("commit") == store.read("data") == content
    with pytest.raises(FileExistsError):
        store.put_if_absent("commit", content + b"2")
    assert store.read("commit") == content


def _in_child(pickled: bytes, number: int) -> tuple[list[str], bytes]:
    store = pickle.loads(pickled)
    store.put_if_absent(f"child/{number}", str(number).encode())
    return [status.name for status in store.list("parent")], store.read("parent/1")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Spark's workers are forked too
@pytest.mark.parametrize("name", ["moto", "fake-gcs-server", "azurite"])
def test_a_store_works_in_a_forked_process(server_of: Callable[[str], Server], name: str) -> None:
    """Spark's Python workers are forked, and a connection of fsspec does not work in another process."""
    store = server_of(name).store()
    store.put_if_absent("parent/1", b"one")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.starmap_async(_in_child, [(pickle.dumps(store), number) for number in range(4)]).get(60)
        pool.close()
        pool.join()
    assert answers == [(["1"], b"one")] * 4
    assert [status.name for status in store.list("child")] == ["0", "1", "2", "3"]


def test_stores_with_the_same_account_share_a_connection(moto: Server) -> None:
    first, second = moto.store(), moto.store()
    assert first._cloud is second._cloud
    assert first._cloud is not ObjectStore(first.url, {**moto.options, "key": "another"})._cloud


def test_a_process_keeps_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_CONNECTED", {})
    monkeypatch.setattr(object_store, "_MAX_CONNECTED", 3)
    clouds = [ObjectStore("abfs://c/t", {"account_name": f"a{number}", "anon": "true"})._cloud for number in range(5)]
    assert list(object_store._CONNECTED.values()) == clouds[2:]

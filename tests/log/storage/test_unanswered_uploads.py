"""A put of several requests: the library's clean-up after a failure must not hide that the object may be stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import Server
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.storage import NotStoredError

PART_BYTES = 5 * 2**20  # the smallest part that S3 takes


def put_without_an_answer(faulty: Faulty, content: bytes, request: str) -> None:
    """Put an object that `request` stores without an answer, and see that the error leaves this open."""
    faulty.store.put_if_absent("first", b"")
    struck = faulty.proxy.strike(Fault.DROPPED_AFTER, "POST", request)
    with pytest.raises(StoreUnavailableError) as raised:
        faulty.store.put_if_absent("large", content)
    assert not isinstance(raised.value, NotStoredError)
    assert struck.times == 0
    assert faulty.store.read("large") == content


@pytest.mark.parametrize("answer", [None, Fault.SLOW_DOWN, Fault.DENIED])
def test_s3_in_parts(faulty: Faulty, answer: Fault | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself the server answers that there is no such upload, because it was completed."""
    fs = faulty.store._cloud._fs
    monkeypatch.setattr(fs, "pipe_file", partial(fs.pipe_file, chunksize=PART_BYTES))
    if answer is not None:
        faulty.proxy.strike(answer, "DELETE", "uploadId=", 1000)
    put_without_an_answer(faulty, bytes(2 * PART_BYTES), "uploadId=")
    assert faulty.proxy.count("DELETE", "uploadId=") == 1


@pytest.mark.parametrize("answer", [Fault.TOO_MANY, Fault.DENIED])
def test_a_resumable_upload_to_gcs(server_of: Callable[[str], Server], answer: Fault) -> None:
    with behind_a_proxy(server_of("fake-gcs-server")) as faulty:
        faulty.proxy.strike(answer, "DELETE", "upload_id=", 1000)
        put_without_an_answer(faulty, b"\n--==0==\n a form's boundary", "upload_id=")
        assert faulty.proxy.count("DELETE", "upload_id=") == 1

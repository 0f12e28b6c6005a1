"""What Arrow's threads release while Python exits must not be an object of Python."""

from __future__ import annotations

import io
import sys

import pyarrow as pa
import pytest

from tidelog.log.storage import arrow_input, read_whole


class _Kept(io.BytesIO):
    """A file that gives one object, however much is asked for."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._content = content

    def read(self, size: int | None = -1, /) -> bytes:
        return self._content if size else b""


@pytest.mark.parametrize("size", [0, 1, 1_000])
def test_arrow_reads_the_content(size: int) -> None:
    content = bytes(range(256)) * 4
    with arrow_input(content[:size]) as file:
        assert file.size() == size
        assert file.read() == content[:size]


def test_arrow_holds_nothing_of_python() -> None:
    content = bytes(range(100))
    source = pa.PythonFile(_Kept(content), mode="r")
    before = sys.getrefcount(content)
    file, whole = arrow_input(content), read_whole(source)
    assert sys.getrefcount(content) == before
    assert file.read() == whole.to_pybytes() == content


@pytest.mark.parametrize("make", [arrow_input, lambda content: pa.PythonFile(io.BytesIO(content), mode="r")])
def test_the_rest_of_a_file_is_read(make: type[pa.NativeFile]) -> None:
    file = make(b"0123456789")
    file.seek(4)
    assert read_whole(file).to_pybytes() == b"456789"


def test_a_file_that_ends_earlier_gives_what_it_has() -> None:
    class Shorter(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 3))

    assert read_whole(pa.PythonFile(Shorter(b"0123456789"), mode="r")).to_pybytes() == b"012"

"""Give Arrow bytes that Python has read.

Arrow's threads may release what they read after the read has returned, even while Python exits. To release an object of
Python, a thread waits for the interpreter's lock, and then the whole process aborts. So Arrow gets a copy of its own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def arrow_input(content: bytes) -> Any:
    """The content as a file that Arrow reads. Arrow holds no object of Python."""
    copy = pa.allocate_buffer(len(content))
    memoryview(copy).cast("B")[:] = content
    return pa.BufferReader(copy)  # noqa: TID251 - the buffer is Arrow's


def read_whole(source: Any) -> pa.Buffer:
    """What is left of an open file. Fewer bytes than its size if it ends earlier. Arrow holds no object of Python."""
    buffer = pa.allocate_buffer(source.size() - source.tell())
    return buffer.slice(0, source.readinto(buffer))

"""Every layout that a deletion vector's bitmap can have, built by hand from the format's specification.

Source: the Roaring format specification, and the Delta protocol, "Deletion Vector Format".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from tests.compaction_daemon.support import z85
from tests.log.support import memory_store, vector_file
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.deletion_vector import decode_bitmap

ARRAY_MAX = 4096  # values; a container with more is an 8 KiB bitmap
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_FEWEST_WITH_OFFSETS = 4


def container(values: Sequence[int], *, as_runs: bool) -> bytes:
    """The values (0 to 65535, ascending) of one container."""
    if as_runs:
        known = set(values)
        starts = [value for value in values if value - 1 not in known]
        ends = [value for value in values if value + 1 not in known]
        pairs = [number for start, end in zip(starts, ends, strict=True) for number in (start, end - start)]
        return struct.pack(f"<H{len(pairs)}H", len(starts), *pairs)
    if len(values) <= ARRAY_MAX:
        return struct.pack(f"<{len(values)}H", *values)
    return sum(1 << value for value in values).to_bytes(8192, "little")


def roaring32(values: Sequence[int], *, as_runs: bool) -> bytes:
    """The standard 32-bit bitmap. Either all of its containers have runs, or none."""
    keys = sorted({value >> 16 for value in values})
    parts = [[value & 0xFFFF for value in values if value >> 16 == key] for key in keys]
    bodies = [container(part, as_runs=as_runs) for part in parts]
    if as_runs:
        flags = ((1 << len(keys)) - 1).to_bytes((len(keys) + 7) // 8, "little")
        head = struct.pack("<I", _WITH_RUNS | (len(keys) - 1) << 16) + flags
    else:
        head = struct.pack("<II", _WITHOUT_RUNS, len(keys))
    head += b"".join(struct.pack("<HH", key, len(part) - 1) for key, part in zip(keys, parts, strict=True))
    if not as_runs or len(keys) >= _FEWEST_WITH_OFFSETS:
        first = len(head) + 4 * len(keys)
        head += b"".join(struct.pack("<I", first + sum(map(len, bodies[:n]))) for n in range(len(keys)))
    return head + b"".join(bodies)


def bitmap(values: Sequence[int], *, as_runs: bool) -> bytes:
    """The 64-bit bitmap: the magic number, then one 32-bit bitmap per high half."""
    keys = sorted({value >> 32 for value in values})
    buckets = [
        struct.pack("<I", key)
        + roaring32([value & 0xFFFFFFFF for value in values if value >> 32 == key], as_runs=as_runs)
        for key in keys
    ]
    return struct.pack("<IQ", 1681511377, len(keys)) + b"".join(buckets)


ROWS: dict[str, list[int]] = {
    "one row": [0],
    "the first and the last of a container": [0, 65535],
    "the largest array": list(range(0, 2 * ARRAY_MAX, 2)),
    "the smallest bitmap": list(range(0, 2 * ARRAY_MAX + 2, 2)),
    "a whole container": list(range(65536)),
    "two containers": [5, 65536, 65537, 131071],
    "five containers, an array and bitmaps": [7, *range(65536, 131072, 3), 140000, 200000, *range(262144, 270000)],
    "many buckets": [bucket << 32 | 3 for bucket in range(50)],
    "far buckets": [1, 1 << 33, (1 << 62) + 70_000],
}


@pytest.mark.parametrize("as_runs", [False, True], ids=["plain", "runs"])
@pytest.mark.parametrize("name", list(ROWS))
def test_a_layout_is_read(name: str, as_runs: bool) -> None:
    assert list(decode_bitmap(bitmap(ROWS[name], as_runs=as_runs))) == ROWS[name]


@pytest.mark.parametrize("as_runs", [False, True], ids=["plain", "runs"])
@pytest.mark.parametrize("name", [name for name in ROWS if name != "a whole container"])
def test_a_truncated_layout_is_refused(name: str, as_runs: bool) -> None:
    blob = bitmap(ROWS[name], as_runs=as_runs)
    for length in sorted({*range(min(len(blob), 200)), *range(0, len(blob), 97), len(blob) - 1}):
        with pytest.raises(CorruptLogError):
            decode_bitmap(blob[:length])


@pytest.mark.parametrize("padding", [1, 3, 4, 100])
@pytest.mark.parametrize("name", list(ROWS))
def test_bytes_after_a_bitmap_are_refused_or_ignored(name: str, padding: int) -> None:
    try:
        found = list(decode_bitmap(bitmap(ROWS[name], as_runs=False) + bytes(padding)))
    except CorruptLogError:
        return
    assert found == ROWS[name]


@pytest.mark.parametrize("padding", [1, 2, 3])
def test_an_inline_bitmap_is_cut_to_its_size(padding: int) -> None:
    """Z85 encodes four bytes at a time, so bitmaps of other lengths are padded."""
    blob = bitmap(ROWS["two containers"], as_runs=True)
    blob += bytes(-len(blob) % 4)
    descriptor = vector("i", z85(blob + bytes(4)), len(blob), 4)
    assert list(read_dead_rows(memory_store(), descriptor)) == ROWS["two containers"]
    with pytest.raises(CorruptLogError):
        read_dead_rows(memory_store(), vector("i", z85(blob), len(blob) - 4 - padding, 4))


def vector(kind: str, text: str, size: int, cardinality: int, offset: int | None = None) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=kind, path_or_inline_dv=text, offset=offset, size_in_bytes=size, cardinality=cardinality
    )


UUID_TEXT, UUID_NAME = "vBn[lx{q8@P<9BNH/isA", "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
PLACES = {
    "u": (UUID_TEXT, UUID_NAME),
    "u with a prefix": (f"ab{UUID_TEXT}", f"ab/{UUID_NAME}"),
    "u with a prefix that could be part of the id": (f"_dv{UUID_TEXT}", f"_dv/{UUID_NAME}"),
    "p": ("memory%20place/dv.bin", "memory place/dv.bin"),
}


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("as_runs", [False, True], ids=["plain", "runs"])
def test_a_layout_after_another_one_in_the_same_file(place: str, as_runs: bool) -> None:
    text, path = PLACES[place]
    store = memory_store()
    other, blob = bitmap([1], as_runs=False), bitmap(ROWS["two containers"], as_runs=as_runs)
    content = vector_file(other, blob)
    store.put_if_absent(path, content)
    descriptor = vector(place[0], text, len(blob), 4, 1 + len(other) + 8)
    assert list(read_dead_rows(store, descriptor)) == ROWS["two containers"]
    for length in range(len(content)):
        store.replace(path, content[:length])
        with pytest.raises(CorruptLogError):
            read_dead_rows(store, descriptor)
    store.delete(path)
    with pytest.raises(DataFileMissingError, match="is missing"):
        read_dead_rows(store, descriptor)

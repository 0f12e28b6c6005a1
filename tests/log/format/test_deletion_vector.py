"""Decoding and locating deletion vectors, including damaged ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import bitmap, vector_file
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.deletion_vector import StoredBitmap, decode_bitmap, extract, location

# Vectors of other implementations: from delta-kernel-rs's table-with-dv-small, and an inline one.
FILE = bytes.fromhex(
    "01 00000024 d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0100 10000000 0000 0900 2a671846"
)
IN_FILE = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="vBn[lx{q8@P<9BNH/isA", offset=1, size_in_bytes=36, cardinality=2
)
INLINE = DeletionVectorDescriptor(
    storage_type="i",
    path_or_inline_dv="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_in_bytes=44,
    cardinality=6,
)
# The protocol's example 3, which uses a retired format.
RETIRED = DeletionVectorDescriptor(
    storage_type="i",
    path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_in_bytes=40,
    cardinality=6,
)


def inline(text: str, size: int = 4) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="i", path_or_inline_dv=text, size_in_bytes=size, cardinality=1)


def in_file(text: str, storage_type: str = "u") -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=storage_type, path_or_inline_dv=text, offset=1, size_in_bytes=36, cardinality=2
    )


def inline_bitmap(descriptor: DeletionVectorDescriptor) -> bytes:
    found = location(descriptor)
    assert isinstance(found, bytes)
    return found


def test_a_vector_in_a_file() -> None:
    stored = location(IN_FILE)
    assert stored == StoredBitmap("deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin", 1, 36)
    assert list(decode_bitmap(extract(FILE, stored))) == [0, 9]


def test_an_inline_vector() -> None:
    assert list(decode_bitmap(inline_bitmap(INLINE))) == [3, 4, 7, 11, 18, 29]


def test_a_prefix_is_a_folder() -> None:
    descriptor = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
    )
    assert location(descriptor) == StoredBitmap("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 4, 40)


def test_an_absolute_path_is_used_as_it_is() -> None:
    descriptor = DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv="s3://b/d%20v.bin", offset=4, size_in_bytes=40, cardinality=6
    )
    assert location(descriptor) == StoredBitmap("s3://b/d%20v.bin", 4, 40)


positions = st.sets(st.integers(0, 200) | st.integers(0, 2**33), min_size=1, max_size=20)


@given(st.lists(positions, min_size=1, max_size=4))
def test_several_vectors_in_one_file(groups: list[set[int]]) -> None:
    blobs = [bitmap(group) for group in groups]
    content, offset = vector_file(*blobs), 1
    for group, blob in zip(groups, blobs, strict=True):
        assert set(decode_bitmap(extract(content, StoredBitmap("x", offset, len(blob))))) == group
        offset += len(blob) + 8


def test_long_runs_and_large_positions() -> None:
    dead = {*range(100_000), 2**40, 2**62}
    assert set(decode_bitmap(bitmap(dead))) == dead


@pytest.mark.parametrize("position", range(len(FILE)))
def test_any_damaged_byte_in_a_file_is_detected(position: int) -> None:
    damaged = bytearray(FILE)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptLogError):
        extract(bytes(damaged), StoredBitmap("x", 1, 36))


@pytest.mark.parametrize("length", range(len(FILE)))
def test_a_truncated_file_is_detected(length: int) -> None:
    with pytest.raises(CorruptLogError):
        extract(FILE[:length], StoredBitmap("x", 1, 36))


@pytest.mark.parametrize(
    "stored",
    [StoredBitmap("x", 1, 35), StoredBitmap("x", 1, 0), StoredBitmap("x", 2, 36), StoredBitmap("x", 10**9, 36)],
)
def test_a_descriptor_that_does_not_match_the_file_is_detected(stored: StoredBitmap) -> None:
    with pytest.raises(CorruptLogError):
        extract(FILE, stored)


def test_the_retired_format_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="magic"):
        decode_bitmap(inline_bitmap(RETIRED))


@pytest.mark.parametrize("length", range(44))
def test_a_truncated_bitmap_is_refused(length: int) -> None:
    with pytest.raises(CorruptLogError):
        decode_bitmap(inline_bitmap(INLINE)[:length])


@settings(max_examples=200)
@given(st.integers(4, 43), st.integers(1, 255))
def test_a_damaged_bitmap_never_causes_a_crash(position: int, flip: int) -> None:
    damaged = bytearray(inline_bitmap(INLINE))
    damaged[position] ^= flip
    try:
        decode_bitmap(bytes(damaged))
    except CorruptLogError:
        return


@pytest.mark.parametrize(
    "descriptor",
    [
        inline("abcd"),
        inline("ab cd"),
        inline("äbcde"),
        inline("%%%%%"),
        in_file("vBn[lx{q8@P<9BNH/is"),
        in_file(""),
        in_file("00000"),
        in_file("vBn[lx{q8@P<9BNH/is~"),
        in_file("x", storage_type="r"),
        in_file("x", storage_type=""),
    ],
    ids=lambda descriptor: descriptor.unique_id,
)
def test_an_invalid_descriptor_is_a_corrupt_log(descriptor: DeletionVectorDescriptor) -> None:
    with pytest.raises(CorruptLogError):
        location(descriptor)

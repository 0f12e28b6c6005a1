"""Deletion vectors: the set of a file's dead positions, as a 64-bit Roaring bitmap.

Layout (Delta protocol, "Deletion Vector Format"); a bitmap is little-endian, a file around it big-endian:

    file    = 01, then for each vector: int32 size, bitmap[size], int32 CRC-32 of the bitmap
    bitmap  = uint32 1681511377, uint64 number of buckets, then for each bucket: uint32 high half, 32-bit Roaring
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import DeletionVectorDescriptor

_MAGIC = 1681511377
_FILE_VERSION = 1
# The magic number and the number of buckets.
_BITMAP_HEADER = 12
_UUID_CHARACTERS = 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES = {character: value for value, character in enumerate(_Z85)}


# A path of at least an id's length, and an offset; the alphabet of the id holds the @ as well.
_WITH_OFFSET = re.compile(r".{20,}@\d+")


@dataclass(frozen=True, slots=True)
class StoredBitmap:
    """Where a vector's bitmap lies: `path` is a URI, relative to the table or absolute."""

    path: str
    offset: int
    size: int


def location(descriptor: DeletionVectorDescriptor) -> StoredBitmap | bytes:
    """Where the bitmap of `descriptor` is stored, or the bitmap itself if it is inline."""
    text = descriptor.path_or_inline_dv
    match descriptor.storage_type:
        case "i":
            return _z85_decode(text)[: descriptor.size_in_bytes]
        case "u":
            prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
            if len(encoded) < _UUID_CHARACTERS:
                raise _corrupt("the path is too short to name a file", descriptor)
            name = file_name(uuid.UUID(bytes=_z85_decode(encoded)))
            path = f"{prefix}/{name}" if prefix else name
        case "p":
            path = text
        case other:
            raise _corrupt(f"unknown storage type {other!r}", descriptor)
    return StoredBitmap(path, descriptor.offset or 1, descriptor.size_in_bytes)


def of_id(unique_id: str) -> StoredBitmap | bytes:
    """Where the vector of this id lies, or its bitmap if it is inline; its size is 0, as the id does not tell it."""
    kind, text = unique_id[:1], unique_id[1:]
    offset = None
    # An inline bitmap has no offset, though its text may well end like one.
    if kind != "i" and _WITH_OFFSET.fullmatch(text):
        text, _, offset = text.rpartition("@")
    return location(
        DeletionVectorDescriptor(
            storage_type=kind,
            path_or_inline_dv=text,
            offset=int(offset) if offset else None,
            size_in_bytes=0 if kind != "i" else len(text),
            cardinality=0,
        )
    )


def extract(content: bytes, stored: StoredBitmap) -> bytes:
    """The bitmap at `stored` in the `content` of its file, its checksum verified, and its size where that is known."""
    start = stored.offset + 4
    if not content or content[0] != _FILE_VERSION or stored.offset < 1 or len(content) < start:
        raise _corrupt("the file is too short or of another version", stored)
    (size,) = struct.unpack_from(">i", content, stored.offset)
    end = start + size
    if size < 0 or len(content) < end + 4:
        raise _corrupt("the file is too short or of another version", stored)
    (checksum,) = struct.unpack_from(">I", content, end)
    bitmap = content[start:end]
    if stored.size not in {0, size} or zlib.crc32(bitmap) != checksum:
        raise _corrupt("size or checksum differ", stored)
    return bitmap


def decode_bitmap(bitmap: bytes) -> BitMap64:
    """The dead positions (0-based, physical) that a bitmap holds."""
    if len(bitmap) < _BITMAP_HEADER or struct.unpack_from("<I", bitmap)[0] != _MAGIC:
        raise _corrupt("the magic number is wrong", len(bitmap))
    try:
        return BitMap64.deserialize(bitmap[4:])
    except (ValueError, IndexError, struct.error) as error:
        raise _corrupt(str(error), len(bitmap)) from error


def encode_bitmap(positions: BitMap64) -> bytes:
    """The bitmap of `positions`, in the smaller of Roaring's forms for each part."""
    compact = positions.copy()
    compact.run_optimize()
    return struct.pack("<I", _MAGIC) + bytes(compact.serialize())


def pack(bitmaps: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """One file that holds these bitmaps, and the offset of each in it."""
    content = bytearray([_FILE_VERSION])
    offsets = []
    for bitmap in bitmaps:
        offsets.append(len(content))
        content += struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    return bytes(content), offsets


def file_name(file_id: uuid.UUID) -> str:
    """The name of the file of vectors with this id."""
    return f"deletion_vector_{file_id}.bin"


def relative_name(prefix: str, file_id: uuid.UUID) -> str:
    """How a descriptor of the type `u` names the file `<prefix>/deletion_vector_<id>.bin` below the table."""
    return prefix + _z85_encode(file_id.bytes)


def _z85_encode(content: bytes) -> str:
    """The Z85 text of bytes whose number is a multiple of 4."""
    characters = []
    for start in range(0, len(content), 4):
        value = int.from_bytes(content[start : start + 4], "big")
        characters += [_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(characters)


def _z85_decode(text: str) -> bytes:
    if len(text) % 5:
        raise _corrupt("the Z85 text has a wrong length", text)
    words = []
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            if character not in _Z85_VALUES:
                raise _corrupt("the Z85 text has a wrong character", text)
            value = value * 85 + _Z85_VALUES[character]
        if value >= 2**32:
            raise _corrupt("the Z85 text overflows", text)
        words.append(value.to_bytes(4, "big"))
    return b"".join(words)


def _corrupt(what: str, where: object) -> CorruptLogError:
    return CorruptLogError(
        f"a deletion vector cannot be read: {what} ({where})", advice="restore the file from a backup", path=str(where)
    )

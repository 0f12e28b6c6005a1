"""Deletion vectors: the set of a data file's deleted row positions, as a 64-bit Roaring bitmap.

Layout (Delta protocol, "Deletion Vector Format"); the bitmap is little-endian, the file around it big-endian:

    file    = 01, then for each vector: int32 size, bitmap[size], int32 CRC-32 of the bitmap
    bitmap  = uint32 1681511377, uint64 number of buckets, then for each bucket: uint32 high half, 32-bit Roaring
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

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


# A path at least as long as an id, then an offset. The id's alphabet contains `@` too.
_WITH_OFFSET = re.compile(r".{20,}@[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class StoredBitmap:
    """Where a vector's bitmap is stored: `path` is a URI, relative to the table or absolute.

    `size` is that of the bitmap in bytes; None if it is unknown.
    """

    path: str
    offset: int
    size: int | None


def location(descriptor: DeletionVectorDescriptor) -> StoredBitmap | bytes:
    """Where the bitmap of `descriptor` is stored, or the bitmap itself if it is inline."""
    text = descriptor.path_or_inline_dv
    match descriptor.storage_type:
        case "i":
            return _z85_decode(text)[: descriptor.size_in_bytes]
        case "u":
            prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
            if len(encoded) < _UUID_CHARACTERS:
                raise _corrupt("its path is too short to name a file", text)
            name = file_name(uuid.UUID(bytes=_z85_decode(encoded)))
            path = f"{prefix}/{name}" if prefix else name
        case "p":
            path = text
        case other:
            raise _corrupt(f"its storage type {other!r} is unknown", text)
    return StoredBitmap(path, descriptor.offset or 1, descriptor.size_in_bytes)


def of_id(unique_id: str) -> StoredBitmap | bytes:
    """Where the vector with this id is stored, or its bitmap if it is inline. The id does not contain the size."""
    kind, text = unique_id[:1], unique_id[1:]
    offset = None
    # An inline bitmap has no offset, although its text can end like one.
    if kind != "i" and _WITH_OFFSET.fullmatch(text):
        text, _, offset = text.rpartition("@")
    found = location(
        DeletionVectorDescriptor(
            storage_type=kind,
            path_or_inline_dv=text,
            offset=int(offset) if offset else None,
            size_in_bytes=len(text),
            cardinality=0,
        )
    )
    return replace(found, size=None) if isinstance(found, StoredBitmap) else found


def extract(content: bytes, stored: StoredBitmap) -> bytes:
    """Extract the bitmap at `stored` from its file's `content`. Verifies its checksum and, if known, its size."""
    start = stored.offset + 4
    if not content or content[0] != _FILE_VERSION or stored.offset < 1 or len(content) < start:
        raise _corrupt("its file is truncated or has an unknown version", stored.path)
    (size,) = struct.unpack_from(">i", content, stored.offset)
    end = start + size
    if size < 0 or len(content) < end + 4:
        raise _corrupt("its file is truncated or has an unknown version", stored.path)
    (checksum,) = struct.unpack_from(">I", content, end)
    bitmap = content[start:end]
    if stored.size not in {None, size} or zlib.crc32(bitmap) != checksum:
        raise _corrupt("its size or checksum is wrong", stored.path)
    return bitmap


def decode_bitmap(bitmap: bytes) -> BitMap64:
    """The deleted positions (0-based, physical) in a bitmap."""
    if len(bitmap) < _BITMAP_HEADER or struct.unpack_from("<I", bitmap)[0] != _MAGIC:
        raise _corrupt("its magic number is wrong")
    try:
        return BitMap64.deserialize(bitmap[4:])
    except (ValueError, IndexError, struct.error) as error:
        raise _corrupt(f"its bitmap is damaged: {error}") from error


def encode_bitmap(positions: BitMap64) -> bytes:
    """Encode `positions` as a bitmap, using Roaring's smallest form for each part."""
    compact = positions.copy()
    compact.run_optimize()
    return struct.pack("<I", _MAGIC) + bytes(compact.serialize())


def pack(bitmaps: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Pack bitmaps into one file; returns its content and the offset of each bitmap."""
    content = bytearray([_FILE_VERSION])
    offsets = []
    for bitmap in bitmaps:
        offsets.append(len(content))
        content += struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    return bytes(content), offsets


def file_name(file_id: uuid.UUID) -> str:
    """The name of the deletion vector file with this id."""
    return f"deletion_vector_{file_id}.bin"


def relative_name(prefix: str, file_id: uuid.UUID) -> str:
    """The text with which a descriptor of type `u` names `<prefix>/deletion_vector_<id>.bin`, relative to the table."""
    return prefix + _z85_encode(file_id.bytes)


def _z85_encode(content: bytes) -> str:
    """Encode bytes as Z85. Their number must be a multiple of 4."""
    characters = []
    for start in range(0, len(content), 4):
        value = int.from_bytes(content[start : start + 4], "big")
        characters += [_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(characters)


def _z85_decode(text: str) -> bytes:
    if len(text) % 5:
        raise _corrupt("its Z85 text has a wrong length", text)
    words = []
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            if character not in _Z85_VALUES:
                raise _corrupt(f"its Z85 text contains {character!r}", text)
            value = value * 85 + _Z85_VALUES[character]
        if value >= 2**32:
            raise _corrupt("its Z85 text is out of range", text)
        words.append(value.to_bytes(4, "big"))
    return b"".join(words)


def _corrupt(what: str, path: str = "") -> CorruptLogError:
    name = f"the deletion vector {path}" if path else "a deletion vector"
    fields = {"path": path} if path else {}
    return CorruptLogError(f"{name} cannot be read: {what}", advice="restore its file from a backup", **fields)

"""Seals: the CRC-32 of a whole log file, stored inside that file, which detects damage anywhere in it.

Parquet's page checksums do not cover the footer, and a `.crc` has no checksum at all; without a seal, damage there
would go unnoticed. Other engines ignore a seal: in a parquet file it is between the last row group and the footer,
where nothing points to it, and in JSON it is one more text value. The CRC treats the seal's digits as zeros and starts
from the version, so that a file of another version does not pass for this one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

_MARK = b"tidelog-crc32:"
_ZEROS = b"00000000"
# The placeholder for the seal, near the end of a JSON text.
UNSEALED = (_MARK + _ZEROS).decode()
# Only the few characters that close the JSON object follow the seal.
_JSON_TAIL = 64
# A parquet file ends with its footer, the footer's length, and `PAR1`.
_PARQUET_END = 8
# How much of a large file is read at once.
_PIECE = 2**20


def seal_json(content: bytes, version: int) -> bytes:
    """Seal the JSON text `content`, whose last value ends with UNSEALED, as a file of `version`."""
    return _sealed(content, content.rindex(_MARK) + len(_MARK), version)


def seal_parquet(content: bytes, version: int) -> bytes:
    """Seal the parquet file `content` as a file of `version`."""
    footer = _footer(content[-_PARQUET_END:], len(content))
    return _sealed(content[:footer] + UNSEALED.encode() + content[footer:], footer + len(_MARK), version)


def is_intact_json(content: bytes, version: int) -> bool | None:
    """Whether the seal matches content and version; None if there is no seal."""
    before_tail = max(0, len(content) - _JSON_TAIL)
    found = content.rfind(_MARK, before_tail)
    return None if found < 0 else _fits(content, found + len(_MARK), version)


def is_intact_parquet(source: Any, version: int) -> bool | None:
    """Whether the seal of `source`, an open Arrow file, matches content and version; None if there is no seal.

    Reads a large file piece by piece, and without a seal only its end.
    """
    size = source.size()
    source.seek(max(0, size - _PARQUET_END))
    footer = _footer(source.read(_PARQUET_END), size)
    digits = footer - len(_ZEROS)
    mark = digits - len(_MARK)
    if mark < 0:
        return None
    source.seek(mark)
    if source.read(len(_MARK)) != _MARK:
        return None
    found = source.read(len(_ZEROS))
    return bool(found == _digits(chain(_pieces(source, 0, digits), [_ZEROS], _pieces(source, footer, size)), version))


def _pieces(source: Any, start: int, end: int) -> Iterator[Any]:
    """The bytes from `start` to `end`; fewer if the file was truncated."""
    source.seek(start)
    while start < end and len(piece := source.read_buffer(min(_PIECE, end - start))):
        yield piece
        start += len(piece)


def _footer(end: bytes, size: int) -> int:
    """The offset of the footer in a parquet file of `size` bytes that ends with `end`."""
    return size - _PARQUET_END - int.from_bytes(end[: _PARQUET_END // 2], "little")


def _sealed(content: bytes, digits: int, version: int) -> bytes:
    return content[:digits] + _checksum(content, digits, version) + content[digits + len(_ZEROS) :]


def _fits(content: bytes, digits: int, version: int) -> bool:
    return content[digits : digits + len(_ZEROS)] == _checksum(content, digits, version)


def _checksum(content: bytes, digits: int, version: int) -> bytes:
    view = memoryview(content)
    return _digits((view[:digits], _ZEROS, view[digits + len(_ZEROS) :]), version)


def _digits(pieces: Iterable[Any], version: int) -> bytes:
    value = zlib.crc32(version.to_bytes(8, "big"))
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return f"{value:08x}".encode()

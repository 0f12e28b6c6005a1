"""Seals: checksums (CRC-32) of a whole log file, stored inside that file, which detect damage anywhere in it.

Parquet's page checksums do not cover the footer, and a `.crc` has no checksum at all; without a seal, damage there
would go unnoticed. Other engines ignore a seal: in a parquet file it is between the last row group and the footer,
where nothing points to it, and in JSON it is one more text value. The CRC treats the seal's digits as zeros and starts
from the version, so that a file of another version does not pass for this one.

The seal of a parquet file has a checksum for each row group, so that a reader of some row groups need not read the
others, and one of the rest: the seal itself and the footer. Older files have one checksum of the whole file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

_MARK = b"tidelog-crc32:"
_PARTS_MARK = b"tidelog-crc32-parts:"
_ZEROS = b"00000000"
# The placeholder for the seal, near the end of a JSON text.
UNSEALED = (_MARK + _ZEROS).decode()
# Only the few characters that close the JSON object follow the seal.
_JSON_TAIL = 64
# A parquet file ends with its footer, the footer's length, and `PAR1`.
_PARQUET_END = 8
# How much of a large file is read at once.
_PIECE = 2**20
# Of each part of a file: where it ends, and its checksum; then the number of parts; all in hexadecimal digits.
_END_DIGITS, _COUNT_DIGITS = 16, 8


def seal_json(content: bytes, version: int) -> bytes:
    """Seal the JSON text `content`, whose last value ends with UNSEALED, as a file of `version`."""
    return _sealed(content, content.rindex(_MARK) + len(_MARK), version)


def seal_parquet(content: bytes, version: int, ends: Sequence[int]) -> bytes:
    """Seal the parquet file `content` as a file of `version`. `ends` is where each of its row groups ends."""
    footer = _footer(content[-_PARQUET_END:], len(content))
    view = memoryview(content)
    bounds = [0, *ends[:-1], footer]
    parts = b"".join(
        f"{end:0{_END_DIGITS}x}".encode() + _digits([view[start:end]], version) for start, end in pairwise(bounds)
    )
    block = b"%s%s%s" % (_PARTS_MARK, parts, f"{len(ends):0{_COUNT_DIGITS}x}".encode())
    return b"".join([view[:footer], block, _digits([block, view[footer:]], version), view[footer:]])


def is_intact_json(content: bytes, version: int) -> bool | None:
    """Whether the seal matches content and version; None if there is no seal."""
    before_tail = max(0, len(content) - _JSON_TAIL)
    found = content.rfind(_MARK, before_tail)
    return None if found < 0 else _fits(content, found + len(_MARK), version)


@dataclass(frozen=True, slots=True)
class ParquetSeal:
    """The seal of an open parquet file. `parts` are where each row group ends, and its checksum, if it has these."""

    source: Any
    version: int
    parts: Sequence[tuple[int, bytes]]
    _is_whole: bool = True

    def is_intact(self, groups: Iterable[int] | None = None) -> bool:
        """Whether these row groups, or without them the whole file, have the checksums of the seal.

        Of a file with one checksum, it is always about the whole.
        """
        if not self.parts or not self._is_whole:
            return self._is_whole
        starts = [0, *(end for end, _ in self.parts)]
        return all(
            self.parts[group][1] == _digits(_pieces(self.source, starts[group], starts[group + 1]), self.version)
            for group in (range(len(self.parts)) if groups is None else groups)
        )


def seal_of_parquet(source: Any, version: int) -> ParquetSeal | None:
    """The seal of `source`, an open Arrow file of `version`; None if there is none.

    The footer is compared with it already, and of a file with one checksum all of it, piece by piece. Without a seal,
    only the end of the file is read.
    """
    size = source.size()
    footer = _footer(_read(source, max(0, size - _PARQUET_END), size), size)
    digits = footer - len(_ZEROS)
    if digits - len(_MARK) < 0:
        return None
    found = _read(source, digits, footer)
    if _read(source, digits - len(_MARK), digits) == _MARK:
        whole = chain(_pieces(source, 0, digits), [_ZEROS], _pieces(source, footer, size))
        return ParquetSeal(source, version, (), found == _digits(whole, version))
    count = _number(_read(source, digits - _COUNT_DIGITS, digits))
    width = _END_DIGITS + len(_ZEROS)
    start = digits - _COUNT_DIGITS - count * width - len(_PARTS_MARK)
    if count < 1 or start < 0 or _read(source, start, start + len(_PARTS_MARK)) != _PARTS_MARK:
        return None
    block = _read(source, start, digits)
    listed = block[len(_PARTS_MARK) : -_COUNT_DIGITS]
    entries = [listed[place : place + width] for place in range(0, len(listed), width)]
    parts = [(_number(entry[:_END_DIGITS]), entry[_END_DIGITS:]) for entry in entries]
    bounds = [0, *(end for end, _ in parts)]
    is_whole = found == _digits(chain([block], _pieces(source, footer, size)), version)
    return ParquetSeal(source, version, parts, is_whole and bounds == sorted(bounds) and bounds[-1] == start)


def _number(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return -1


def _read(source: Any, start: int, end: int) -> bytes:
    source.seek(start)
    return bytes(source.read(end - start))


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

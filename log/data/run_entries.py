"""The entries of a run of the key index in memory, as columns of NumPy arrays, and as the bytes of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidelog.log.arrays import Int64Array
from tidelog.log.data.packed_order import OrderLayout, PackedOrder

# How many entries are written at a time: so few stay in the processor's cache.
_WRITTEN_ENTRIES = 2**16
_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries in columns: `codes` has a line for each word. Without `order` nothing is known of any."""

    codes: Int64Array
    files: np.ndarray
    positions: np.ndarray
    order: PackedOrder | None = None

    def __len__(self) -> int:
        return len(self.files)

    @staticmethod
    def none(words: int) -> Entries:
        numbers = np.zeros(0, dtype=np.int32)
        return Entries(np.zeros((words, 0), dtype=np.int64), numbers, numbers)

    @staticmethod
    def joined(parts: Sequence[Entries]) -> Entries:
        if len(parts) == 1:
            return parts[0]
        return Entries(
            np.concatenate([part.codes for part in parts], axis=1),
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.positions for part in parts]),
            _joined_orders(parts),
        )

    def take(self, chosen: Any) -> Entries:
        """Some entries: a slice or numbers of them."""
        # Of codes of two words, `np.take` is ten times as fast as an index.
        codes = self.codes[:, chosen] if isinstance(chosen, slice) else np.take(self.codes, chosen, axis=1)
        order = self.order and self.order.take(chosen)
        return Entries(codes, self.files[chosen], self.positions[chosen], order)

    def in_order(self) -> Iterator[Entries]:
        """The entries in the order of their codes, in pieces that stay in the processor's cache."""
        first = self.codes[0]
        bits = len(first).bit_length()
        least, most = (int(first.min()), int(first.max())) if bits else (0, 0)
        if (most - least).bit_length() + bits > _WORD_BITS or len(self.codes) > 1:
            yield from map(self.take, _pieces(np.argsort(first)))
            return
        # A number that holds both code and place is sorted in half of the time, and the code is not looked up again.
        packed = (first - least).view(np.uint64) << np.uint64(bits) | np.arange(len(first), dtype=np.uint64)
        packed.sort()
        for piece in _pieces(packed):
            codes = (piece >> np.uint64(bits)).view(np.int64) + least
            chosen = (piece & np.uint64(2**bits - 1)).view(np.int64)
            order = self.order and self.order.take(chosen)
            yield Entries(codes.reshape(1, -1), self.files[chosen], self.positions[chosen], order)

    def in_blocks(self, block: int, layout: OrderLayout) -> np.ndarray:
        """The bytes of each block of so many entries: an array of a line for each."""
        count = len(self) // block
        files, rest = self.files, []
        if layout:
            order = self.order or PackedOrder.unknown(len(self))
            files = np.where(order.is_known, files, ~files)
            rest = [order.laid_out(layout).content.reshape(count, -1)]
        columns = [*self.codes, files, self.positions]
        parts = [np.ascontiguousarray(column).reshape(count, block).view(np.uint8) for column in columns]
        return np.concatenate([*parts, *rest], axis=1)

    @staticmethod
    def of_blocks(parts: Sequence[np.ndarray], words: int, block: int, width: int, layout: OrderLayout) -> Entries:
        """The entries in the bytes of blocks as `in_blocks` gives them. The last block may be shorter.

        The others have `block` entries in `width` bytes each.
        """
        if not parts:
            return Entries.none(words)
        content = parts[0] if len(parts) == 1 else np.concatenate(parts)
        whole = len(content) // width * width
        lines = (content[:whole].reshape(-1, width), content[whole:].reshape(1, -1))
        found = [Entries._of_lines(own, words, own.shape[1] * block // width, layout) for own in lines if own.size]
        return Entries.joined(found)

    @staticmethod
    def _of_lines(content: np.ndarray, words: int, block: int, layout: OrderLayout) -> Entries:
        """The entries in blocks of so many each: an array of a line for each block."""
        start = 0

        def column(kind: type[np.number[Any]]) -> np.ndarray:
            nonlocal start
            stop = start + np.dtype(kind).itemsize * block
            found = np.ascontiguousarray(content[:, start:stop]).view(kind).ravel()
            start = stop
            return found

        codes = np.stack([column(np.int64) for _ in range(words)])
        files, positions = column(np.int32), column(np.int32)
        if not layout:
            return Entries(codes, files, positions)
        is_known = files >= 0
        order = PackedOrder(layout, content[:, start:].reshape(len(files), -1), is_known)
        return Entries(codes, np.where(is_known, files, ~files), positions, order)


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that have one of some codes: the numbers of the code and of the file in the run, the position, the order."""

    places: Int64Array
    files: Int64Array
    positions: Int64Array
    order: PackedOrder | None = None

    def __len__(self) -> int:
        return len(self.files)

    @staticmethod
    def joined(parts: Sequence[Hits]) -> Hits:
        """Those of several runs, or parts of one."""
        none = np.zeros(0, dtype=np.int64)
        return Hits(
            np.concatenate([none, *(part.places for part in parts)]),
            np.concatenate([none, *(part.files for part in parts)]),
            np.concatenate([none, *(part.positions for part in parts)]),
            _joined_orders(parts),
        )


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[start : start + _WRITTEN_ENTRIES] for start in range(0, len(values), _WRITTEN_ENTRIES))


def _joined_orders(parts: Sequence[Entries] | Sequence[Hits]) -> PackedOrder | None:
    if all(part.order is None for part in parts):
        return None
    return PackedOrder.joined([part.order or PackedOrder.unknown(len(part)) for part in parts])

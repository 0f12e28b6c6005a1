from __future__ import annotations

import numpy as np
import pytest

from tidelog.compaction_daemon.rewriting.numbers import RowHashes, narrowest


@pytest.mark.parametrize(
    ("largest", "kind"),
    [(0, np.int16), (2**15 - 1, np.int16), (2**15, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)],
)
def test_the_narrowest_type_that_holds_a_number(largest: int, kind: type[np.generic]) -> None:
    assert narrowest(largest) is kind
    assert np.array([largest, -1], dtype=narrowest(largest)).tolist() == [largest, -1]


@pytest.mark.parametrize("lengths", [[], [0], [1], [2**16], [2**16, 1], [10, 0, 2**18, 3, 2**17]])
def test_hashes_are_joined_in_order(lengths: list[int]) -> None:
    hashes = RowHashes()
    expected: list[int] = []
    for length in lengths:
        numbers = np.arange(len(expected), len(expected) + length, dtype=np.uint64)
        hashes.add(numbers)
        expected += numbers.tolist()
    assert hashes.joined().tolist() == expected
    assert hashes.joined().nbytes == 8 * len(expected)

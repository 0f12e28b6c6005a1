"""Hashes of rows: equal exactly if the rows are, whatever stands beside them."""

from __future__ import annotations

import importlib.util
import itertools
import random
import struct
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.randomness import seed
from tidelog.log.data import row_hashes as module
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.system import System

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])
# Values of each type, all different as rows.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [None, False, True],
    pa.int8(): [None, -128, -1, 0, 1, 127],
    pa.int64(): [None, -(2**63), -1, 0, 1, 2, 2**32, 2**63 - 1],
    pa.float32(): [None, -1.5, -0.0, 0.0, 1.5, float("inf"), float("nan")],
    pa.float64(): [None, -1.5, -0.0, 0.0, 1e-300, 5e-324, float("-inf"), float("nan")],
    pa.decimal128(38, 2): [None, Decimal("-1.00"), Decimal("0.00"), Decimal(2**64) / 100, Decimal("1.00")],
    pa.date32(): pa.array([None, -1, 0, 1, 2_932_897], pa.int32()).cast(pa.date32()),
    pa.timestamp("us", "UTC"): pa.array([None, -1, 0, 1, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC")),
    pa.string(): [None, "", "\0", "\0\0", "a", "a\0", "aa", "ä", "12345678", "123456789", "12345678\0", "x" * 100],
    pa.binary(): [None, b"", b"\0", b"\xff", b"\xff\xff", b"1234567812345678", b"12345678"],
    INNER: [None, {"a": None, "b": None}, {"a": 0, "b": None}, {"a": None, "b": ""}, {"a": 1, "b": "x"}],
    pa.list_(pa.int64()): [None, [], [None], [None, None], [0], [0, 0], [1, 2], [2, 1], [1], list(range(50))],
    pa.list_(pa.list_(pa.string())): [
        None,
        [],
        [[]],
        [[], []],
        [["a", "b"]],
        [["a"], ["b"]],
        [["ab"]],
        [None],
        [[None]],
    ],
    pa.struct([("s", INNER)]): [None, {"s": None}, {"s": {"a": None, "b": None}}, {"s": {"a": None, "b": ""}}],
    pa.map_(pa.string(), pa.int64()): [None, [], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]],
    pa.list_(INNER): [None, [None], [{"a": None, "b": None}], [{"a": 1, "b": "x"}], [{"a": 1, "b": "x"}] * 2],
}


def hashes(*columns: pa.Array) -> list[tuple[int, int]]:
    found = row_hashes(columns, len(columns[0]))
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def array(kind: pa.DataType) -> pa.Array:
    values = VALUES[kind]
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_different_values_have_different_hashes(kind: pa.DataType) -> None:
    found = hashes(array(kind))
    assert len({first for first, _ in found}) == len({second for _, second in found}) == len(found)


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_hash_does_not_depend_on_the_rows_beside_it(kind: pa.DataType) -> None:
    """Not on whether there are nulls, not on how long the others are, and not on where the array begins."""
    values = array(kind)
    together = hashes(values)
    alone = [hashes(pa.concat_arrays([values.slice(row, 1)]))[0] for row in range(len(values))]
    sliced = [hashes(values.slice(row, 1))[0] for row in range(len(values))]
    again = hashes(pa.concat_arrays([values, values]))
    assert together == alone == sliced == again[: len(values)] == again[len(values) :]


def test_a_hash_does_not_depend_on_the_length_of_other_texts() -> None:
    """Texts of about the same length are hashed in another way than a few long ones among many short ones."""
    texts = ["", "a", "abcdefgh", "abcdefghi", "b" * 40]
    assert hashes(pa.array([*texts, "x" * 10_000]))[: len(texts)] == hashes(pa.array(texts * 20))[: len(texts)]


def test_columns_have_an_order_and_borders() -> None:
    pairs = [("ab", ""), ("a", "b"), ("", "ab"), ("b", "a"), (None, "ab"), ("ab", None), (None, None), ("", "")]
    found = hashes(*(pa.array(column, pa.string()) for column in zip(*pairs, strict=True)))
    assert len(set(found)) == len(pairs)
    numbers = list(itertools.product([None, -1, 0, 1, 2**63 - 1], repeat=3))
    found = hashes(*(pa.array(column, pa.int64()) for column in zip(*numbers, strict=True)))
    assert len(set(found)) == len(numbers)


def test_a_number_beside_a_short_text_does_not_take_it_back() -> None:
    """One function for both gave (49, "2") the hash of (50, "1"): an upsert of one replaced the other."""
    pairs = list(itertools.product(range(-128, 128), map(chr, range(32, 127))))
    numbers, texts = (pa.array(column) for column in zip(*pairs, strict=True))
    for columns in ((numbers, texts), (texts, numbers), (numbers, texts.dictionary_encode())):
        found = hashes(*columns)
        assert [len({pair[half] for pair in found}) for half in (0, 1)] == [len(pairs)] * 2


@pytest.mark.parametrize("longer", ["", "x" * 10_000])
def test_the_words_of_a_text_do_not_take_each_other_back(longer: str) -> None:
    """Of texts that differ in the last bytes of two words, one in 100 had the same half, one in four the same hash."""
    texts = [f"{number // 300:08d}{number % 300:08d}" for number in range(90_000)]
    found = hashes(pa.array([*texts, longer]))
    assert [len({pair[half] for pair in found}) for half in (0, 1)] == [len(texts) + 1] * 2
    randomness = random.Random(seed())
    words = [randomness.randbytes(16) for _ in range(100)]
    flipped = [bytes([*word[:7], word[7] ^ 0x80, *word[8:15], word[15] ^ 0x80]) for word in words]
    found = hashes(pa.array([*words, *flipped, longer.encode()]))
    assert [len({pair[half] for pair in found}) for half in (0, 1)] == [201, 201]


_PAIRS = [np.ascontiguousarray(column) for column in np.indices((512, 512)).reshape(2, -1)]
_FOURS = [np.ascontiguousarray(column) for column in np.indices((22, 22, 22, 22)).reshape(4, -1)]
_STRUCTURED: dict[str, Callable[[], list[pa.Array]]] = {
    "integers": lambda: [pa.array(column) for column in _PAIRS],
    "upper bits of integers": lambda: [pa.array(column << 52) for column in _PAIRS],
    "floating numbers": lambda: [pa.array(column.astype(float)) for column in _FOURS],
    "a number and a text": lambda: [pa.array(_PAIRS[0]), pa.array(_PAIRS[1]).cast(pa.string())],
    "texts": lambda: [pa.array(column).cast(pa.string()) for column in _PAIRS],
    "digits": lambda: [pa.array([f"{one:08d}{other:08d}" for one, other in zip(*_PAIRS, strict=True)])],
    "upper bits of bytes": lambda: [pa.array([struct.pack(">4Q", *row) for row in zip(*_FOURS, strict=True)])],
    "lists": lambda: [pa.array(np.stack(_FOURS, axis=1).tolist())],
    "two values in 18 columns": lambda: [pa.array(column) for column in np.indices((2,) * 18).reshape(18, -1)],
}


@pytest.mark.parametrize("name", _STRUCTURED)
def test_the_lower_half_of_each_half_is_as_different_as_chance(name: str) -> None:
    """Of 230,000 random numbers with 32 bits some six are there already, of 262,000 eight. Hashes are not worse."""
    columns = _STRUCTURED[name]()
    for half in row_hashes(columns, len(columns[0])):
        assert len(half) - len(np.unique(half)) == 0
        assert len(half) - len(np.unique(half.astype(np.uint32))) < 50


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("bit", [0, 31, 48, 60, 62, 63])
def test_what_a_bit_of_an_element_changes_is_another_number_for_each_element(half: int, bit: int) -> None:
    """Two elements of a sum would take each other back."""
    words = np.random.default_rng(seed()).integers(0, 2**64, 2**18, dtype=np.uint64)
    changes = module._mixed(words ^ np.uint64(2**bit), half) - module._mixed(words.copy(), half)
    assert len(np.unique(np.minimum(changes, -changes))) == len(words)


def test_texts_that_are_prepared_without_the_seed_differ() -> None:
    """Each half is a sum of words at places, so words that are exchanged must not know what a place is mixed with."""
    steps, places = [[number * int(step) % 2**64 for number in range(3)] for step in module._STEPS], range(3)
    words = [0, 0, 0]
    for place in places:
        one, other = (place + 1) % 3, (place + 2) % 3
        words[other] = words[one] ^ steps[0][place] ^ steps[0][one] ^ steps[1][place] ^ steps[1][other]
    exchanged = [words[(place + 1) % 3] ^ steps[0][place] ^ steps[0][(place + 1) % 3] for place in places]
    assert exchanged == [words[(place + 2) % 3] ^ steps[1][place] ^ steps[1][(place + 2) % 3] for place in places]
    texts = [struct.pack("<3Q", *own) for own in (words, exchanged)]
    assert texts[0] != texts[1]
    assert len(set(hashes(pa.array(texts)))) == 2


def test_all_nans_are_equal_and_the_zeros_are_not() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001]
    nans = pa.array(np.array([struct.unpack("d", struct.pack("Q", bit))[0] for bit in bits]))
    assert len(set(hashes(nans))) == 1
    zeros = pa.array([0.0, -0.0])
    assert len(set(hashes(zeros))) == 2


def test_values_below_a_null_do_not_count() -> None:
    validity = pa.array([False, False, True]).buffers()[1]
    numbers = pa.Array.from_buffers(pa.int64(), 3, [validity, pa.array([1, 2, 3]).buffers()[1]])
    assert hashes(numbers)[0] == hashes(numbers)[1] == hashes(pa.array([None], pa.int64()))[0]
    inner = pa.array(["a", "b", "c"])
    texts = pa.Array.from_buffers(pa.string(), 3, [validity, *inner.buffers()[1:]])
    assert hashes(texts)[0] == hashes(texts)[1] == hashes(pa.array([None], pa.string()))[0]
    structs = pa.StructArray.from_arrays([inner], names=["a"], mask=pa.array([True, True, False]))
    assert hashes(structs)[0] == hashes(structs)[1] != hashes(structs)[2]


def test_many_rows_are_hashed_in_blocks_like_few() -> None:
    rows = 2 * module._BLOCK_ROWS + 3
    column = pa.array([f"{row % 7}" * (row % 3) for row in range(rows)])
    found = hashes(column)
    for start in (0, module._BLOCK_ROWS - 1, rows - 5):
        assert hashes(column.slice(start, 5)) == found[start : start + 5]


def test_rows_without_values() -> None:
    assert len(set(hashes(pa.nulls(3)))) == 1
    assert row_hashes([], 2).shape == (2, 2)
    assert row_hashes([pa.array([], pa.string()), pa.array([], pa.list_(pa.int64()))], 0).shape == (2, 0)


def test_codes_do_not_change_the_hashes() -> None:
    texts = pa.array(["a", None, "", "longer than a word", "a", None], pa.string())
    codes = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 1, 0, 2, None], pa.int32()), pa.array(["longer than a word", "", "a", "unused"])
    )
    assert codes.cast(pa.string()).equals(texts)
    assert hashes(codes) == hashes(texts)
    assert hashes(codes.slice(2)) == hashes(texts.slice(2))
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert hashes(nothing) == hashes(pa.array([None, None], pa.string()))


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_one_half_is_the_first_of_two(kind: pa.DataType) -> None:
    column = array(kind)
    assert row_hashes([column], len(column), halves=1).tolist() == row_hashes([column], len(column)).tolist()[:1]


def test_the_first_threads_of_a_process_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction was refused because two threads had begun with random numbers of their own."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec
    assert spec.loader
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    both = threading.Barrier(2)

    def number(_: System) -> str:
        both.wait(timeout=10)
        return str(uuid.uuid4())

    monkeypatch.setattr(System, "uuid", number)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: fresh.row_hashes([pa.array([1])], 1).tolist(), range(2))
    assert first == second

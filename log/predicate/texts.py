"""Functions of text. Characters are Unicode code points, and texts are compared by the order of their bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate.rows import Bound, Datum, Kernel, as_array, computed, constant_value, per_value
from tidelog.log.predicate.types import BOOLEAN, INT, TEXT, TypeMismatch

# A function that makes a text longer stops here, so that a short predicate cannot fill the memory.
MAX_MADE_CHARACTERS = 2**24


def _by_ascii(ascii_kernel: Kernel, other: Kernel) -> Kernel:
    """A kernel that is fast for ASCII. Arrow maps character by character, so it lacks the upper case of ß."""

    def kernel(values: Datum) -> Datum:
        plain = pc.all(pc.string_is_ascii(as_array(values, 1)), min_count=0).as_py()
        return ascii_kernel(values) if plain else other(values)

    return kernel


upper = _by_ascii(pc.ascii_upper, per_value(TEXT, str.upper))
lower = _by_ascii(pc.ascii_lower, per_value(TEXT, str.lower))


def _trimmed(kernel: Callable[..., Datum], cut: Callable[[str, str], str]) -> Kernel:
    slow = per_value(TEXT, lambda text, characters: cut(text, characters) if characters else text)

    def trim(texts: Datum, characters: Datum | None = None) -> Datum:
        if characters is None:
            return kernel(texts, characters=" ")
        return slow(texts, characters)

    return trim


trim = _trimmed(pc.utf8_trim, str.strip)
ltrim = _trimmed(pc.utf8_ltrim, str.lstrip)
rtrim = _trimmed(pc.utf8_rtrim, str.rstrip)


def length(value: Bound, to_text: Callable[[Bound], Bound]) -> Bound:
    """The characters of a text, or the bytes of a binary value."""
    if pt.is_binary(value.kind):
        return computed(INT, pc.binary_length, [value])
    return computed(INT, pc.utf8_length, [to_text(value)])


def concat(*texts: Datum) -> Datum:
    """All texts, one after the other; null if one is."""
    return pc.binary_join_element_wise(*texts, pa.scalar(""))


# Without a length, Spark takes that of the greatest integer.
def _substring(text: str, position: int, count: int = 2**31 - 1) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + count
    return text[max(start, 0) : max(end, 0)]


_substring_of = per_value(TEXT, _substring)


def substring(texts: Datum, position: Datum, count: Datum | None = None) -> Datum:
    """From a position, counted from 1, or from the end if negative; `count` characters at most."""
    constants = isinstance(position, pa.Scalar) and (count is None or isinstance(count, pa.Scalar))
    if constants and position.is_valid and position.as_py() > 0 and (count is None or count.is_valid):
        start = position.as_py() - 1
        stop = None if count is None else start + max(count.as_py(), 0)
        return pc.utf8_slice_codeunits(texts, start, stop)
    return _substring_of(texts, position) if count is None else _substring_of(texts, position, count)


left = per_value(TEXT, lambda text, count: text[: max(count, 0)])
right = per_value(TEXT, lambda text, count: text[max(len(text) - count, 0) :] if count > 0 else "")


def _replaced(text: str, old: str, new: str = "") -> str:
    if not old:
        return text
    _require_short(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


replace = per_value(TEXT, _replaced)


def _padding(text: str, count: int, pad: str) -> str:
    _require_short(count)
    if count - len(text) < -(2**31):  # Spark counts in integers
        raise ValueError("integer overflow")
    missing = max(count - len(text), 0) if pad else 0
    return (pad * (missing // len(pad) + 1))[:missing] if missing else ""


lpad = per_value(TEXT, lambda text, count, pad=" ": _padding(text, count, pad) + text[: max(count, 0)])
rpad = per_value(TEXT, lambda text, count, pad=" ": text[: max(count, 0)] + _padding(text, count, pad))


def padded(text: Bound, count: Bound) -> Bound:
    """The text with spaces at its end, up to a constant number of characters. A longer one stays as it is."""
    if not (count.constant and pt.is_integer(count.kind)):
        raise TypeMismatch
    return computed(TEXT, partial(pc.utf8_rpad, width=constant_value(count), padding=" "), [text])


def _require_short(characters: int) -> None:
    if characters > MAX_MADE_CHARACTERS:
        raise ValueError(f"the text would have more than {MAX_MADE_CHARACTERS:,} characters")


def _test(kernel: Callable[[Datum, str], Datum], function: Callable[[str, str], bool]) -> Kernel:
    """A test that Arrow makes if the second text is a constant."""
    slow = per_value(BOOLEAN, function)

    def test(texts: Datum, other: Datum) -> Datum:
        constant = isinstance(other, pa.Scalar) and other.is_valid
        return kernel(texts, other.as_py()) if constant else slow(texts, other)

    return test


startswith = _test(pc.starts_with, str.startswith)
endswith = _test(pc.ends_with, str.endswith)
contains = _test(pc.match_substring, str.__contains__)
instr = per_value(INT, lambda text, other: text.find(other) + 1)

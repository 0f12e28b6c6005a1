"""Seeded damage to files: changes to their bytes and to their JSON."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any, TypeAlias

Mutation: TypeAlias = Callable[[random.Random, bytes], bytes]

_NUMBER = re.compile(rb"(?<=[:\[,])-?\d+(?=[,}\]])")
_VALUE = re.compile(rb'(?<=:)("(?:[^"\\]|\\.)*"|-?\d+|true|false|null|\[\]|\{\})')
_ABSURD_NUMBERS = [b"-1", b"0", b"2147483648", b"9223372036854775808", b"-9223372036854775809", b"1e400", b"1" * 5000]
_OTHER_VALUES = [
    b"null",
    b"{}",
    b"[]",
    b'""',
    b"true",
    b"1.5",
    b'"\\ud800"',
    b'"\\u0000"',
    b'"' + b"x" * 3000 + b'"',
    b'"../../x"',
    b'"file:///"',
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 100_000,
]
_LENGTHS = [b"\xff" * 4, b"\x7f" * 4, b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\xfe\xff\xff\xff\x0f"]


def _span(rng: random.Random, content: bytes, longest: int = 200) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(1, longest))


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if damaged:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def overwrite(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content, rng.choice([1, 4, 64]))
    return content[:start] + rng.randbytes(end - start) + content[end:]


def zero(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content)
    return content[:start] + bytes(end - start) + content[end:]


def truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def behead(rng: random.Random, content: bytes) -> bytes:
    return content[rng.randrange(len(content) + 1) :]


def drop_slice(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content)
    return content[:start] + content[end:]


def double_slice(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content)
    return content[:end] + content[start:]


def swap_slices(rng: random.Random, content: bytes) -> bytes:
    first, second, third = sorted(rng.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def append(rng: random.Random, content: bytes) -> bytes:
    return content + rng.choice([rng.randbytes(rng.randint(1, 50)), b"\n\n", content])


def empty(rng: random.Random, content: bytes) -> bytes:
    del rng, content
    return b""


def absurd_length(rng: random.Random, content: bytes) -> bytes:
    """Write an impossible length somewhere in a binary file, or as the length of a parquet footer."""
    value = rng.choice(_LENGTHS)
    start = len(content) - 8 if rng.random() < 0.2 else rng.randrange(len(content) + 1)
    return content[:start] + value + content[start + len(value) :]


def shuffle_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def drop_line(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def double_line(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"".join(lines)


def absurd_number(rng: random.Random, content: bytes) -> bytes:
    return _replace(rng, content, _NUMBER, rng.choice(_ABSURD_NUMBERS))


def other_value(rng: random.Random, content: bytes) -> bytes:
    return _replace(rng, content, _VALUE, rng.choice(_OTHER_VALUES))


def bad_text(rng: random.Random, content: bytes) -> bytes:
    """Insert bytes that are not valid UTF-8."""
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8"]) + content[start:]


def other_key(rng: random.Random, content: bytes) -> bytes:
    """Remove or rename a key in one line of JSON."""
    lines = content.splitlines()
    if not lines:
        return content
    number = rng.randrange(len(lines))
    try:
        action: Any = json.loads(lines[number])
        values = action[rng.choice(list(action))]
        key = rng.choice(list(values))
        value = values.pop(key)
        if rng.random() < 0.5:
            values[key + "x"] = value
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return content
    lines[number] = json.dumps(action).encode()
    return b"\n".join(lines)


def _replace(rng: random.Random, content: bytes, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    chosen = rng.choice(found)
    return content[: chosen.start()] + new + content[chosen.end() :]


BYTES: list[Mutation] = [
    flip_bits,
    flip_bits,
    overwrite,
    zero,
    truncate,
    behead,
    drop_slice,
    double_slice,
    swap_slices,
    append,
    empty,
]
BINARY: list[Mutation] = [*BYTES, absurd_length, absurd_length]
JSON: list[Mutation] = [
    *BYTES,
    shuffle_lines,
    drop_line,
    double_line,
    absurd_number,
    other_value,
    other_value,
    bad_text,
    other_key,
    other_key,
]

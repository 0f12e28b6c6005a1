"""A micro-batch: its query, run, number and source offsets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_MASK_63_BITS = 2**63 - 1
# In the second format of the offset log, a source's line begins with its name.
_NAMED_SOURCE = re.compile(r"(\w+):(?=\{)")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch. `query_id` lasts as long as the checkpoint, `run_id` until the query stops.

    `fingerprint` is a 63-bit hash of the batch's source offsets. The same batch number with another fingerprint is
    another batch, from a checkpoint that was restored or rewritten. `query_name` is what the user called the query.
    """

    query_id: str
    run_id: str
    batch_id: int
    fingerprint: int
    query_name: str | None = None


def fingerprint(offsets: str, file_source_batch: Callable[[str, int], str]) -> int:
    """A 63-bit hash of the source lines of an entry in the checkpoint's offset log.

    The entry's first line is a format version, the second is metadata that differs between attempts; then comes one
    line for each source. The offset of a file source is just a number: its files are listed in that source's log in the
    checkpoint, which `file_source_batch` reads, given the source's name or else its index, and the offset.

    Raises ValueError if no source is listed, as when the entry was cut short.
    """
    sources = offsets.splitlines()[2:]
    if not any(sources):
        raise ValueError("it lists no sources")
    for index, line in enumerate(sources):
        named = _NAMED_SOURCE.match(line)
        log_offset = _file_log_offset(line[named.end() :] if named else line)
        if log_offset is not None:
            sources[index] += file_source_batch(named[1] if named else str(index), log_offset)
    return digest_63("\n".join(sources))


def _file_log_offset(line: str) -> int | None:
    try:
        offset = json.loads(line)
    except ValueError:
        return None
    found = offset.get("logOffset") if isinstance(offset, dict) else None
    return found if isinstance(found, int) else None


def digest_63(text: str) -> int:
    """A stable non-negative number below 2**63, as a transaction's version must be."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK_63_BITS

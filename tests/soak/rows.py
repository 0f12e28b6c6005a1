"""The rows: what the streams and the updater write, and so the rows that must be in the table in the end.

All statements of the updater are declarative: run once or ten times, in whatever order with the streams, they lead to
the same rows. So the final rows follow from three numbers: how many rows each stream wrote, the updater's last round,
and the first partition that it did not drop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("id", pa.int64()),
        ("part", pa.int32()),
        ("state", pa.string()),
        ("touches", pa.int32()),
        ("payload", pa.string()),
    ]
)
# The updater's own rows, in a partition of their own that is never quiet.
KEYED, KEYED_PART = "keyed", -1
NEW, SEVENTH = "new", "seventh"
KEYED_ROWS = 300
_KEYS_IN_A_ROUND = 8
_DELETED_SHARE = 0.2

# Each row is updated at most once: a second time would show in `touches`.
UPDATE_WHERE = f"id % 7 = 0 AND state = '{NEW}'"
UPDATE_SET = {"state": f"'{SEVENTH}'", "touches": "touches + 1"}
DELETE_WHERE = f"id % 10 = 3 AND stream <> '{KEYED}'"
KEYS = ("part", "stream", "id")
DELETES_KEY = "op = 'd'"


class Row(NamedTuple):
    """A row of the table."""

    stream: str
    id: int
    part: int
    state: str
    touches: int
    payload: str


def stream_columns(stream: str, part_rows: int) -> list[str]:
    """The columns of a stream's rows, as SQL over the `value` of Spark's `rate-micro-batch` source."""
    return [
        f"'{stream}' AS stream",
        "value AS id",
        f"CAST(value DIV {part_rows} AS INT) AS part",
        f"'{NEW}' AS state",
        "0 AS touches",
        f"md5(concat('{stream}:', value)) AS payload",
    ]


def payload(stream: str, number: int) -> str:
    """The same payload as in `stream_columns`."""
    return hashlib.md5(f"{stream}:{number}".encode(), usedforsecurity=False).hexdigest()


def round_rows(seed: int, number: int) -> list[dict[str, Any]]:
    """The data of the updater's upsert in a round; `op` is not a column of the table."""
    random = Random(f"{seed}:{number}")
    keys = random.sample(range(KEYED_ROWS), _KEYS_IN_A_ROUND)
    return [{**_keyed(key, number)._asdict(), "op": "d" if random.random() < _DELETED_SHARE else "u"} for key in keys]


def _keyed(key: int, number: int) -> Row:
    return Row(KEYED, key, KEYED_PART, KEYED, number, payload(KEYED, number))


@dataclass(frozen=True, slots=True)
class Written:
    """What decides the final rows.

    Attributes:
        seed: What draws the keys of the rounds.
        rounds: How many rounds of upserts the updater made, from 1.
        dropped_below: Partitions of the streams below this one were dropped.
        streamed: How many rows each stream wrote.
        part_rows: How many rows of a stream are in a partition.
    """

    seed: int
    rounds: int
    dropped_below: int
    streamed: Mapping[str, int]
    part_rows: int

    def rows(self) -> Iterator[Row]:
        """The rows that must be in the table, each once."""
        for stream, count in self.streamed.items():
            for number in range(self.dropped_below * self.part_rows, count):
                if number % 10 == 3:
                    continue
                is_seventh = number % 7 == 0
                state, touches = (SEVENTH, 1) if is_seventh else (NEW, 0)
                yield Row(stream, number, number // self.part_rows, state, touches, payload(stream, number))
        newest = {
            row["id"]: (row["op"], number)
            for number in range(1, self.rounds + 1)
            for row in round_rows(self.seed, number)
        }
        yield from (_keyed(key, number) for key, (op, number) in newest.items() if op == "u")

"""The ledger: which batches the sink commits, skips and refuses, as a truth table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.errors import CheckpointResetError, ConfigurationError, FencedError, TidelogError
from tidelog.log.format.actions import SetTransaction
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch, digest_63, fingerprint

QUERY, OTHER_QUERY = "query-a", "query-b"
THEIRS = "another engine's stream"


def ledger(batch_id: int = 5, *, query: str = QUERY, offsets: int = 77, name: str = "default") -> Ledger:
    return Ledger(name, MicroBatch(query, "run", batch_id, offsets))


def holding(*batches: tuple[str, int, int], name: str = "default") -> dict[str, int]:
    """The transactions of a table after commits of these batches (query, number, fingerprint), in this order."""
    table: dict[str, int] = {}
    for query, batch_id, offsets in batches:
        table |= values(ledger(batch_id, query=query, offsets=offsets, name=name).entries(table, 0))
    return table


def claimed_by(query: str) -> dict[str, int]:
    """The transactions of a table after an empty first batch of the query."""
    return values(ledger(0, query=query).claim({}, 0))


def values(entries: Sequence[SetTransaction]) -> dict[str, int]:
    return {entry.app_id: entry.version for entry in entries}


@pytest.mark.parametrize(
    ("table", "batch", "status"),
    [
        pytest.param({}, ledger(0), BatchStatus.COMMIT, id="new table, first batch"),
        pytest.param({}, ledger(7), BatchStatus.UNCLAIMED, id="new table, query that wrote elsewhere before"),
        pytest.param({}, ledger(1), BatchStatus.UNCLAIMED, id="new table, second batch"),
        pytest.param({"other": 6}, ledger(7), BatchStatus.UNCLAIMED, id="table of other applications"),
        pytest.param(claimed_by(QUERY), ledger(0), BatchStatus.COMMIT, id="claimed, first batch again"),
        pytest.param(claimed_by(QUERY), ledger(7), BatchStatus.COMMIT, id="claimed, first rows"),
        pytest.param(claimed_by(OTHER_QUERY), ledger(7), BatchStatus.OTHER_QUERY, id="claimed by another query"),
        pytest.param({"tidelog/query-a/default": 6}, ledger(7), BatchStatus.COMMIT, id="written, but without an owner"),
        pytest.param(holding((QUERY, 4, 1)), ledger(5), BatchStatus.COMMIT, id="next batch"),
        pytest.param(holding((QUERY, 2, 1)), ledger(5), BatchStatus.COMMIT, id="empty batches between"),
        pytest.param(holding((QUERY, 5, 77)), ledger(5), BatchStatus.SKIP, id="replay"),
        pytest.param(holding((QUERY, 5, 78)), ledger(5), BatchStatus.OTHER_OFFSETS, id="same number, other offsets"),
        pytest.param(holding((QUERY, 6, 77)), ledger(5), BatchStatus.OTHER_OFFSETS, id="older number, same offsets"),
        pytest.param(holding((QUERY, 6, 78)), ledger(5), BatchStatus.OTHER_OFFSETS, id="older number, other offsets"),
        pytest.param(holding((OTHER_QUERY, 5, 77)), ledger(5), BatchStatus.OTHER_QUERY, id="checkpoint deleted"),
        pytest.param(holding((OTHER_QUERY, 5, 77)), ledger(0), BatchStatus.OTHER_QUERY, id="second stream, same name"),
        pytest.param(holding((OTHER_QUERY, 5, 77), name="b"), ledger(0), BatchStatus.COMMIT, id="another name"),
        pytest.param(holding((QUERY, 0, 77), name="b"), ledger(0), BatchStatus.COMMIT, id="same query, another name"),
        pytest.param(holding((QUERY, 5, 77), name="b"), ledger(6), BatchStatus.UNCLAIMED, id="the name was changed"),
        pytest.param(holding((OTHER_QUERY, 5, 77), name="b"), ledger(6), BatchStatus.UNCLAIMED, id="a name too late"),
        pytest.param(holding((QUERY, 4, 1), (OTHER_QUERY, 0, 2)), ledger(5), BatchStatus.REPLACED, id="taken over"),
        pytest.param(
            holding((QUERY, 5, 77), (OTHER_QUERY, 0, 2)),
            ledger(5),
            BatchStatus.REPLACED,
            id="taken over, then replayed",
        ),
    ],
)
def test_the_status_of_a_batch(table: Mapping[str, int], batch: Ledger, status: BatchStatus) -> None:
    assert batch.judge(table) is status


@pytest.mark.parametrize(
    ("status", "table", "kind", "message"),
    [
        (
            BatchStatus.REPLACED,
            {},
            FencedError,
            "has taken over sink name 'default' of /t; stop this query",
        ),
        (BatchStatus.UNCLAIMED, None, CheckpointResetError, "query query-a is at batch 5, but there is no table at /t"),
        (BatchStatus.UNCLAIMED, {}, CheckpointResetError, "but has never written to /t under the sink name 'default'"),
        (BatchStatus.NOTHING_TO_ADOPT, None, ConfigurationError, f'so there is no stream "{THEIRS}" to continue'),
        (
            BatchStatus.NOTHING_TO_ADOPT,
            {"b": 1, "a": 1, "tidelog/x": 1},
            ConfigurationError,
            "the table's log: a, b",
        ),
        (
            BatchStatus.BEHIND_ADOPTED,
            {THEIRS: 6},
            CheckpointResetError,
            "wrote batch 6 to /t, which is later than",
        ),
        (
            BatchStatus.OTHER_QUERY,
            {},
            CheckpointResetError,
            "belongs to another query, not to query-a: its",
        ),
        (BatchStatus.OTHER_OFFSETS, {}, CheckpointResetError, "already committed to /t with other source offsets"),
    ],
)
def test_why_a_batch_is_refused(
    status: BatchStatus, table: Mapping[str, int] | None, kind: type[TidelogError], message: str
) -> None:
    error = replace(moving(), path="/t").refusal(status, table)
    assert type(error) is kind
    assert message in str(error)
    assert error.advice


@pytest.mark.parametrize("status", [BatchStatus.COMMIT, BatchStatus.SKIP])
def test_a_batch_that_is_new_or_known_is_not_refused(status: BatchStatus) -> None:
    assert ledger().refusal(status, {}) is None


def moving(batch_id: int = 5, **how: Any) -> Ledger:
    return replace(ledger(batch_id, **how), adopt_txn=THEIRS)


@pytest.mark.parametrize(
    ("table", "batch", "status"),
    [
        pytest.param({THEIRS: 4}, moving(), BatchStatus.COMMIT, id="the next batch"),
        pytest.param({THEIRS: 3} | claimed_by(QUERY), moving(), BatchStatus.COMMIT, id="an empty one has claimed"),
        pytest.param({THEIRS: 2}, moving(), BatchStatus.COMMIT, id="empty batches between"),
        pytest.param({THEIRS: 5}, moving(), BatchStatus.SKIP, id="its last batch, replayed"),
        pytest.param({THEIRS: 6}, moving(), BatchStatus.BEHIND_ADOPTED, id="a new checkpoint, or an older one"),
        pytest.param({}, moving(), BatchStatus.NOTHING_TO_ADOPT, id="an id that never wrote"),
        pytest.param(
            holding((QUERY, 5, 77)) | {THEIRS: 5}, moving(), BatchStatus.SKIP, id="committed by this sink, replayed"
        ),
        pytest.param(
            holding((QUERY, 5, 78)) | {THEIRS: 5},
            moving(),
            BatchStatus.OTHER_OFFSETS,
            id="committed by this sink, other offsets",
        ),
        pytest.param(
            holding((QUERY, 4, 1)) | {THEIRS: 4}, moving(), BatchStatus.COMMIT, id="the batch after one of this sink"
        ),
        pytest.param(holding((QUERY, 4, 1)), moving(), BatchStatus.COMMIT, id="only this sink's entry exists"),
        pytest.param(
            holding((QUERY, 3, 1)) | {THEIRS: 5}, moving(), BatchStatus.SKIP, id="the stream moved back for two batches"
        ),
        pytest.param(holding((OTHER_QUERY, 5, 77)) | {THEIRS: 5}, moving(), BatchStatus.OTHER_QUERY, id="name taken"),
    ],
)
def test_the_status_of_a_batch_that_continues_an_adopted_stream(
    table: Mapping[str, int], batch: Ledger, status: BatchStatus
) -> None:
    assert batch.judge(table) is status


def test_the_entry_of_an_adopted_stream_is_updated_so_that_it_can_move_back() -> None:
    assert values(moving(6).entries({THEIRS: 5}, 0))[THEIRS] == 6


def test_a_batch_writes_its_number_its_fingerprint_and_once_the_owner() -> None:
    first = ledger(0).entries({}, now_ms=123)
    assert values(first) == {
        "tidelog/query-a/default": 0,
        "tidelog/query-a/default/offsets": 77,
        "tidelog/sink/default": digest_63(QUERY),
    }
    assert {entry.last_updated for entry in first} == {123}
    second = ledger(1).entries(values(first), now_ms=124)
    assert values(second) == {"tidelog/query-a/default": 1, "tidelog/query-a/default/offsets": 77}


def test_a_claim_is_the_owner_alone_and_is_made_once() -> None:
    claim = ledger(3).claim(holding((OTHER_QUERY, 5, 77)), now_ms=123)
    assert [(entry.app_id, entry.version, entry.last_updated) for entry in claim] == [
        ("tidelog/sink/default", digest_63(QUERY), 123)
    ]
    assert not ledger(3).is_claimed(claimed_by(OTHER_QUERY))
    assert ledger(3).is_claimed(values(claim))
    assert ledger(4).claim(values(claim), now_ms=124) == []


@pytest.mark.parametrize(
    ("table", "batch", "missing"),
    [
        pytest.param(holding((QUERY, 4, 1)), ledger(5), [], id="none"),
        pytest.param(holding((QUERY, 2, 1)), ledger(5), [3, 4], id="two"),
        pytest.param(claimed_by(QUERY), ledger(2), [0, 1], id="only claimed before"),
        pytest.param({}, ledger(0), [], id="first batch"),
        pytest.param({THEIRS: 3}, replace(ledger(5), adopt_txn=THEIRS), [4], id="since an adopted stream"),
        pytest.param(
            holding((QUERY, 2, 1)) | {THEIRS: 3}, replace(ledger(5), adopt_txn=THEIRS), [4], id="moved back and again"
        ),
    ],
)
def test_the_batches_that_left_nothing(table: Mapping[str, int], batch: Ledger, missing: list[int]) -> None:
    assert list(batch.missing_batches(table)) == missing


def test_adopting_gives_the_name_to_the_new_query() -> None:
    table = holding((OTHER_QUERY, 3, 1), (QUERY, 0, 2))
    assert table["tidelog/sink/default"] == digest_63(QUERY)
    assert ledger(1, query=QUERY).judge(table) is BatchStatus.COMMIT
    assert ledger(4, query=OTHER_QUERY).judge(table) is BatchStatus.REPLACED


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_replays_never_commit_a_batch_twice(steps: list[tuple[int, bool]]) -> None:
    """Spark goes on (by 1 + an empty batch) or replays its newest batch, any number of times."""
    table: dict[str, int] = {}
    number = -1
    committed: list[int] = []
    for empty, replay in steps:
        number += 0 if replay and committed else 1 + empty
        batch = ledger(number, offsets=number * 1000)
        if number and not table:
            table |= claimed_by(QUERY)  # batch 0 was empty
        if batch.judge(table) is BatchStatus.COMMIT:
            committed.append(number)
            table |= values(batch.entries(table, 0))
        else:
            assert batch.judge(table) is BatchStatus.SKIP
            assert number == committed[-1]
    assert len(committed) == len(set(committed))


def test_the_fingerprint_covers_the_sources_but_not_the_metadata_line() -> None:
    entry = 'v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n{"version":9}'
    later = 'v1\n{"batchTimestampMs":2}\n{"logOffset":3}\n{"version":9}'
    moved = 'v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n{"version":10}'
    swapped = 'v1\n{"batchTimestampMs":1}\n{"version":9}\n{"logOffset":3}'
    assert fingerprint(entry, no_files) == fingerprint(later, no_files)
    assert len({fingerprint(text, no_files) for text in (entry, moved, swapped)}) == 3


def test_the_fingerprint_of_a_file_source_covers_its_files() -> None:
    entry = 'v1\n{"batchTimestampMs":1}\n{"version":9}\n{"logOffset":3}'
    second_format = 'v2\n{"batchTimestampMs":1}\nother:{"version":9}\narrivals:{"logOffset":3}'
    asked: list[tuple[str, int]] = []

    def files(source: str, offset: int) -> str:
        asked.append((source, offset))
        return "a.parquet"

    for text in (entry, second_format):
        assert fingerprint(text, files) != fingerprint(text, lambda *_: "b.parquet")
    assert asked == [("1", 3), ("arrivals", 3)]


@pytest.mark.parametrize("text", ["", "v1", 'v1\n{"batchTimestampMs":1}', 'v1\n{"batchTimestampMs":1}\n\n'])
def test_an_entry_that_was_cut_short_has_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="lists no sources"):
        fingerprint(text, no_files)


def no_files(source: str, offset: int) -> str:
    return f"{source}:{offset}"[:0]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_digest_is_a_valid_transaction_version(text: str) -> None:
    assert 0 <= digest_63(text) < 2**63
    assert digest_63(text) == digest_63(text)


def test_a_digest_never_changes() -> None:
    """It is stored in tables: with another value after an upgrade, every running stream would be refused."""
    assert digest_63("tidelog") == 224873568676647552

"""JSON nested too deeply to be decoded counts as malformed, wherever the log or tidelog's own files have JSON."""

from __future__ import annotations

import msgspec
import pytest

from tests.log.support import NUMBERS, live_files, memory_store, new_table, numbers, put_foreign, read_numbers
from tidelog.compaction_daemon import Plan
from tidelog.compaction_daemon.rewriting.refused_rewrites import REFUSED_FOLDER, refusals
from tidelog.compaction_daemon.upkeep.table_upkeep import RECORD_PATH, UpkeepRecord, read_record
from tidelog.log import Table
from tidelog.log.commit.conflict_ledger import LEDGER_FOLDER, read_ledger
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.format import clustering, filenames, row_tracking
from tidelog.log.format.actions import DomainMetadata

# Under an unknown key, which decoders skip.
NESTED = '{"unknown":' + '{"a":' * 100_000 + "1" + "}" * 100_001


@pytest.fixture
def table() -> Table:
    made = new_table(memory_store())
    made.insert(numbers([1, 2, 3]))
    return made


def test_a_version_checksum(table: Table) -> None:
    table.store.replace(filenames.checksum_path(1), NESTED.encode())
    assert read_numbers(table.refresh()) == [1, 2, 3]
    table.checkpoint()
    assert read_numbers(Table.open(table.path)) == [1, 2, 3]


def test_statistics(table: Table) -> None:
    (add,) = live_files(table)
    put_foreign(table, msgspec.structs.replace(add, stats=NESTED, data_change=False))
    opened = table.refresh()
    assert read_numbers(opened) == [1, 2, 3]
    assert opened.scan(where="n = 2").to_arrow()["n"].to_pylist() == [2]
    opened.delete("n = 2")
    assert read_numbers(Table.open(table.path)) == [1, 3]


def test_domains() -> None:
    domain = DomainMetadata(domain=clustering.CLUSTERING_DOMAIN, configuration=NESTED, removed=False)
    assert clustering.clustering_columns({domain.domain: domain}, NUMBERS) == ()
    domain = msgspec.structs.replace(domain, domain=row_tracking.DOMAIN)
    with pytest.raises(CorruptLogError):
        row_tracking.high_water_mark({domain.domain: domain}, "table")


def test_tidelogs_own_files(table: Table) -> None:
    store = table.store
    store.put_if_absent(f"{LEDGER_FOLDER}/1700000000000-{'0' * 36}.json", NESTED.encode())
    assert list(read_ledger(store)) == []
    store.put_if_absent(f"{REFUSED_FOLDER}/1.json", NESTED.encode())
    assert refusals(store, table.id) == ()
    store.put_if_absent(RECORD_PATH, NESTED.encode())
    assert read_record(store, table.id) == UpkeepRecord()


def test_a_plan() -> None:
    with pytest.raises(ConfigurationError, match="the text is not a plan"):
        Plan.from_json(NESTED)

"""What the report of a table says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.hostile import make_table
from tests.compaction_daemon.observing.tables import busy_table, refused
from tests.compaction_daemon.support import memory_table, put
from tidelog.compaction_daemon import TableReport, report_of
from tidelog.compaction_daemon.leases.lease import Lease
from tidelog.compaction_daemon.observing import plans, table_report
from tidelog.compaction_daemon.observing import refused as refused_module
from tidelog.compaction_daemon.observing.brief import brief_of
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS
from tidelog.compaction_daemon.upkeep.retentions import retentions
from tidelog.log import Table
from tidelog.log.errors import StoreUnavailableError

COMMIT_0 = "_delta_log/00000000000000000000.json"


@pytest.fixture(scope="module")
def busy() -> Table:
    return busy_table()


@pytest.fixture(scope="module")
def report(busy: Table) -> TableReport:
    return report_of(busy)


def test_it_says_what_the_table_is(busy: Table, report: TableReport) -> None:
    assert (report.path, report.table_id, report.version) == (busy.path, busy.id, busy.version)
    assert report.time_version == busy.time_version
    assert report.earliest_version == 0
    assert report.partition_by == ("day",)
    assert [(column.name, column.type) for column in report.columns][:2] == [("id", "bigint"), ("day", "string")]
    assert report.debt == busy.debt()
    assert report.size.rows == busy.scan().count()
    assert report.problems == ()


def test_the_newest_version_comes_first(busy: Table, report: TableReport) -> None:
    assert report.versions[0].version == busy.version
    assert report.versions[0].size == report.size
    assert len(report.versions) == busy.version + 1


def test_it_has_the_losses_of_the_ledger(report: TableReport) -> None:
    (loss,) = report.losses
    assert (loss.earlier, loss.later, loss.outcome) == ("UPDATE_DELETE", "UPDATE_DELETE", "conflict")
    assert loss.wasted_bytes > 0


def test_it_has_the_consumers_with_their_lag(report: TableReport) -> None:
    billing, search = report.consumers
    assert (billing.name, search.name) == ("billing", "search")
    assert billing.lag is not None
    assert search.lag is not None
    assert billing.lag.versions > search.lag.versions == 1


def test_it_has_what_a_daemon_would_do_and_all_that_could_be_done_with_reasons(report: TableReport) -> None:
    assert [plan.level for plan in report.plans] == ["auto", "major"]
    for plan in report.plans:
        assert sum(reason.files for reason in plan.reasons) == report.size.files == len(plan.first_files)


def test_a_large_plan_has_no_reasons_and_few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    for part in "abc":
        put(table, 1, part=part)
        put(table, 2, part=part)
    monkeypatch.setattr(plans, "_MAX_EXPLAINED_FILES", 5)
    monkeypatch.setattr(plans, "_MAX_GROUPS", 2)
    _, major = report_of(table.refresh()).plans
    assert (major.groups, major.files, len(major.first_groups)) == (3, 6, 2)
    assert (major.reasons, major.first_files) == ((), ())


def test_a_plan_says_what_it_should_cost(report: TableReport) -> None:
    major = report.plans[1]
    assert major.predicted.bytes_to_read == major.bytes == sum(group.bytes for group in major.first_groups) > 0
    assert major.predicted.seconds > 0
    assert all(group.reason for group in major.first_groups)
    assert all(scope.reason for scope in major.first_scopes)


def test_it_says_who_has_the_lease() -> None:
    table = memory_table()
    assert report_of(table).lease is None
    lease = Lease.take(table, owner="host-a:1:x")
    assert isinstance(lease, Lease)
    found = report_of(table).lease
    assert found is not None
    assert (found.owner, found.epoch, found.state) == ("host-a:1:x", lease.epoch, "held")


def test_it_has_the_newest_refused_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    refused(table)
    (refusal,) = report_of(table).refusals
    assert refusal.differences == ("the output has 3 rows instead of 4",)
    assert (refusal.read.rows, len(refusal.inputs), len(refusal.outputs)) == (4, 2, 1)
    refused(table)
    monkeypatch.setattr(refused_module, "_MAX_REFUSALS", 1)
    monkeypatch.setattr(refused_module, "_MAX_FILES", 1)
    (refusal,) = report_of(table).refusals
    assert (refusal.num_inputs, len(refusal.inputs), len(refusal.outputs)) == (2, 1, 1)


def test_files_are_counted_by_size(report: TableReport) -> None:
    assert sum(bar.files for bar in report.file_sizes) == report.size.files
    assert sum(bar.bytes for bar in report.file_sizes) == report.size.bytes
    assert report.file_sizes[0].below == 2**14
    assert report.file_sizes[-1].below is None


def test_properties_are_those_in_force() -> None:
    table = memory_table(**{"delta.logRetentionDuration": "interval 3 days", "mine": "x"})
    report = report_of(table)
    found = {setting.name: setting for setting in report.properties}
    assert found["delta.logRetentionDuration"].value == "interval 3 days"
    assert not found["delta.logRetentionDuration"].is_default
    assert found["delta.deletedFileRetentionDuration"].value == "7 days"
    assert found["delta.deletedFileRetentionDuration"].is_default
    assert "mine" not in found
    assert report.retentions == retentions(table.properties)
    assert report.clean_up
    assert [each.chore for each in report.clean_ups] == list(CLEAN_UPS)


def test_an_empty_table_has_a_report() -> None:
    found = report_of(memory_table())
    assert (found.size.files, found.size.rows, found.losses, found.consumers) == (0, 0, (), ())
    assert [plan.groups for plan in found.plans] == [0, 0]


def test_a_part_that_fails_is_named_and_the_rest_is_there(busy: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailableError("no answer from s3://key:hunter2@bucket", advice="wait")

    monkeypatch.setattr(table_report, "consumers", fail)
    found = report_of(busy)
    assert [problem.part for problem in found.problems] == ["consumers"]
    assert "hunter2" not in found.problems[0].error
    assert found.consumers == ()
    assert found.versions


def test_a_folder_in_the_place_of_a_file_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]))
    (tmp_path / "t" / "_tidelog" / "upkeep.json").mkdir(parents=True)
    for problems in (report_of(table).problems, brief_of(table).problems):
        assert [problem.part for problem in problems] == ["clean-ups"]
        assert "upkeep.json" in problems[0].error


def test_it_is_json(report: TableReport) -> None:
    found = report.to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["versions"][0]["operation_class"] == "INSERT"
    assert found["losses"][0]["at"].endswith("Z")


def test_no_text_of_a_hostile_table_gets_out_as_it_is(tmp_path: Path) -> None:
    found = report_of(Table.open(str(make_table(tmp_path)))).to_dict()
    text = json.dumps(found, ensure_ascii=False)
    assert text.isprintable()
    assert "hunter2" not in text
    assert len(found["consumers"]) == len(found["losses"]) == 1


def test_a_table_whose_cluster_columns_are_gone_has_no_major_plan_and_says_why() -> None:
    table = memory_table()
    (metadata,) = (line for line in map(json.loads, table.store.read(COMMIT_0).splitlines()) if "metaData" in line)
    metadata["metaData"]["configuration"]["tidelog.clusterBy"] = "gone"  # as another engine can leave it
    info = {"commitInfo": {"inCommitTimestamp": table.head.timestamp_ms + 1, "operation": "DROP COLUMN"}}
    table.store.put_if_absent(
        COMMIT_0.replace("0.json", "1.json"), f"{json.dumps(info)}\n{json.dumps(metadata)}".encode()
    )
    found = report_of(table.refresh())
    (auto,) = found.plans
    assert auto.level == "auto"
    assert "gone" in auto.notes[0]
    assert [problem.part for problem in found.problems] == ["major plan"]

"""What the report of a table says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.hostile import make_table
from tests.compaction_daemon.observing.tables import busy_table, refused
from tests.compaction_daemon.support import memory_table, put
from tests.compaction_daemon.upkeep.support import DAY, HOUR, Both, through
from tests.compaction_daemon.upkeep.support import busy as aged
from tests.log.support import memory_store
from tidelog.compaction_daemon import Plan, PlannedGroup, ScopeDebt, TableReport, Upkeep, report_of
from tidelog.compaction_daemon.leases.lease import Lease
from tidelog.compaction_daemon.observing import table_report
from tidelog.compaction_daemon.observing.table_report import CleanUpTime, TableBrief, brief_of, clean_up_times
from tidelog.compaction_daemon.observing.version_walk import VersionEntry
from tidelog.compaction_daemon.planning.history import Cost
from tidelog.compaction_daemon.rewriting.refused_rewrites import Refusal
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS
from tidelog.compaction_daemon.upkeep.retentions import retentions
from tidelog.log import CommitRecord, Debt, Table
from tidelog.log.commit.conflict_ledger import LostRace
from tidelog.log.consumers.consumer_status import ConsumerStatus
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
    assert report.versions[0].commit.version == busy.version
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
    for plan, shown in zip(report.plans, report.to_dict()["plans"], strict=True):
        assert len(plan.reasons) == report.size.files == len(shown["first_files"])
        assert sum(reason["files"] for reason in shown["reasons"]) == report.size.files
        chosen = [file["chosen"] for file in shown["first_files"]]
        assert chosen == sorted(chosen, reverse=True), "those to rewrite come first"


def test_a_large_plan_has_no_reasons_and_few_groups_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    for part in "abc":
        put(table, 1, part=part)
        put(table, 2, part=part)
    monkeypatch.setattr(table_report, "_MAX_EXPLAINED_FILES", 5)
    monkeypatch.setattr(table_report, "_MAX_GROUPS", 2)
    report = report_of(table.refresh())
    assert len(report.plans[1].groups) == 3
    major = report.to_dict()["plans"][1]
    assert (major["groups"], major["files"], len(major["first_groups"])) == (3, 6, 2)
    assert (major["reasons"], major["first_files"]) == ([], [])


def test_a_plan_says_what_it_should_cost(report: TableReport) -> None:
    major, shown = report.plans[1], report.to_dict()["plans"][1]
    assert major.predicted.bytes_to_read == shown["bytes"] == sum(group["bytes"] for group in shown["first_groups"]) > 0
    assert major.predicted.seconds == shown["predicted"]["seconds"] > 0
    assert all(group["reason"] for group in shown["first_groups"])
    assert all(scope["reason"] for scope in shown["first_scopes"])


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
    monkeypatch.setattr(table_report, "_MAX_REFUSALS", 1)
    monkeypatch.setattr(table_report, "_MAX_REFUSED_FILES", 1)
    (shown,) = report_of(table).to_dict()["refusals"]
    assert (shown["num_inputs"], len(shown["inputs"]), len(shown["outputs"])) == (2, 1, 1)
    assert shown["at"] == "2026-09-21T14:13:20Z"


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
    assert [plan.groups for plan in found.plans] == [(), ()]


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


def test_its_json_has_the_values_that_it_nests(report: TableReport) -> None:
    found = report.to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == names_of(TableReport)
    (first, *_) = found["versions"]
    assert first["operation_class"] == "INSERT"
    own = {*names_of(VersionEntry), *names_of(CommitRecord), "predicted", "actual"} - {"commit", "cost", "metrics"}
    assert first.keys() == own
    (major,) = (entry for entry in found["versions"] if entry["operation_class"] == "MAJOR")
    assert major["actual"].keys() == names_of(Cost)
    for name, kind in (("losses", LostRace), ("refusals", Refusal)):
        assert all(entry.keys() >= {"at", *names_of(kind)} - {"when_ms", "time_ms"} for entry in found[name])
    assert found["losses"][0]["at"].endswith("Z")
    assert found["consumers"][0].keys() == names_of(ConsumerStatus)
    assert found["debt"].keys() == names_of(Debt)
    plan = found["plans"][1]
    assert plan.keys() >= names_of(Plan) - {"scopes"}
    assert plan["first_groups"][0].keys() == {*names_of(PlannedGroup), "files", "bytes"} - {"inputs"}
    assert plan["first_scopes"][0].keys() == names_of(ScopeDebt)


def test_the_json_of_a_brief_has_the_values_that_it_nests(busy: Table) -> None:
    found = brief_of(busy).to_dict()
    assert found.keys() == names_of(TableBrief)
    assert found["last_compaction"].keys() == names_of(CommitRecord) - {"metrics"}
    assert found["last_compaction"]["operation_class"] == "MAJOR"


def names_of(kind: type) -> set[str]:
    """The names of the attributes of a dataclass or a Struct."""
    return {*(getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__)}  # type: ignore[attr-defined]


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


# --- clean-ups, as somebody sees them who is no daemon


@pytest.fixture
def clock() -> Both:
    return Both()


@pytest.fixture
def old(clock: Both) -> Table:
    """Five days old, with retentions of two and three days."""
    return aged(memory_store(clock), clock)


def test_an_old_table_that_was_never_cleaned_up_awaits_a_daemon(old: Table, clock: Both) -> None:
    """A time would move on with each look, because the daemon's first look counts."""
    awaited = tuple(CleanUpTime(chore, None, None, awaits_daemon=True) for chore in CLEAN_UPS)
    assert clean_up_times(old, clock) == awaited
    clock.ms += DAY
    assert clean_up_times(old, clock) == awaited


def test_a_young_table_has_times_that_stay(clock: Both) -> None:
    table = aged(memory_store(clock), clock, days=1)
    times = clean_up_times(table, clock)
    assert all(time.due is not None and time.due.timestamp() * 1000 > clock.ms for time in times)
    clock.ms += HOUR
    assert clean_up_times(table, clock) == times


def test_after_a_daemon_it_has_the_times_of_the_daemon(old: Table, clock: Both) -> None:
    upkeep = Upkeep(system=clock)
    upkeep.run(old)
    through(upkeep, old, clock, hours=3)
    times = clean_up_times(old.refresh(), clock)
    assert all(time.done is not None and not time.awaits_daemon for time in times)
    upcoming = {each.chore: each.at for each in upkeep.run(old).upcoming}
    assert [time.due for time in times] == [upcoming[time.chore] for time in times]

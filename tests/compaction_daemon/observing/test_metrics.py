"""The metrics of a daemon, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.compaction_daemon.observing.tables import NO_VACUUM, NOW, daemon_status, table_status
from tidelog.compaction_daemon import DaemonStatus, LeftAlone, TableState, WorkTotals
from tidelog.compaction_daemon.observing import metrics
from tidelog.compaction_daemon.observing.live_status import TableFacts
from tidelog.compaction_daemon.observing.metrics import DaemonCollector, exposition
from tidelog.log.consumers.consumer_status import ConsumerStatus, Lag

# A status with a series of each metric.
EVERYTHING = daemon_status(table_status("/a", epoch=1, upkeep_errors=(NO_VACUUM,)))

Samples: TypeAlias = dict[str, dict[tuple[str, ...], float]]

DASHBOARD = Path(__file__).parents[3] / "examples" / "operations" / "grafana-dashboard.json"
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def samples(
    status: DaemonStatus, facts: dict[str, TableFacts] | None = None
) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by the name of the metric and the values of its labels, the table first."""
    text = exposition(DaemonCollector(lambda: status, lambda _: facts or {})).decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = tuple(
                sample.labels[name] for name in sorted(sample.labels, key=lambda name: (name != "table", name))
            )
            assert labels not in values, "a series appears twice"
            values[labels] = sample.value
    return found


def test_the_metrics_of_the_daemon() -> None:
    status = daemon_status(table_status("/a"), table_status("/b", TableState.FAILING))
    found = samples(status)
    assert found["tidelog_daemon_steps_total"] == {(): 18_322}
    assert found["tidelog_daemon_last_step_seconds"] == {(): 0.25}
    assert found["tidelog_daemon_stalled"] == {(): 0}
    assert found["tidelog_daemon_search_errors"] == {(): 0}
    assert found["tidelog_daemon_read_bytes_limit"] == {(): 10_000_000_000}
    assert found["tidelog_daemon_tables"][("failing",)] == 1
    assert found["tidelog_daemon_tables"][("missing",)] == 0


def test_what_is_unknown_has_no_value() -> None:
    status = daemon_status(table_status("/a", version=None, debt=()), last_step=None, bytes_per_hour=None)
    found = samples(status)
    assert "tidelog_daemon_last_step_timestamp_seconds" not in found
    assert "tidelog_daemon_read_bytes_limit" not in found
    assert "tidelog_table_version" not in found
    assert "tidelog_table_small_files" not in found
    assert "tidelog_table_lease_epoch" not in found


def test_the_metrics_of_a_table() -> None:
    totals = WorkTotals(
        compactions={"minor": 5}, bytes_read=7, wasted_bytes=3, rebased_over=2, failures=1, step_seconds=1.5
    )
    table = table_status("/a", epoch=4, totals=totals, left_alone=LeftAlone(3, "TIDELOG_X: no", "TIDELOG_X"))
    found = samples(daemon_status(table, table_status("/b", upkeep_errors=(NO_VACUUM,))))
    assert found["tidelog_table_upkeep_failing"] == {("/b", "vacuum from the log"): 1}
    found = samples(daemon_status(table))
    assert "tidelog_table_upkeep_failing" not in found
    assert found["tidelog_table_compactions_total"] == {("/a", "minor"): 5}
    assert found["tidelog_table_read_bytes_total"] == {("/a",): 7}
    assert found["tidelog_table_wasted_bytes_total"] == {("/a",): 3}
    assert found["tidelog_table_rebased_commits_total"] == {("/a",): 2}
    assert found["tidelog_table_failures_total"] == {("/a",): 1}
    assert found["tidelog_table_work_seconds_total"] == {("/a",): 1.5}
    assert found["tidelog_table_lease_epoch"] == {("/a",): 4}
    assert found["tidelog_table_left_alone_groups"] == {("/a",): 3}
    assert found["tidelog_table_small_files"] == {("/a",): table.debt[-1].debt.small_files}
    assert found["tidelog_table_debt_sampled_timestamp_seconds"] == {("/a",): NOW.timestamp()}
    assert found["tidelog_table_state"] == {("/a", "watched"): 1}


def test_what_a_look_at_the_log_adds() -> None:
    consumers = (consumer("a", Lag(versions=3, seconds=1.5)), consumer("b", Lag(versions=1, seconds=4.5)))
    facts = TableFacts(9, consumers, losses={("INSERT", "MINOR"): 2})
    found = samples(daemon_status(table_status("/a"), table_status("/b")), {"/a": facts})
    assert found["tidelog_table_consumers"] == {("/a",): 2}
    assert found["tidelog_table_consumer_lag_versions"] == {("/a",): 3}
    assert found["tidelog_table_consumer_lag_seconds"] == {("/a",): 4.5}
    assert found["tidelog_table_conflicts_total"] == {("/a", "INSERT", "MINOR"): 2}


def consumer(name: str, lag: Lag) -> ConsumerStatus:
    return ConsumerStatus(name, "owner", 5, None, None, is_live=True, is_confirmed=True, state="live", lag=lag)


def test_a_label_has_no_credentials_and_no_control_characters_and_stays_unique() -> None:
    paths = ("s3://key:hunter2@bucket/t", "s3://other:hunter3@bucket/t", '/q"\n\\t\x1b\u202e')
    found = samples(daemon_status(*(table_status(path) for path in paths)))
    labels = {table for (table,) in found["tidelog_table_version"]}
    assert labels == {"s3://***@bucket/t", "s3://***@bucket/t #2", r'/q"\n\t\x1b\u202e'.replace(r"\t", "\\t")}


def test_there_is_a_bound_on_the_tables_that_have_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_LABELLED_TABLES", 3)
    found = samples(daemon_status(*(table_status(f"/{number}") for number in range(5))))
    assert len(found["tidelog_table_version"]) == 3
    assert found["tidelog_daemon_tables"][("watched",)] == 5


def test_every_metric_says_what_it_is_and_is_in_the_reference() -> None:
    facts = TableFacts(9, (consumer("a", Lag()),), losses={("INSERT", "MINOR"): 2})
    text = exposition(DaemonCollector(lambda: EVERYTHING, lambda _: {"/a": facts})).decode()
    names = set(re.findall(r"^(tidelog_\w+)", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    assert names == kinds.keys() == helps.keys()
    assert kinds == {name: "counter" if name.endswith("_total") else "gauge" for name in names}
    assert len(set(helps.values())) == len(helps)
    section = REFERENCE.read_text().partition("\n## Prometheus of the daemon\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(tidelog_\w+)`", section)) == names


def test_every_query_of_the_dashboard_names_a_metric_and_its_labels() -> None:
    facts = TableFacts(9, losses={("INSERT", "MINOR"): 2})
    collector = DaemonCollector(lambda: EVERYTHING, lambda _: {"/a": facts})
    families = list(collector.collect())
    names = {f"{family.name}{'_total' if family.type == 'counter' else ''}": family for family in families}
    queried = set()
    for query in queries(json.loads(DASHBOARD.read_text())):
        used = re.findall(r"\btidelog_\w+", query)
        assert used, query
        for name in used:
            assert name in names, query
            labels = {label for sample in names[name].samples for label in sample.labels}
            by = re.findall(r"by \(([\w, ]+)\)", query)
            assert {label for part in by for label in part.split(", ")} <= labels, query
        queried.update(used)
    assert len(queried) > len(names) / 2


def queries(value: Any) -> list[str]:
    """The texts of all queries in a dashboard."""
    if isinstance(value, dict):
        own = [text for key, text in value.items() if key in {"expr", "definition"}]
        return own + [text for entry in value.values() for text in queries(entry)]
    return [text for entry in value for text in queries(entry)] if isinstance(value, list) else []

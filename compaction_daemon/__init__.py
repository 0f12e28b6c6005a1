"""tidelog.compaction_daemon: keep tables fast alongside their writers, without disturbing them.

    compact("/data/events")           # once, from a program
    Daemon(["/data/events"]).run()    # until it is stopped; from a shell: tidelog daemon /data/events

A compaction replaces files with fewer or better files that hold the same rows. These are the words for it, in the order
in which one becomes the next:

- **CompactionRequest**: what to compact and how: the level (`minor` or `major`), the partitions, the level's options.
- **Scope**: one partition. A plan decides on each by itself.
- **Candidate**: a live file that the request may concern, as a row of columns: a table can have a million of them.
- **Decisions**: candidates of one partition that belong together are rewritten into a number of files, or left alone
  for a reason. They are ranked by the debt that they remove per byte rewritten.
- **PlannedGroup**: files that will be rewritten together: inputs, number of outputs, columns to cluster by, and what
  that should cost.
- **Plan**: the best groups of one request on one version of the table, up to a budget, and on demand the reason for
  every live file. The same version, request and history always give the same plan.
- **MoveGroup**: a planned group after its rewrite: the inputs, the written and verified outputs, and the lineage (which
  input rows went to which output rows). It is staged in a transaction, not yet committed.
- **CompactionReport**: what one compaction did: the groups that it committed, the work that was lost to
  other commits, and the groups that are left for the next compaction.
- **step**: one round of the daemon, with at most one checkpoint and one compaction per table; reported as a StepReport
  with a TableStep for each table.

The rooms, in the order in which they build on each other:

- `planning`: from the request to the plan
- `rewriting`: from a planned group to a move group: the rows into new files, checked against what was read
- `leases`: one daemon per table: who may work on it, and the fence that its commits carry
- `upkeep`: checkpoints, expiry and vacuum of a table
- `compaction`: one compaction from its plan to its report
- `settings`: how a daemon runs, and where its tables are
- `process`: the daemon: many tables, one step after another
- `observing`: what an operator sees: the page, reports of tables, metrics

Names are imported when they are first used: a compaction needs neither the process nor its page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.compaction_daemon.compaction.by_hand import compact, expire, plan, stage, vacuum
    from tidelog.compaction_daemon.compaction.compaction import check_plan, default_budget, read_history
    from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
    from tidelog.compaction_daemon.compaction.purge import PurgeReport
    from tidelog.compaction_daemon.observing.page import report_page
    from tidelog.compaction_daemon.observing.server import PageServer
    from tidelog.compaction_daemon.observing.table_report import TableReport, report_of
    from tidelog.compaction_daemon.planning.checking import DroppedGroup
    from tidelog.compaction_daemon.planning.history import History, PredictionOutcome, prediction_outcomes
    from tidelog.compaction_daemon.planning.plan import FileReason, LeftOut, Plan, PlannedGroup, Prediction, ScopeDebt
    from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
    from tidelog.compaction_daemon.process.daemon import Daemon
    from tidelog.compaction_daemon.process.daemon_status import (
        DaemonStatus,
        DebtSample,
        LeftAlone,
        TableState,
        TableStatus,
        WorkTotals,
    )
    from tidelog.compaction_daemon.process.table_step import StepReport, TableStep
    from tidelog.compaction_daemon.settings.config import DaemonConfig
    from tidelog.compaction_daemon.settings.sources import TableSource
    from tidelog.compaction_daemon.upkeep.retentions import Retention, retentions
    from tidelog.compaction_daemon.upkeep.table_upkeep import Upkeep
    from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport
    from tidelog.log import ExpiryReport, VacuumReport

__all__ = [
    "Budget",
    "CompactionReport",
    "CompactionRequest",
    "Daemon",
    "DaemonConfig",
    "DaemonStatus",
    "DebtSample",
    "DroppedGroup",
    "ExpiryReport",
    "FileReason",
    "History",
    "LeftAlone",
    "LeftOut",
    "PageServer",
    "Plan",
    "PlannedGroup",
    "Prediction",
    "PredictionOutcome",
    "PurgeReport",
    "Retention",
    "ScopeDebt",
    "StepReport",
    "TableReport",
    "TableSource",
    "TableState",
    "TableStatus",
    "TableStep",
    "Upcoming",
    "Upkeep",
    "UpkeepError",
    "UpkeepReport",
    "VacuumReport",
    "WorkTotals",
    "check_plan",
    "compact",
    "default_budget",
    "expire",
    "plan",
    "prediction_outcomes",
    "read_history",
    "report_of",
    "report_page",
    "retentions",
    "stage",
    "vacuum",
]

_HOMES = {
    "Budget": "compaction_daemon.planning.request",
    "CompactionReport": "compaction_daemon.compaction.compaction_report",
    "CompactionRequest": "compaction_daemon.planning.request",
    "Daemon": "compaction_daemon.process.daemon",
    "DaemonConfig": "compaction_daemon.settings.config",
    "DaemonStatus": "compaction_daemon.process.daemon_status",
    "DebtSample": "compaction_daemon.process.daemon_status",
    "DroppedGroup": "compaction_daemon.planning.checking",
    "ExpiryReport": "log",
    "FileReason": "compaction_daemon.planning.plan",
    "History": "compaction_daemon.planning.history",
    "LeftAlone": "compaction_daemon.process.daemon_status",
    "LeftOut": "compaction_daemon.planning.plan",
    "PageServer": "compaction_daemon.observing.server",
    "Plan": "compaction_daemon.planning.plan",
    "PlannedGroup": "compaction_daemon.planning.plan",
    "Prediction": "compaction_daemon.planning.plan",
    "PredictionOutcome": "compaction_daemon.planning.history",
    "PurgeReport": "compaction_daemon.compaction.purge",
    "Retention": "compaction_daemon.upkeep.retentions",
    "ScopeDebt": "compaction_daemon.planning.plan",
    "StepReport": "compaction_daemon.process.table_step",
    "TableReport": "compaction_daemon.observing.table_report",
    "TableSource": "compaction_daemon.settings.sources",
    "TableState": "compaction_daemon.process.daemon_status",
    "TableStatus": "compaction_daemon.process.daemon_status",
    "TableStep": "compaction_daemon.process.table_step",
    "Upcoming": "compaction_daemon.upkeep.upkeep_report",
    "Upkeep": "compaction_daemon.upkeep.table_upkeep",
    "UpkeepError": "compaction_daemon.upkeep.upkeep_report",
    "UpkeepReport": "compaction_daemon.upkeep.upkeep_report",
    "VacuumReport": "log",
    "WorkTotals": "compaction_daemon.process.daemon_status",
    "check_plan": "compaction_daemon.compaction.compaction",
    "compact": "compaction_daemon.compaction.by_hand",
    "default_budget": "compaction_daemon.compaction.compaction",
    "expire": "compaction_daemon.compaction.by_hand",
    "plan": "compaction_daemon.compaction.by_hand",
    "prediction_outcomes": "compaction_daemon.planning.history",
    "read_history": "compaction_daemon.compaction.compaction",
    "report_of": "compaction_daemon.observing.table_report",
    "report_page": "compaction_daemon.observing.page",
    "retentions": "compaction_daemon.upkeep.retentions",
    "stage": "compaction_daemon.compaction.by_hand",
    "vacuum": "compaction_daemon.compaction.by_hand",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"tidelog.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

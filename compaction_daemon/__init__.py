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

`planning` goes from the request to the plan, for which `history_reader` reads recent commits; `plans` makes plans for
users. `rewriting` goes from a planned group to a move group. `applying` rewrites and commits the groups of a plan,
by one of the `executors`; `rewritten` is what a commit of theirs records, and `report` what came of all. `purge` says
from when on nothing holds deleted rows. `compaction` is all of that in one call. `cleanup` deletes what is no longer
needed. `upkeep` does that and writes checkpoints when they are due.

The `daemon` repeats that for many tables, as its `config` says and within its `budget`. `sources` says where the
tables are, and finds them by `path_patterns`. `watching` has the tables and when each is looked at, `table_step` does
one step for one table, `step_report` is what a step did, and `status` is what the daemon knows. `leases` keep other
daemons off a table, and `kept_leases` are those that last from one step to the next. `observing` shows the status,
and what the log of a table says: the page, reports and metrics.

The settings can come from a file: `config_file`, with `config_texts` and `listen_address`.
"""

from tidelog.compaction_daemon.cleanup import expire, vacuum
from tidelog.compaction_daemon.compaction import check_plan, compact, default_budget, stage
from tidelog.compaction_daemon.config import DaemonConfig
from tidelog.compaction_daemon.daemon import Daemon
from tidelog.compaction_daemon.history_reader import read_history
from tidelog.compaction_daemon.observing.page import report_page
from tidelog.compaction_daemon.observing.server import PageServer
from tidelog.compaction_daemon.observing.table_report import TableReport, report_of
from tidelog.compaction_daemon.planning.checking import DroppedGroup
from tidelog.compaction_daemon.planning.history import History, PredictionOutcome, prediction_outcomes
from tidelog.compaction_daemon.planning.plan import (
    FileReason,
    LeftOut,
    Plan,
    PlannedGroup,
    Prediction,
    ScopeDebt,
)
from tidelog.compaction_daemon.planning.request import Budget
from tidelog.compaction_daemon.plans import plan
from tidelog.compaction_daemon.purge import PurgeReport
from tidelog.compaction_daemon.report import CompactionReport
from tidelog.compaction_daemon.sources import TableSource
from tidelog.compaction_daemon.status import DaemonStatus, DebtSample, LeftAlone, TableState, TableStatus, WorkTotals
from tidelog.compaction_daemon.step_report import StepReport, TableStep
from tidelog.compaction_daemon.upkeep.report import Upcoming, UpkeepError, UpkeepReport
from tidelog.compaction_daemon.upkeep.retentions import Retention, retentions
from tidelog.compaction_daemon.upkeep.upkeep import Upkeep
from tidelog.log import ExpiryReport, VacuumReport

__all__ = [
    "Budget",
    "CompactionReport",
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

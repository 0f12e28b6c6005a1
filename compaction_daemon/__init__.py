"""tidelog.compaction_daemon: keep tables fast alongside their writers, without disturbing them.

    compact("/data/events")           # once, from a program
    Daemon(["/data/events"]).run()    # until it is stopped; from a shell: tidelog daemon /data/events

A compaction replaces files with fewer or better files that hold the same rows. These are the words for it, in the order
in which one becomes the next:

- **CompactionRequest**: what to compact and how: the level (`minor` or `major`), the partitions, the level's options.
- **Candidate**: a live file that the request may concern, with the row counts that the log knows.
- **PackedFiles**: candidates of one partition that belong together, and the decision on them: rewrite them into a
  number of files, or leave them alone for a reason.
- **PlannedGroup**: packed files that will be rewritten: input files, number of output files, sort columns.
- **Plan**: all groups of one request on one version of the table and, on demand, the reason for every live file. The
  same version and request always give the same plan.
- **MoveGroup**: a planned group after its rewrite: the inputs, the written and verified outputs, and the lineage (which
  input rows went to which output rows). It is staged in a transaction, not yet committed.
- **CompactionReport**: what one compaction did: the groups that it committed in one version, the work that was lost to
  other commits, and the groups that are left for the next compaction.
- **step**: one round of the daemon, with at most one checkpoint and one compaction per table; reported as a StepReport
  with a TableStep for each table.

`planning` goes from the request to the plan, `rewriting` from a planned group to a move group, and `compaction` runs
both and commits. `daemon` repeats that for many tables. `cleanup` deletes what is no longer needed.
"""

from tidelog.compaction_daemon.cleanup import expire, vacuum
from tidelog.compaction_daemon.compaction import CompactionReport, compact, stage
from tidelog.compaction_daemon.daemon import Daemon, DaemonConfig, StepReport, TableStep
from tidelog.compaction_daemon.planning.plan import FileReason, Plan, PlannedGroup
from tidelog.compaction_daemon.planning.planner import plan
from tidelog.log import ExpiryReport, VacuumReport

__all__ = [
    "CompactionReport",
    "Daemon",
    "DaemonConfig",
    "ExpiryReport",
    "FileReason",
    "Plan",
    "PlannedGroup",
    "StepReport",
    "TableStep",
    "VacuumReport",
    "compact",
    "expire",
    "plan",
    "stage",
    "vacuum",
]

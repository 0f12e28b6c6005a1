"""tidelog.compaction_daemon: keeps tables fast beside their writers, without disturbing them.

compact("/data/events")                      # once, from a program
Daemon(["/data/events"]).run()               # for months; or from a shell: tidelog daemon /data/events
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

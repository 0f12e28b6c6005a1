"""tidelog.compaction_daemon: keeps tables fast beside their writers, without disturbing them.

compact("/data/events")                      # once, from a program
Daemon(["/data/events"]).run()               # for months; or from a shell: tidelog daemon /data/events
"""

from tidelog.compaction_daemon.compaction import CompactionReport, compact, stage
from tidelog.compaction_daemon.loop import Daemon, DaemonConfig, StepReport, TableStep
from tidelog.compaction_daemon.planner import Plan, PlannedGroup, plan

__all__ = [
    "CompactionReport",
    "Daemon",
    "DaemonConfig",
    "Plan",
    "PlannedGroup",
    "StepReport",
    "TableStep",
    "compact",
    "plan",
    "stage",
]

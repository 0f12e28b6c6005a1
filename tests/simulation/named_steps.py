"""Scenarios of the daemon's steps, made by hand: a compaction that commits its groups in parts, and the lease it keeps.

The process of an owner that is held stops as a whole, heartbeat and all, as by SIGSTOP; it goes on when the other one
has ended.
"""

from __future__ import annotations

from tests.log.oracle.model import Row, Where
from tests.log.oracle.operations import Insert, SetProperties, Update
from tests.log.oracle.settings import SETTINGS
from tests.simulation.actors import Job, Statement
from tests.simulation.daemons import Attend
from tests.simulation.faults import COMMIT
from tests.simulation.named import Named, named
from tests.simulation.scenario import SMALL_TARGET, Hold
from tests.simulation.stepping import Step

# Four small files, of which two at a time fit the target; the table has three more.
_FED: tuple[Job, ...] = (
    Statement(SetProperties("SET", (("tidelog.targetFileSize", SMALL_TARGET),))),
    *(Statement(Insert("INSERT", (Row(key, 1, 1000 + key), Row(key + 1, 1, 1001 + key)))) for key in (20, 22, 24, 26)),
)
_CHANGED = Update("UPDATE", Where("k", "<=", 22), "v", added=True, number=10_000)
_LATER_MS = 5_000
# Takes the lease from an owner that gives no sign of life, and does nothing with it.
_TAKES_OVER = Attend("none", patience=3, after_ms=2 * _LATER_MS)


STEPS: tuple[Named, ...] = (
    named(
        "an owner that is stopped between two parts",
        "it has committed its first groups, is stopped before the commit of the next ones, and another one takes over",
        "",
        {"feeder": _FED, "stepper-0": (Step(after_ms=_LATER_MS), Step()), "daemon-1": (_TAKES_OVER,)},
        setting=SETTINGS["vectors, partitions"],
        holds=(Hold("stepper-0", "link", COMMIT, nth=2, until="daemon-1"),),
        commit_interval_s=0.0,
    ),
    named(
        "an owner that is stopped and whose successor goes on",
        "it is stopped before its first commit; another one takes over and compacts the same groups, and then it wakes",
        "",
        {
            "feeder": _FED,
            "stepper-0": (Step(after_ms=_LATER_MS), Step()),
            "stepper-1": (Step(after_ms=2 * _LATER_MS), Step(after_ms=20_000), Step()),
        },
        holds=(Hold("stepper-0", "link", COMMIT, until="stepper-1"),),
        commit_interval_s=0.0,
    ),
    named(
        "a writer between two parts",
        "rows change after the first part was committed, in groups that are left, one of which is being rewritten",
        "",
        {
            "feeder": _FED,
            "stepper-0": (Step(after_ms=_LATER_MS), Step(after_ms=_LATER_MS)),
            "update-1": (Statement(_CHANGED, after_ms=2 * _LATER_MS),),
        },
        holds=(Hold("stepper-0", "open_new", ".*part-", nth=2, until="update-1"),),
        commit_interval_s=0.0,
    ),
    named(
        "an owner that lives keeps its lease between its steps",
        "it waits for its next step longer than the time to live, and its heartbeat goes on; the other one looks on",
        "",
        {
            "feeder": _FED,
            "stepper-0": (Step(after_ms=_LATER_MS), Step(after_ms=50_000)),
            "daemon-1": (Attend("none", patience=2, after_ms=2 * _LATER_MS),),
        },
        commit_interval_s=0.0,
    ),
)

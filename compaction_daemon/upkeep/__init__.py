"""Upkeep of a table beside its writers: checkpoints, expiry of history, vacuum.

- `due`: what is due, and when: pure functions
- `retentions`: how long each kind of file is kept, and which property says so
- `upkeep_report`: what a call did, and what comes next
- `upkeep`: does it, a bounded piece at a time; what fails is tried again later, what was done is in a file of the table
"""

from tidelog.compaction_daemon.upkeep.upkeep import Upkeep
from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport

__all__ = ["Upcoming", "Upkeep", "UpkeepError", "UpkeepReport"]

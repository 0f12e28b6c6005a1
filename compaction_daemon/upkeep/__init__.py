"""Upkeep of a table beside its writers: checkpoints, expiry of history, vacuum.

- `due`: what is due, and when: pure functions
- `retentions`: how long each kind of file is kept, and which property says so
- `record`: what was done when, in a small file of the table
- `troubles`: what fails, reported once and tried again later
- `report`: what a call did, and what comes next
- `upkeep`: does it, a bounded piece at a time
"""

from tidelog.compaction_daemon.upkeep.report import Upcoming, UpkeepError, UpkeepReport
from tidelog.compaction_daemon.upkeep.upkeep import Upkeep

__all__ = ["Upcoming", "Upkeep", "UpkeepError", "UpkeepReport"]

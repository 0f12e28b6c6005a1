"""Upkeep of a table beside its writers: checkpoints, expiry of history, vacuum.

- `due`: what is due, and when: pure functions
- `retentions`: how long each kind of file is kept, and which property says so
- `clean_up_record`: what was done when, in a small file of the table
- `upkeep_report`: what a call did, and what comes next
- `upkeep`: does it, a bounded piece at a time; what fails is tried again later
"""

from tidelog.compaction_daemon.upkeep.upkeep import Upkeep
from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport

__all__ = ["Upcoming", "Upkeep", "UpkeepError", "UpkeepReport"]

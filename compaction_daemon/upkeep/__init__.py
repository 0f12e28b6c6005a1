"""Upkeep of a table beside its writers: checkpoints, expiry of history, vacuum.

- `due`: what is due, and when: pure functions
- `retentions`: how long each kind of file is kept, and which property says so
- `clean_up_record`: what was done when, in a small file of the table
- `troubles`: what fails, reported once and tried again later
- `upkeep_report`: what a call did, and what comes next
- `cleanup`: expire and vacuum a table that is given by its path
- `upkeep`: does it, a bounded piece at a time
"""

from tidelog.compaction_daemon.upkeep.upkeep import Upkeep
from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport

__all__ = ["Upcoming", "Upkeep", "UpkeepError", "UpkeepReport"]

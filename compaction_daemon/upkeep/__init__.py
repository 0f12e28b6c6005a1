"""Upkeep of a table beside its writers: checkpoints, expiry of history, vacuum.

- `due`: what is due, and when: pure functions
- `retentions`: how long each kind of file is kept, and which property says so
- `upkeep_report`: what a call did, and what comes next
- `table_upkeep`: does it, a bounded piece at a time; tries again what fails, and keeps in the table what was done
"""

from tidelog.compaction_daemon.upkeep.table_upkeep import Upkeep
from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport

__all__ = ["Upcoming", "Upkeep", "UpkeepError", "UpkeepReport"]

"""What the simulation leaves out while a defect is open, in one place.

`SWITCHES` are ingredients that led to defects. Those in `KNOWN_DEFECTS` are not drawn; empty it, and everything is.
`python -m tests.simulation --all` runs with everything on, whatever is known. A rule is one of the design's rules for
what happens around transactions: 8 and 11 clean-up, 9 drop, 10 lost answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation import faults


@dataclass(frozen=True)
class Switch:
    """`left_out` says what is not drawn while it is off, `rule` which rule removes the defect."""

    rule: str
    left_out: str


DROP = "drop"
SLEEPERS_BESIDE_VACUUM = "sleepers beside vacuum"
SLEEPERS_BESIDE_EXPIRE = "sleepers beside expire"
RESTORE_BESIDE_VACUUM = "restore beside vacuum"
CLOCKS = "wrong clocks beside clean-up"

SWITCHES: Mapping[str, Switch] = {
    DROP: Switch("rule 9", "actors that drop the table and create it again"),
    SLEEPERS_BESIDE_VACUUM: Switch("rule 8", "pauses beyond tidelog.maxTransactionTime where somebody vacuums"),
    SLEEPERS_BESIDE_EXPIRE: Switch(
        "rule 11", "pauses beyond tidelog.maxTransactionTime where somebody expires the log"
    ),
    RESTORE_BESIDE_VACUUM: Switch("rule 8", "a RESTORE where somebody vacuums"),
    CLOCKS: Switch("rule 8", "clocks that are days apart where somebody cleans up"),
    faults.LATE_PUTS: Switch("rule 10", "puts of a commit that are carried out after their caller has given up"),
    faults.AFTER_THE_EFFECT: Switch("rule 10", "errors of a disk after a commit's link, other than EIO"),
    faults.FOLDER_SYNC: Switch(
        "rule 10",
        "an fsync of the log folder that fails, and the check that a commit on a disk survives a power failure (after "
        "a lost answer to a link the commit is looked up, and the folder is never synced)",
    ),
}

KNOWN_DEFECTS: tuple[str, ...] = tuple(SWITCHES)

"""What stores do to their callers: kind x operation x path x probability, as data.

A fault is allowed only where the contract of a real store allows it.

- A disk (POSIX, also NFS): any call can fail before it has an effect. On a network file system the answer to a call
  that was carried out can get lost, so the caller sees an error *after the effect*. A folder is read in several calls:
  a name that appears or disappears meanwhile may be listed or not, but a name that was there all the time is listed.
  A network file system may show a listing that is up to a minute old, but never older than what its own machine did.
  There is one clock for modification times. A process that dies leaves what it had written, so a temporary file can be
  torn.
- S3, Google Cloud Storage and Azure Blob Storage: a put, a put-if-absent and a delete are atomic, and reads and
  listings are strongly consistent. Old listings are simulated here as well, because not every compatible store keeps
  that promise. A long listing is one request per page, and each page shows the state at its own time. A request can
  be refused (nothing was done), and its answer can get lost: then it was carried out, or it was not, or it will be, at
  any later time, by a proxy or a socket that still holds it. Modification times are in whole seconds.

What no store may do, and is not simulated: to accept two puts-if-absent of one name, to lose an acknowledged object, to
show half an object.
"""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random


class When(Enum):
    """Whether a call that fails was carried out."""

    NEVER = auto()
    BEFORE_THE_ANSWER = auto()
    SOON = auto()
    """While the caller is still trying again."""
    LATE = auto()
    """After every retry of the caller."""


class NoAnswerError(Exception):
    """The answer of a cloud got lost."""


class RefusedError(Exception):
    """A cloud refused a request, and did nothing."""


@dataclass(frozen=True)
class Fault:
    """`operation` is a method of SimDisk or SimCloud, `path` a pattern that its path begins with.

    `burst` is how often the same call of the same actor then fails in a row, at most. `defect` names the known defect
    that it leads to.
    """

    name: str
    operation: str
    path: str
    when: When
    error: int | type[Exception]
    chance: float
    burst: int = 1
    defect: str | None = None

    def raised(self, path: str) -> Exception:
        """The error that the caller sees."""
        if isinstance(self.error, int):
            return OSError(self.error, os.strerror(self.error), path)
        return self.error(f"{self.operation} {path}")


LOG_FOLDER = "_delta_log"
ANY, LOG, COMMIT = "", LOG_FOLDER, r"_delta_log/\d{20}\.json$"
NO_COMMIT = rf"(?!{COMMIT})"
FILE = r".*\.(tmp|parquet|bin|arrow)$"
TEMPORARY = r"_delta_log/\.[0-9a-f-]+\.tmp$"
LATE_PUTS, AFTER_THE_EFFECT, FOLDER_SYNC = "late puts", "errors after the effect", "commits without a synced folder"

DISK_FAULTS = (
    Fault("a full disk", "fsync", FILE, When.NEVER, errno.ENOSPC, 0.03),
    Fault("a broken block", "read", LOG, When.NEVER, errno.EIO, 0.01),
    Fault("a listing fails", "entries", ANY, When.NEVER, errno.EIO, 0.02),
    Fault("no link is made", "link", COMMIT, When.NEVER, errno.EIO, 0.1, burst=6),
    Fault("a link is made, and the answer lost", "link", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.1, burst=4),
    Fault("a name is removed, and the answer lost", "unlink", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.1),
    Fault("a name is not removed", "unlink", ANY, When.NEVER, errno.EIO, 0.1),
    Fault("a data file cannot be created", "open_new", ANY, When.NEVER, errno.ENOSPC, 0.03),
    Fault("a rename is made, and the answer lost", "rename", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.2),
    Fault(
        "a link is made, and reported as forbidden",
        "link",
        COMMIT,
        When.BEFORE_THE_ANSWER,
        errno.EACCES,
        0.1,
        defect=AFTER_THE_EFFECT,
    ),
    Fault(
        "a temporary name cannot be removed (chattr +a)",
        "unlink",
        TEMPORARY,
        When.NEVER,
        errno.EPERM,
        0.1,
        defect=AFTER_THE_EFFECT,
    ),
    Fault(
        "the log folder cannot be opened (mode 0733)",
        "open_descriptor",
        f"{LOG}$",
        When.NEVER,
        errno.EACCES,
        0.1,
        defect=AFTER_THE_EFFECT,
    ),
    Fault("the log folder is not synced", "fsync", f"{LOG}$", When.NEVER, errno.EIO, 0.1, defect=FOLDER_SYNC),
)
CLOUD_FAULTS = (
    Fault("throttled", "", ANY, When.NEVER, RefusedError, 0.02, burst=9),
    Fault("a read fails", "read", ANY, When.NEVER, NoAnswerError, 0.02, burst=9),
    Fault("a listing fails", "list", ANY, When.NEVER, NoAnswerError, 0.02, burst=9),
    Fault("a put is lost", "put", ANY, When.NEVER, NoAnswerError, 0.05, burst=5),
    Fault("a put is made, and the answer lost", "put", ANY, When.BEFORE_THE_ANSWER, NoAnswerError, 0.1, burst=5),
    Fault("a put is held for a moment", "put", NO_COMMIT, When.SOON, NoAnswerError, 0.1),
    Fault("a commit is held for a moment", "put", COMMIT, When.SOON, NoAnswerError, 0.1, 6, defect=LATE_PUTS),
    Fault("an upload is made, and the answer lost", "put_file", ANY, When.BEFORE_THE_ANSWER, NoAnswerError, 0.1, 9),
    Fault("an upload is held", "put_file", ANY, When.LATE, NoAnswerError, 0.05, 9),
    Fault("a delete is made, and the answer lost", "delete", ANY, When.BEFORE_THE_ANSWER, NoAnswerError, 0.1, 9),
    Fault("a delete is held", "delete", ANY, When.LATE, NoAnswerError, 0.05, 9),
    Fault("a commit is held", "put", COMMIT, When.LATE, NoAnswerError, 0.1, 6, defect=LATE_PUTS),
)
FAULTS = {"disk": DISK_FAULTS, "cloud": CLOUD_FAULTS}
# These are drawn with a generator of their own, so that each seed draws what it drew before they were added.
FURTHER_FAULTS = {
    "disk": (
        Fault(
            "a sync is made, and the answer lost", "fsync", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.03, 1, FOLDER_SYNC
        ),
        Fault("a listing is made, and the answer lost", "entries", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.02),
        Fault("a folder is made, and the answer lost", "make_folder", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.2),
        Fault("a file is created, and the answer lost", "open_new", ANY, When.BEFORE_THE_ANSWER, errno.EIO, 0.05),
        Fault("a lookup fails", "stat", ANY, When.NEVER, errno.EIO, 0.05, burst=5),
        Fault("a name cannot be looked up", "exists", ANY, When.NEVER, errno.EIO, 0.1, burst=2),
    ),
    "cloud": (Fault("a lookup fails", "stat", ANY, When.NEVER, NoAnswerError, 0.05, burst=30),),
}


@dataclass
class Faults:
    """Decides which calls fail."""

    random: Random
    table: Iterable[Fault]
    _by_operation: dict[str, list[tuple[re.Pattern[str], Fault]]] = field(default_factory=dict)
    _bursts: defaultdict[tuple[str, str], list[Fault]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for fault in self.table:
            self._by_operation.setdefault(fault.operation, []).append((re.compile(fault.path), fault))

    def draw(self, actor: str, operation: str, path: str) -> Fault | None:
        """The fault of this call; None for most calls."""
        if not self._by_operation:
            return None
        burst = self._bursts[actor, operation]
        if burst and re.match(burst[-1].path, path):
            return burst.pop()
        candidates = [*self._by_operation.get(operation, []), *self._by_operation.get("", [])]
        for pattern, fault in candidates:
            if pattern.match(path) and self.random.random() < fault.chance:
                again = self.random.randint(0, fault.burst - 1)
                self._bursts[actor, operation] += [fault] * again
                return fault
        return None


def drawn(random: Random, table: Iterable[Fault], left_out: Iterable[str]) -> tuple[Fault, ...]:
    """Faults of a scenario: none, or some of a table, more or less often than usual."""
    if random.random() < 0.3:
        return ()
    excluded = set(left_out)
    factor = random.choice((0.3, 1.0, 3.0))
    return tuple(
        replace(fault, chance=min(0.9, fault.chance * factor))
        for fault in table
        if fault.defect not in excluded and random.random() < 0.3
    )

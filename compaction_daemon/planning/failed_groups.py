"""The groups of a table whose rewrite failed, as long as their files are live.

One bad file must not keep the rest of a table from being compacted. So the files of a failed group are set apart: they
are left alone for a while, and then they are tried again by themselves. Each failure doubles the wait, and a group that
fails again is tried in halves from then on, so that in the end few files are left with the bad one.

Groups that were on their way when a worker was lost are set apart as well, since one of them may be the reason. They
are tried again at once, one at a time. Only a group that loses its worker then is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.errors import (
    CompactionGrowthError,
    CompactionVerificationError,
    DataFileDamagedError,
    RetryableError,
    TidelogError,
    WorkerLostError,
)

FIRST_WAIT_S = 300.0
LONGEST_WAIT_S = 86_400.0
# A smaller group would have a file by itself, which nothing is packed with.
_FEWEST_TO_HALVE = 4
# Another try at once would end the same way, and leave the evidence of a refusal once more.
_LASTING = (CompactionGrowthError, CompactionVerificationError)


@dataclass(frozen=True, slots=True, eq=False)
class GroupFailure:
    """Why the files of a group are set apart; all of them have the same one.

    Args:
        kind: The type of the last error.
        code: Its code.
        error: Its text.
        tries: How often the group failed; 0 if it was only on its way when a worker was lost.
        due_s: When it is tried again, by a clock that never steps backwards.
    """

    kind: type[Exception]
    code: str
    error: str
    tries: int
    due_s: float

    @property
    def is_left_alone(self) -> bool:
        """Whether somebody should know. A group that would grow is as good as it can be."""
        return self.tries > 0 and not issubclass(self.kind, CompactionGrowthError)


class FailedGroups:
    """The failed groups of one table, by the paths of their files as the log spells them."""

    def __init__(self) -> None:
        self._by_path: dict[str, GroupFailure] = {}

    def __len__(self) -> int:
        return len(self._failures())

    def left_alone(self) -> tuple[GroupFailure, ...]:
        """The failures that somebody should know of, the newest one last."""
        return tuple(failure for failure in self._failures() if failure.is_left_alone)

    def fail(self, paths: Sequence[str], error: Exception, now_s: float) -> bool:
        """Remember that a group failed. Returns whether it is news: it had not failed before, or with another error.

        If the error names one of the files as damaged, the others are not set apart.
        """
        before = max(self._of(paths), key=lambda failure: failure.tries, default=None)
        tries = 1 + (before.tries if before else 0)
        self._forget(paths)
        if isinstance(error, DataFileDamagedError) and error.fields.get("file") in paths:
            paths = [error.file]
        # More doublings than these are beyond the longest wait.
        wait_s = LONGEST_WAIT_S if isinstance(error, _LASTING) else FIRST_WAIT_S * 2.0 ** min(tries - 1, 16)
        middle = len(paths) // 2 if tries > 1 and len(paths) >= _FEWEST_TO_HALVE else 0
        for part in filter(None, (paths[:middle], paths[middle:])):
            self._set(part, error, tries, now_s + min(wait_s, LONGEST_WAIT_S))
        return before is None or not before.tries or before.kind is not type(error)

    def suspect(self, paths: Sequence[str], error: WorkerLostError, now_s: float) -> None:
        """Remember a group that was on its way when a worker was lost."""
        self._set(paths, error, 0, now_s)

    def is_suspect(self, paths: Iterable[str]) -> bool:
        """Whether a group must be tried alone, because it may have cost a worker."""
        return any(issubclass(failure.kind, WorkerLostError) for failure in self._of(paths))

    def apart(self, now_s: float) -> dict[str, int]:
        """The files that are set apart: by path the number of their group, negative as long as it is left alone."""
        signed = {
            failure: -number if now_s < failure.due_s else number for number, failure in enumerate(self._failures(), 1)
        }
        return {path: signed[failure] for path, failure in self._by_path.items()}

    def keep_live(self, live: pa.ChunkedArray, now_s: float) -> None:
        """Forget files that are not among the live ones, and groups that nothing has come of for long.

        What is left of such a group can be too small for a rewrite by itself. Its files are packed with others again.
        """
        if not self._by_path:
            return
        kept = set(live.filter(pc.is_in(live, value_set=pa.array(self._by_path, live.type))).to_pylist())
        self._by_path = {
            path: failure
            for path, failure in self._by_path.items()
            if path in kept and now_s < failure.due_s + LONGEST_WAIT_S
        }

    def clear(self) -> None:
        """Forget all: there is another table now."""
        self._by_path.clear()

    def _failures(self) -> list[GroupFailure]:
        return list(dict.fromkeys(self._by_path.values()))

    def _of(self, paths: Iterable[str]) -> list[GroupFailure]:
        return [self._by_path[path] for path in paths if path in self._by_path]

    def _set(self, paths: Sequence[str], error: Exception, tries: int, due_s: float) -> None:
        # Removed first, so that the newest failure is the last one.
        self._forget(paths)
        self._by_path.update(
            dict.fromkeys(paths, GroupFailure(type(error), code_of(error), text_of(error), tries, due_s))
        )

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._by_path.pop(path, None)


def code_of(error: Exception) -> str:
    """The code of an error of a group; that of a RetryableError if tidelog does not expect it."""
    return error.code if isinstance(error, TidelogError) else RetryableError.code


def text_of(error: Exception) -> str:
    """The text of an error of a group, with the type if tidelog does not expect it."""
    return str(error) if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"

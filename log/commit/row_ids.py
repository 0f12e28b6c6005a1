"""Row tracking at the commit: ids and commit versions for the files that a commit adds.

The ids follow the table's high-water mark, and a commit version is the number of the commit's own version. Both depend
on the version that the commit follows, so they are assigned at each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow.compute as pc

from tidelog.log.conflict.staged import Staged
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.format import row_tracking, statistics
from tidelog.log.format.actions import Action, AddFile, RemoveFile
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store


def with_new_ids(actions: Sequence[Action], staged: Staged, state: LogState, store: Store) -> list[Action]:
    """The actions of a commit on `state`, with ids for the rows of each file that has none yet, and the new mark.

    A file that was in the table before keeps its ids and its commit version. A table without row tracking gets the
    actions as they are. Raises CorruptLogError if the table's mark is unusable, or new ids would repeat old ones.
    """
    head = state.head
    if not row_tracking.assigns_ids(staged.protocol or head.protocol, staged.metadata or head.metadata):
        return list(actions)
    old = mark = row_tracking.high_water_mark(head.domains, store.url)
    if any(isinstance(action, AddFile) and action.base_row_id is None for action in actions):
        _require_unused(mark, actions, state, store.url)
    tracked: list[Action] = []
    for action in actions:
        if not isinstance(action, AddFile):
            tracked.append(action)
            continue
        add = action
        if add.base_row_id is None:
            add = msgspec.structs.replace(add, base_row_id=mark + 1)
            rows = statistics.num_records(add.stats)
            # A file of another engine that a RESTORE brings back can lack statistics.
            mark += physical_rows(store, DataFile.of(add)) if rows is None else rows
        if add.default_row_commit_version is None:
            add = msgspec.structs.replace(add, default_row_commit_version=head.version + 1)
        tracked.append(add)
    return tracked if mark == old else [*tracked, row_tracking.mark_action(mark)]


def _require_unused(mark: int, actions: Sequence[Action], state: LogState, path: str) -> None:
    """Raise CorruptLogError if ids above the mark are in use, as far as that shows without the table's list of files.

    That list is read only for a table with files and without a mark: one to which the feature was added later, once.
    """
    known = [action.base_row_id for action in actions if isinstance(action, AddFile | RemoveFile)]
    highest = max((row_id for row_id in known if row_id is not None), default=-1)
    totals = state.head.totals
    if row_tracking.DOMAIN not in state.head.domains and (totals is None or totals.num_files):
        live = pc.max(state.files().adds["baseRowId"]).as_py()
        highest = highest if live is None else max(highest, live)
    row_tracking.require_mark(mark, highest, path)

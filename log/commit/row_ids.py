"""Row tracking at the commit: ids and commit versions for the files that a commit adds.

The ids follow the table's high-water mark, and a commit version is the number of the commit's own version. Both depend
on the version that the commit follows, so they are assigned at each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.log.conflict.staged import Staged
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.format import row_tracking, statistics
from tidelog.log.format.actions import Action, AddFile
from tidelog.log.state.head import Head
from tidelog.log.storage import Store


def with_new_ids(actions: Sequence[Action], staged: Staged, head: Head, store: Store) -> list[Action]:
    """The actions of a commit on `head`, with ids for the rows of each file that has none yet, and the new mark.

    A file that was in the table before keeps its ids and its commit version. A table without row tracking gets the
    actions as they are. Raises CorruptLogError if the table's mark is unusable.
    """
    if not row_tracking.assigns_ids(staged.protocol or head.protocol, staged.metadata or head.metadata):
        return list(actions)
    old = mark = row_tracking.high_water_mark(head.domains, store.url)
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

"""How far clean-up has gone, as the log says it, and whether it has passed a position."""

from __future__ import annotations

from tidelog.log.conflict.fences import floor_of, horizon_of
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.state.commits import is_there
from tidelog.log.state.head import Head
from tidelog.log.state.loader import load
from tidelog.log.state.segment import earliest_version, range_error
from tidelog.log.state.table_identity import require_current
from tidelog.log.storage import Store


def needed_version(position: int, head: Head) -> int:
    """The oldest version that a consumer at `position` needs: that one, or the table's first."""
    return max(position, head.first_version)


def look(store: Store, table_id: str, position: int) -> Head:
    """Read the newest state of the log, and require that no clean-up has passed `position`. Returns the head.

    Raises HistoryExpiredError, naming the horizon and the floor; TableReplacedError, TableNotFoundError.
    """
    head = load(store).head
    require_current(store.url, table_id, head, advice="a consumer of the old table has to be registered again")
    if position > head.version:
        raise range_error(
            store, f"version {position} does not exist yet", earliest_version(store, head.version), head.version
        )
    needed, horizon, floor = needed_version(position, head), horizon_of(head.transactions), floor_of(head.transactions)
    is_left = position >= head.version or is_there(store, needed if position < head.first_version else position + 1)
    if max(horizon, floor) <= needed and is_left:
        return head
    earliest = earliest_position(store, head)
    raise HistoryExpiredError(
        f"a clean-up of {store.url} has passed version {position}: the horizon is {horizon} and the floor is {floor}",
        advice=f"start at version {earliest} or later, or with a snapshot",
        path=store.url,
        earliest_version=earliest,
        latest_version=head.version,
        horizon=horizon,
        floor=floor,
    )


def earliest_position(store: Store, head: Head) -> int:
    """The oldest position at which a consumer can be registered now."""
    first = head.first_version
    bound = max(horizon_of(head.transactions), floor_of(head.transactions))
    if bound <= first and is_there(store, first):
        return first - 1
    return max(bound, first, earliest_version(store, head.version))

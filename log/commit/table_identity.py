"""Whether the table at a path is still the one that was opened."""

from __future__ import annotations

from tidelog.log.errors import TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.storage import Store


def written_ms(store: Store, version: int) -> int | None:
    """When the version's commit file was written, by the store's clock; None if it no longer exists.

    After a drop, a new table at the same path can have a longer log than the old one, so finding the next version does
    not prove that the table is the same. The modification time of the loaded version does.
    """
    try:
        return store.modified_ms(filenames.commit_path(version))
    except FileNotFoundError:
        return None


def require_same_table(path: str, expected_id: str, found_id: str, *, advice: str) -> None:
    """Raise TableReplacedError if the ids of the table that was opened and the one at `path` differ."""
    if found_id != expected_id:
        raise TableReplacedError(
            f"the table at {path} has been replaced by another one",
            advice=advice,
            path=path,
            expected_id=expected_id,
            found_id=found_id,
        )

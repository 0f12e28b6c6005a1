"""Whether the table that lies at a path is still the one that was opened."""

from __future__ import annotations

from tidelog.log.errors import TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.storage import Store


def written_ms(store: Store, version: int) -> int | None:
    """When the version's commit was written, as the store tells; None where it is gone.

    A table that was dropped and made anew can have a longer log than the old one, so that the next version is there:
    only a look at the version that was loaded tells them apart.
    """
    try:
        return store.modified_ms(filenames.commit_path(version))
    except FileNotFoundError:
        return None


def require_same_table(path: str, expected_id: str, found_id: str, *, advice: str) -> None:
    """Raise TableReplacedError where the table at `path` is not the one with `expected_id`."""
    if found_id != expected_id:
        raise TableReplacedError(
            f"another table lies at {path} now",
            advice=advice,
            path=path,
            expected_id=expected_id,
            found_id=found_id,
        )

"""Whether the table that lies at a path is still the one that was opened."""

from __future__ import annotations

from tidelog.log.errors import TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.state.head import Head
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


def require_same_table(store: Store, opened: Head, found: Head) -> None:
    """Raise TableReplacedError where `found` is the head of another table than the one that was opened."""
    if found.metadata.id != opened.metadata.id:
        raise TableReplacedError(
            f"another table lies at {store.url} now",
            advice="open it anew; a stream that followed the old one needs a new checkpoint",
            path=store.url,
            expected_id=opened.metadata.id,
            found_id=found.metadata.id,
        )

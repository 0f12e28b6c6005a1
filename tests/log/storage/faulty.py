"""An object store over a network that fails on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.log.storage.proxy import Proxy
from tests.log.support import NUMBERS, Clock
from tidelog.log import Table
from tidelog.log.storage.object_store import ObjectStore


@dataclass
class Faulty:
    """A store on moto behind a proxy, with a clock that does not wait."""

    proxy: Proxy
    store: ObjectStore
    clock: Clock

    def table(self) -> Table:
        """A new table in the store. The proxy counts only the requests that follow."""
        Table.create(self.store.url, NUMBERS, storage_options=self.options)
        self.proxy.seen.clear()
        return Table.open(self.store.url, storage_options=self.options)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.store.storage_options)

"""An object store over a network that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.log.storage.proxy import Proxy, in_front_of
from tests.log.storage.servers import AZURITE_ACCOUNT, Server
from tests.log.support import NUMBERS, Clock
from tidelog.log import Table
from tidelog.log.storage.object_store import ObjectStore


@dataclass
class Faulty:
    """A store on a server behind a proxy, with a clock that does not wait."""

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


@contextmanager
def behind_a_proxy(server: Server) -> Iterator[Faulty]:
    """A new store on the server; all its requests go through the proxy."""
    origin = server.endpoint.removesuffix(f"/{AZURITE_ACCOUNT}")
    with in_front_of(origin) as proxy:
        options = {name: value.replace(origin, proxy.endpoint) for name, value in server.options.items()}
        clock = Clock()
        yield Faulty(proxy, ObjectStore(server.store().url, options, system=clock), clock)

"""The contract on every object store that can be had here, and whole tables on S3."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.storage.contract import StoreContract
from tests.log.storage.servers import Server
from tidelog.log.storage import Store


class OnServer(StoreContract):
    name: str
    races = 4

    @pytest.fixture
    def server(self, server_of: Callable[[str], Server]) -> Server:
        return server_of(self.name)

    @pytest.fixture
    def store(self, server: Server) -> Store:
        return server.store()


class TestS3OnMoto(OnServer):
    name = "moto"


class TestS3OnVersityGateway(OnServer):
    name = "versitygw"


class TestS3OnMinIO(OnServer):
    name = "minio"


class TestGCSOnFakeGCSServer(OnServer):
    name = "fake-gcs-server"


class TestAzureOnAzurite(OnServer):
    name = "azurite"

"""The store contract on every object store available here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.storage import servers
from tests.log.storage.contract import StoreContract
from tests.log.storage.servers import Server, UnavailableError
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


@pytest.mark.full
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


# --- unavailable servers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "reason"), [(None, "is not installed"), ("/bin/false", "failed")])
@pytest.mark.parametrize("name", ["versitygw", "fake-gcs-server", "azurite"])
def test_a_server_that_cannot_be_installed_gives_the_reason(
    name: str, tool: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("go", "npm"):
        (tmp_path / program).symlink_to("/bin/false")
    monkeypatch.setattr(servers, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(shutil, "which", lambda _: tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=reason), servers.SERVERS[name](tmp_path):
        pass

"""The HTTP server of the page."""

from __future__ import annotations

import gzip
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest

from tests.compaction_daemon.observing.tables import busy_table, daemon_status, table_status
from tidelog.compaction_daemon import DaemonStatus, PageServer, TableState
from tidelog.compaction_daemon.observing import server as server_module
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, RetryableError, StoreUnavailableError, TidelogError

SECRET = "s3://key:hunter2@bucket/t?X-Amz-Signature=hunter2"


class Site:
    """A server whose daemon can be changed."""

    def __init__(self, table: Table) -> None:
        self.table = table
        secret = table_status(
            SECRET, TableState.FAILING, error=f"TIDELOG_X: {SECRET} does not answer", held_by="https://u:hunter2@host"
        )
        self.status: DaemonStatus | Exception = daemon_status(table_status(self.table.path), secret)
        self.opened: list[str] = []
        self.may_open = threading.Event()
        self.may_open.set()
        self.server = PageServer(self._status, self._open)
        self.server.start()

    def _status(self) -> DaemonStatus:
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def _open(self, path: str) -> Table:
        self.opened.append(path)
        self.may_open.wait(30)
        if path == SECRET:
            raise StoreUnavailableError(f"{SECRET} does not answer", advice="wait")
        return Table.open(path)

    def get(self, target: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(method, target, headers=headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, target: str) -> Any:
        return json.loads(self.get(target)[2])


@pytest.fixture(scope="module")
def table() -> Table:
    return busy_table(rounds=1)


@pytest.fixture
def site(table: Table) -> Iterator[Site]:
    found = Site(table)
    yield found
    found.server.stop()


def test_the_page_and_its_files(site: Site) -> None:
    for target, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, content = site.get(target)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert content
        again, _, nothing = site.get(target, **{"If-None-Match": headers["etag"]})
        assert (again, nothing) == (304, b"")
    assert site.get("/vendor/chart.umd.min.js")[0] == 200


@pytest.mark.parametrize("target", ["/page.py", "/../server.py", "/vendor/", "/index.html", "/%2e%2e/page.py", "//x/"])
def test_nothing_else_is_served(site: Site, target: str) -> None:
    assert site.get(target)[0] == 404


def test_the_status(site: Site) -> None:
    found = site.json("/api/status")
    assert [table["state"] for table in found["tables"]] == ["watched", "failing"]
    assert found["steps"] == 18_322
    assert len(found["tables"][0]["trend"]) <= 40
    assert found["tables"][0]["trend"][-1][1] == found["tables"][0]["debt"]["small_files"]
    assert found["tables"][0]["lag"]["consumers"] == 2
    assert found["health"]["healthy"]


def test_the_report_of_a_watched_table(site: Site) -> None:
    found = site.json(f"/api/table?path={quote(site.table.path)}")
    assert found["version"] == site.table.version
    assert len(found["versions"]) == site.table.version + 1


def test_what_is_due_is_planned_as_the_daemon_plans(site: Site) -> None:
    site.status = daemon_status(table_status(site.table.path), request=CompactionRequest("minor", growth=100.0))
    found = site.json(f"/api/table?path={quote(site.table.path)}")
    assert [plan["level"] for plan in found["plans"]] == ["minor", "major"]


@pytest.mark.parametrize("path", ["", "/etc/passwd", "memory://other", SECRET])
def test_other_paths_are_not_opened(site: Site, path: str) -> None:
    assert site.get(f"/api/table?path={quote(path)}")[0] == 404
    assert site.opened == []


def test_a_report_is_made_once_for_many_readers(site: Site) -> None:
    target = f"/api/table?path={quote(site.table.path)}"
    threads = [threading.Thread(target=site.get, args=(target,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.opened == [site.table.path]


def test_no_answer_has_a_credential(site: Site) -> None:
    shown = site.json("/api/status")["tables"][1]["path"]
    assert shown == "s3://***@bucket/t?X-Amz-Signature=***"
    status, _, content = site.get(f"/api/table?path={quote(shown)}")
    assert status == 502
    assert json.loads(content)["code"] == "TIDELOG_STORE_UNAVAILABLE"
    assert site.opened[-1] == SECRET
    for target in ("/api/status", "/metrics", "/healthz", f"/api/table?path={quote(SECRET)}", f"/{SECRET}"):
        assert b"hunter2" not in site.get(target)[2]


def test_metrics(site: Site) -> None:
    status, headers, content = site.get("/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert f'tidelog_table_consumers{{table="{site.table.path}"}} 2.0'.encode() in content


def test_health(site: Site) -> None:
    assert site.get("/healthz")[0] == 200
    assert site.json("/healthz")["tables"] == {"failing": 1, "watched": 1}
    site.status = daemon_status(stalled=True)
    status, _, content = site.get("/healthz")
    assert (status, json.loads(content)["reason"]) == (503, "a step takes longer than it should ever take")


def test_a_daemon_without_a_status_is_not_healthy_and_tells_no_details(site: Site) -> None:
    site.status = RuntimeError("hunter2")
    assert site.get("/healthz")[0] == 503
    status, _, content = site.get("/api/status")
    assert status == 500
    assert b"hunter2" not in content


def test_head_has_the_headers_of_get(site: Site) -> None:
    _, headers, content = site.get("/api/status")
    status, head, nothing = site.get("/api/status", "HEAD")
    assert (status, nothing, head["content-type"]) == (200, b"", headers["content-type"])
    assert abs(int(head["content-length"]) - len(content)) < 100


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    status, headers, _ = site.get("/api/status", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_forbids_requests_to_elsewhere(site: Site) -> None:
    for target in ("/", "/api/status", "/nowhere", "/metrics"):
        headers = site.get(target)[1]
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert not {name for name in headers if name.startswith("access-control")}
        assert "python" not in headers["server"].lower()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "localhost@evil"]
)
def test_a_name_from_elsewhere_for_this_machine_is_refused(site: Site, host: str) -> None:
    assert site.get("/api/status", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"])
def test_the_names_of_this_machine_are_served(site: Site, host: str) -> None:
    assert site.get("/api/status", Host=host)[0] == 200


def test_requests_are_bounded(site: Site) -> None:
    assert site.get("/" + "x" * 9000)[0] == 414
    assert site.get("/", **{f"X-{number}": "x" for number in range(60)})[0] == 431
    assert site.get("/", **{"Content-Length": "5"})[0] == 400
    assert site.get("/api/table?" + "&".join(f"a{number}=1" for number in range(9)))[0] == 400
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=30) as raw:
        raw.sendall(b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(100).split()[1] == b"400"


def test_large_answers_are_compressed_if_the_client_can_read_that(site: Site) -> None:
    _, headers, content = site.get("/page.js", **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(content) == site.get("/page.js")[2]


@contextmanager
def silent(site: Site, number: int) -> Iterator[list[socket.socket]]:
    """Connections that begin a request and do not end it."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(socket.create_connection(("127.0.0.1", site.server.port), timeout=30))
            for _ in range(number)
        ]
        for connection in found:
            connection.sendall(b"GET / HTTP/1.0\r\n")
        yield found


def test_clients_that_are_slow_to_ask_keep_nobody_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2 * server_module.MAX_REQUESTS)
    with silent(site, server_module.MAX_REQUESTS):
        for target in ("/healthz", "/metrics", "/api/status", "/"):
            assert site.get(target)[0] == 200, target
    with silent(site, 2 * server_module.MAX_CONNECTIONS + 1) as connections:
        assert site.get("/healthz")[0] == 200
        with suppress(ConnectionError):  # closed with what it had sent unread
            assert connections[0].recv(1) == b"", "the slowest gives way"
        connections[-1].sendall(b"\r\n")
        assert connections[-1].recv(12) == b"HTTP/1.0 403", "the newest one does not, and is answered: it named no host"


def test_health_and_metrics_do_not_wait_for_those_who_have_all_places(site: Site) -> None:
    # Of this table no facts are looked up, so only its report waits.
    site.status = daemon_status(table_status(site.table.path, version=None))
    site.may_open.clear()
    target = f"/api/table?path={quote(site.table.path)}"

    def read() -> None:
        while site.get(target)[0] == 503:
            pass  # a look below had the last place

    readers = [threading.Thread(target=read) for _ in range(server_module.MAX_REQUESTS)]
    for reader in readers:
        reader.start()
    try:
        while site.get("/")[0] != 503:
            pass  # not all of them have a place yet
        assert site.get("/")[1]["retry-after"] == "1"
        assert site.get("/healthz")[0] == 200
        assert site.get("/metrics")[0] == 200
    finally:
        site.may_open.set()
        for reader in readers:
            reader.join()
    assert site.get("/")[0] == 200


def test_it_listens_on_this_machine_unless_told_otherwise() -> None:
    local = PageServer(daemon_status, Table.open)
    assert (local.is_local, local.address) == (True, f"http://127.0.0.1:{local.port}")
    local.stop()
    everywhere = PageServer(daemon_status, Table.open, host="0.0.0.0")
    assert not everywhere.is_local
    everywhere.start()
    connection = http.client.HTTPConnection("127.0.0.1", everywhere.port, timeout=30)
    connection.request("GET", "/healthz", headers={"Host": "tables.example"})
    assert connection.getresponse().status in {200, 503}
    connection.close()
    everywhere.stop()


def test_a_port_in_use_is_a_clear_error(site: Site) -> None:
    with pytest.raises(RetryableError, match="cannot listen on"):
        PageServer(daemon_status, Table.open, port=site.server.port)


@pytest.mark.parametrize(
    ("host", "port", "kind"), [("no.such.host.invalid", 0, RetryableError), ("127.0.0.1", 70_000, ConfigurationError)]
)
def test_an_address_that_is_none_is_a_clear_error(host: str, port: int, kind: type[TidelogError]) -> None:
    with pytest.raises(kind, match="cannot listen on"):
        PageServer(daemon_status, Table.open, host=host, port=port)


def test_a_client_that_sends_its_request_slowly_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_TIMEOUT_S", 0.3)
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=30) as connection:
        began_s = time.monotonic()
        try:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n")
            while not select.select([connection], [], [], 0.05)[0]:
                connection.sendall(b"X")  # more often than the timeout
            assert connection.recv(1) == b""
        except ConnectionError:
            pass  # cut off with what was sent unread
        assert time.monotonic() - began_s >= 0.3
    assert site.get("/healthz")[0] == 200


def test_a_stopped_server_answers_nobody(site: Site) -> None:
    site.server.stop()
    with pytest.raises(ConnectionError):
        site.get("/healthz")

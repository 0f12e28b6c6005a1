"""The HTTP server of the page: what a daemon knows, for a browser, Prometheus and health checks.

It answers GET and HEAD only and changes nothing, so it needs no login; by default it listens on this machine only.

- `/`: the page
- `/api/status`: the daemon and its tables, as JSON
- `/api/table?path=...`: what the log of one of these tables says, as JSON
- `/metrics`: Prometheus
- `/healthz`: 200 while the daemon's loop gets on, 503 if it hangs, with the reason as JSON
"""

from __future__ import annotations

import errno
import gzip
import io
import ipaddress
import json
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tidelog.compaction_daemon.observing.live_status import FactsCache, health_builtins, live_builtins, shown_names
from tidelog.compaction_daemon.observing.page import SERVED_POLICY, static_files
from tidelog.compaction_daemon.observing.safe_json import json_bytes, safe_builtins
from tidelog.compaction_daemon.observing.table_report import report_of
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.compaction_daemon.process.daemon_status import DaemonStatus, TableStatus
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, RetryableError, TidelogError
from tidelog.log.system import REAL_SYSTEM, System, logger

_LOGGER = logger(__name__)

# A few people with a browser and a Prometheus need less; a request beyond it is refused at once. Metrics have places of
# their own. Health needs none: its answer takes no time, and fits into the buffer of a connection that nobody reads.
MAX_REQUESTS = 16
_MAX_SCRAPES = 2
# Each connection is a thread. It needs a place only when it has sent its whole request, so that one that is slow to do
# so takes nobody's. Beyond this number the slowest of them gives way to a new one, which can be a check of health.
MAX_CONNECTIONS = 64
# A client that has not sent its whole request by then, or does not read the answer for as long, is cut off.
_TIMEOUT_S = 10.0
_MAX_TARGET = 8_192
_MAX_HEADERS = 50
_MAX_ARGUMENTS = 4
# Smaller answers gain nothing from compression.
_LEAST_COMPRESSED = 4_096
_STOP_POLL_S = 0.05
_TOO_MANY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
# A report of some hundred kilobytes is kept for the tables that people look at.
_MAX_REPORTS = 16
# A page that is open asks every few seconds. The report of a table without news is made again after a while, since
# consumers move on and conflicts happen without a new version.
_FRESH_S, _SAME_VERSION_S = 3.0, 30.0
# Each takes a processor, which the daemon's own work needs.
_AT_ONCE = 2
# A second reader of the same table waits for the report that is being made.
_WAIT_S = 30.0

_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": SERVED_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content: bytes
    content_type: str = _JSON
    headers: dict[str, str] = field(default_factory=dict)


class PageServer:
    """Serves the page of a daemon from a thread of its own.

    Args:
        status: Returns the daemon's status; called from the server's threads.
        open_table: Opens a table of the status at its newest version, by its path; called from the server's threads.
            The server does not share what it returns with another thread.
        host: The address to listen on. Default: only this machine can connect.
        port: The TCP port; 0 takes a free one.
        system: The clock.

    Raises:
        ConfigurationError: The address or the port is not valid.
        RetryableError: Another program has the port, or this machine does not have the address now.
    """

    def __init__(
        self,
        status: Callable[[], DaemonStatus],
        open_table: Callable[[str], Table],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        system: System = REAL_SYSTEM,
    ) -> None:
        facts = FactsCache(open_table, system)
        self._routes = _Routes(status, facts, _ReportCache(open_table, system))
        try:
            self._server = _Server((host, port), self._routes)
        except (OSError, OverflowError) as error:
            is_passing = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
            kind = RetryableError if is_passing or isinstance(error, socket.gaierror) else ConfigurationError
            raise kind(f"cannot listen on {host}:{port}: {error}", advice="choose another address or port") from error
        self._host = host
        self._thread = Thread(target=self._server.serve_forever, args=(_STOP_POLL_S,), name="tidelog-page", daemon=True)

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """The URL of the page, such as `http://127.0.0.1:8080`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self._server.is_local

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and return when the server's thread has ended. Requests in hand are finished in theirs."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Answers each request in a thread, and refuses those that are too many."""

    daemon_threads = True
    # A request can take seconds, and nothing depends on its end.
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], routes: _Routes) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.routes = routes
        self.is_local = ipaddress.ip_address(self.server_name).is_loopback
        self._places = BoundedSemaphore(MAX_REQUESTS)
        self._scrapes = BoundedSemaphore(_MAX_SCRAPES)
        self._lock = Lock()
        # The connections whose request is not whole yet, the oldest first; and how many others there are.
        self._sending: dict[socket.socket, None] = {}
        self._answered = 0

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which `HTTPServer` does and which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, if need be in the place of the one that is slowest to send its request."""
        with self._lock:
            is_full = len(self._sending) + self._answered >= MAX_CONNECTIONS
            slowest = next(iter(self._sending), None) if is_full else None
            if slowest is not None:
                del self._sending[slowest]
            if slowest is not None or not is_full:
                self._sending[request] = None
        if slowest is not None:
            with suppress(OSError):  # its own thread may have closed it
                slowest.shutdown(socket.SHUT_RDWR)
        elif is_full:
            with suppress(OSError):
                request.sendall(_TOO_MANY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            with self._lock:
                self._sending.pop(request, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the request of a connection, if it sends one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._sending.pop(request, None)

    @contextmanager
    def place(self, request: socket.socket, target: str) -> Iterator[bool]:
        """Whether a whole request is answered: while others of its kind are, it may have no place."""
        own = {"/healthz": None, "/metrics": self._scrapes}
        places = own.get(target.partition("?")[0], self._places)
        with self._lock:
            self._sending.pop(request, None)
            self._answered += 1
        has_place = places is None or places.acquire(blocking=False)
        try:
            yield has_place
        finally:
            if has_place and places is not None:
                places.release()
            with self._lock:
                self._answered -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with a connection, such as a client that went away; it concerns nobody else."""
        del request
        _LOGGER.debug("a request from %s failed", client_address, exc_info=True)  # noqa: LOG014 - called while it is handled


class _Request(io.RawIOBase):
    """What a client sends, within a time for all of it: one that sends a byte now and then would keep its place."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until_s = REAL_SYSTEM.monotonic_s() + _TIMEOUT_S

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError, which the handler ends on, when the time is up."""
        left_s = self._until_s - REAL_SYSTEM.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_TIMEOUT_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S
    server_version, sys_version = "tidelog", ""
    protocol_version = "HTTP/1.0"  # one request for each connection: nothing to keep track of
    error_content_type = _TEXT
    error_message_format = "%(code)d %(message)s\n"
    _own_names: ClassVar[frozenset[str]] = frozenset({"localhost", "127.0.0.1", "::1"})

    def setup(self) -> None:
        """See `socketserver.StreamRequestHandler`."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def do_GET(self) -> None:
        """Answer a GET."""
        self._respond()

    def _refuse_method(self) -> None:
        """Answer any other method."""
        allowed = {"Allow": "GET, HEAD"}
        self._send(replace(_error(HTTPStatus.METHOD_NOT_ALLOWED, "the page can only be read"), headers=allowed))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = _refuse_method  # noqa: N815 - the base class names them so

    def do_HEAD(self) -> None:
        """Answer a HEAD: the headers of a GET."""
        self._respond(with_content=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log a request for those who debug."""
        _LOGGER.debug("%s %s", self.client_address[0], format % args)

    def _respond(self, *, with_content: bool = True) -> None:
        with self.server.place(self.connection, self.path) as has_place:
            self._send(self._answer() if has_place else _busy(), with_content=with_content)

    def _answer(self) -> _Answer:
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        if self.headers.get("If-None-Match"):
            known = static_files().get(self.path)
            if known and known.etag == self.headers["If-None-Match"]:
                return _Answer(HTTPStatus.NOT_MODIFIED, b"", known.content_type, {"ETag": known.etag})
        try:
            return self.server.routes.answer(self.path)
        except Exception:
            # The text of an unforeseen error can quote anything, so it only goes to the log.
            _LOGGER.exception("the page cannot answer %s", self.path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error; the daemon's log has more")

    def _refusal(self) -> _Answer | None:
        """Why the request is not answered at all; None if it is."""
        if len(self.path) > _MAX_TARGET:
            return _error(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        if len(self.headers) > _MAX_HEADERS:
            return _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            return _error(HTTPStatus.BAD_REQUEST, "a request has no content here")
        if self.server.is_local and self._asked_host() not in self._own_names | {str(self.server.server_address[0])}:
            # A page from elsewhere whose name was made to mean this machine (DNS rebinding).
            return _error(HTTPStatus.FORBIDDEN, "use http://localhost, or start the daemon with another address")
        return None

    def _asked_host(self) -> str | None:
        """The name of this server in the request, without its port, which forwarding may have changed."""
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return None

    def _send(self, answer: _Answer, *, with_content: bool = True) -> None:
        content = answer.content
        headers = {"Cache-Control": "no-store", **_HEADERS, **answer.headers, "Content-Type": answer.content_type}
        if len(content) >= _LEAST_COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, compresslevel=1, mtime=0)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_content:
            self.wfile.write(content)


@dataclass(frozen=True, slots=True)
class _Routes:
    """From the target of a request to its answer."""

    status: Callable[[], DaemonStatus]
    facts: FactsCache
    reports: _ReportCache

    def answer(self, target: str) -> _Answer:
        """The answer to a GET."""
        try:
            url = urlsplit(target)
            arguments = parse_qs(url.query, max_num_fields=_MAX_ARGUMENTS)
        except ValueError:
            return _error(HTTPStatus.BAD_REQUEST, "the address is not one of this server")
        if url.path in static_files():
            found = static_files()[url.path]
            return _Answer(
                HTTPStatus.OK, found.content, found.content_type, {"Cache-Control": "no-cache", "ETag": found.etag}
            )
        match url.path:
            case "/api/status":
                status = self.status()
                return _Answer(HTTPStatus.OK, json_bytes(live_builtins(status, self.facts.of(status))))
            case "/api/table":
                return self._table(arguments.get("path", [""])[0])
            case "/metrics":
                # Loading prometheus_client takes a tenth of a second, which no command should wait for.
                from tidelog.compaction_daemon.observing.metrics import DaemonCollector, exposition  # noqa: PLC0415

                content = exposition(DaemonCollector(self.status, self.facts.of))
                return _Answer(HTTPStatus.OK, content, _METRICS)
            case "/healthz":
                return self._health()
            case _:
                return _error(HTTPStatus.NOT_FOUND, "no page at this address")

    def _table(self, name: str) -> _Answer:
        status = self.status()
        names = shown_names(table.path for table in status.tables)
        found = next((table for table in status.tables if names[table.path] == name), None)
        if found is None:
            return _error(HTTPStatus.NOT_FOUND, "the daemon does not watch this table")
        try:
            report = self.reports.of(found, status.request)
        except _BusyError:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "other reports are being made; try again in some seconds")
        except TidelogError as error:
            return _error(HTTPStatus.BAD_GATEWAY, error.message, code=error.code, advice=error.advice)
        return _Answer(HTTPStatus.OK, report)

    def _health(self) -> _Answer:
        try:
            health = health_builtins(self.status())
        except Exception:
            _LOGGER.exception("the daemon has no status")
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the daemon has no status; its log has more")
        status = HTTPStatus.OK if health["healthy"] else HTTPStatus.SERVICE_UNAVAILABLE
        return _Answer(status, json.dumps(health).encode() + b"\n")


def _busy() -> _Answer:
    found = _error(HTTPStatus.SERVICE_UNAVAILABLE, "other requests are being answered; try again in a second")
    return replace(found, headers={"Retry-After": "1"})


def _error(status: HTTPStatus, message: str, **fields: str) -> _Answer:
    return _Answer(status, json_bytes(safe_builtins({"error": message, **fields})))


class _BusyError(Exception):
    """Other reports are being made."""


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    at_s: float
    content: bytes


class _ReportCache:
    """Makes and keeps reports as JSON. Can be used by several threads.

    Args:
        open_table: Opens a table at its newest version.
        system: The clock.
    """

    def __init__(self, open_table: Callable[[str], Table], system: System = REAL_SYSTEM) -> None:
        self._open_table = open_table
        self._system = system
        self._made: OrderedDict[str, _Made] = OrderedDict()
        self._lock = Lock()
        self._making: dict[str, Lock] = {}
        self._places = BoundedSemaphore(_AT_ONCE)

    def of(self, table: TableStatus, due: CompactionRequest) -> bytes:
        """The report of a table: some seconds old, or half a minute if the table has no new version.

        What is due now is what the daemon would do, which plans with `due` and leaves some groups alone.

        Raises:
            _BusyError: Too many reports are being made.
            TidelogError: The table cannot be read.
        """
        path = table.path
        with self._lock:
            turn = self._making.setdefault(path, Lock())
        if not turn.acquire(timeout=_WAIT_S):
            raise _BusyError
        try:
            known = self._made.get(path)
            if known is not None and self._system.monotonic_s() - known.at_s < _FRESH_S:
                return known.content
            if not self._places.acquire(timeout=_WAIT_S):
                raise _BusyError
            try:
                return self._make(table, due, known)
            finally:
                self._places.release()
        finally:
            turn.release()

    def _make(self, status: TableStatus, due: CompactionRequest, known: _Made | None) -> bytes:
        path = status.path
        table = self._open_table(path)
        now_s = self._system.monotonic_s()
        if known is not None and known.version == table.version and now_s - known.at_s < _SAME_VERSION_S:
            return known.content
        report = report_of(table, system=self._system, due=due, apart=status.apart)
        content = json_bytes(report.to_dict())
        with self._lock:
            self._made[path] = _Made(table.version, self._system.monotonic_s(), content)
            self._made.move_to_end(path)
            while len(self._made) > _MAX_REPORTS:
                oldest, _ = self._made.popitem(last=False)
                self._making.pop(oldest, None)
        return content

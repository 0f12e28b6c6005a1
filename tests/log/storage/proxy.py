"""An HTTP proxy that fails like networks and servers: before or after the server has carried out the request."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Fault(Enum):
    DROPPED_BEFORE = "the connection breaks before the request reaches the server"
    DROPPED_AFTER = "the server carries it out and the connection breaks before the answer"
    HELD = "the connection breaks, and the server carries the request out when the proxy releases it"
    GONE_AFTER = "the server carries it out, and goes down without an answer: nobody can connect any more"
    ERROR_AFTER = "the server carries it out and the answer is 500"
    SLOW_DOWN = "the answer is 503 SlowDown and nothing is done"
    TOO_MANY = "the answer is 429 and nothing is done"
    CONFLICT = "the answer is 409 ConditionalRequestConflict and nothing is done"
    DENIED = "the answer is 403 AccessDenied"
    UNCONDITIONAL = "the server does not know If-None-Match"


_ANSWERS = {
    Fault.ERROR_AFTER: (500, "InternalError"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.DENIED: (403, "AccessDenied"),
}


@dataclass
class Rule:
    """Apply a fault to `times` requests with this method and a path that contains `part`."""

    fault: Fault
    method: str
    part: str
    times: int = 1


@dataclass
class Proxy:
    endpoint: str
    rules: list[Rule] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    held: list[Callable[[], int]] = field(default_factory=list)

    def release(self) -> list[int]:
        """Let the held requests through, and return the server's answers to them."""
        answers = [send() for send in self.held]
        self.held.clear()
        return answers

    def strike(self, fault: Fault, method: str, part: str, times: int = 1) -> Rule:
        self.rules.append(Rule(fault, method, part, times))
        return self.rules[-1]

    def count(self, method: str, part: str) -> int:
        return sum(request.startswith(f"{method} ") and part in request for request in self.seen)


_HOP = {"connection", "transfer-encoding", "keep-alive", "server", "date"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.proxy = Proxy(f"http://127.0.0.1:{self.server_address[1]}")
        self.lock = threading.Lock()
        self.gone = False

    def go_down(self) -> None:
        """Refuse new connections; those that are open break at their next request."""
        self.gone = True
        self.shutdown()  # first: the kernel accepts connections while the serving thread waits for one
        self.server_close()

    def fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.proxy.seen.append(f"{method} {path}")
            for rule in self.proxy.rules:
                if rule.times and rule.method == method and rule.part in path:
                    rule.times -= 1
                    return rule.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.gone:
            return self.drop()
        fault = self.server.fault(self.command, self.path)
        if fault in {Fault.SLOW_DOWN, Fault.TOO_MANY, Fault.CONFLICT, Fault.DENIED}:
            return self.refuse(fault)
        if fault is Fault.DROPPED_BEFORE:
            return self.drop()
        if fault is Fault.HELD:
            self.server.proxy.held.append(lambda: self.forward(body)[0].status)
            return self.drop()
        if fault is Fault.UNCONDITIONAL:
            del self.headers["If-None-Match"]
        response, content = self.forward(body)
        if fault is Fault.GONE_AFTER:
            self.server.go_down()
        if fault in {Fault.DROPPED_AFTER, Fault.GONE_AFTER}:
            return self.drop()
        if fault is Fault.ERROR_AFTER:
            return self.refuse(fault)
        headers = {name: value for name, value in response.getheaders() if name.lower() not in _HOP}
        length = headers.pop("Content-Length", None) if self.command == "HEAD" else None
        return self.answer(response.status, headers, content, length or str(len(content)))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - the names that http.server expects

    def forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            return response, response.read()

    def refuse(self, fault: Fault) -> None:
        status, code = _ANSWERS[fault]
        content = f"<Error><Code>{code}</Code><Message>{fault.value}</Message></Error>".encode()
        self.answer(status, {"Content-Type": "application/xml"}, content, str(len(content)))

    def answer(self, status: int, headers: dict[str, str], content: bytes, length: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def drop(self) -> None:
        self.close_connection = True
        self.connection.close()


@contextmanager
def in_front_of(target: str) -> Iterator[Proxy]:
    server = _Server(target)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Open the page in a browser and watch it: what it asks for, what it complains about, how it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from tests.compaction_daemon.observing.tables import daemon_status
from tidelog.compaction_daemon import DaemonStatus, PageServer, TableStatus
from tidelog.log import Table
from tidelog.log.system import REAL_SYSTEM, System

PHONE, DESK = (360, 740), (1280, 900)
AUDIT = (Path(__file__).parent / "audit.js").read_text()

Theme = Literal["light", "dark"]


@dataclass
class Visit:
    """A page, with what it asked for and what went wrong in it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def overflow(self) -> list[str]:
        """The elements that make the page wider than the window."""
        found: list[str] = self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("*")]
                .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !node.closest(".scroll"))
                .map((node) => node.outerHTML.slice(0, 200))"""
        )
        return found

    def faults(self) -> list[str]:
        """What a look at names, roles and contrast finds."""
        found: list[str] = self.page.evaluate(AUDIT)
        return found

    def focused(self) -> str:
        """What has the focus: its id, its name or its text."""
        found: str = self.page.evaluate(
            """() => { const node = document.activeElement; return node.id || node.getAttribute("aria-label")
                || (node.labels && node.labels[0] ? node.labels[0].textContent : "") || node.textContent; }"""
        )
        return found


def origin(url: str) -> str:
    """The scheme, host and port of a URL; of a file, the file."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else url.partition("#")[0]


@contextmanager
def visit(
    browser: Browser, address: str, *, size: tuple[int, int] = DESK, theme: Theme = "light", **options: Any
) -> Iterator[Visit]:
    """Open an address; afterwards nothing may have gone wrong in the page and nothing been asked of other hosts."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,
        reduced_motion="reduce",  # colours change at once, so that a look at the contrast finds the final ones
        timezone_id="Europe/Berlin",
        **options,
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    seen = Visit(page)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    try:
        page.goto(address)
        yield seen
        assert seen.complaints == []
        own = origin(page.url)
        assert [url for url in seen.requests if origin(url) != own] == []
    finally:
        context.close()


@contextmanager
def served(tables: Sequence[TableStatus], **changes: Any) -> Iterator[PageServer]:
    """A server of a daemon with these tables."""
    status = daemon_status(*tables, **changes)
    with serving(lambda: status) as server:
        yield server


@contextmanager
def serving(status: Callable[[], DaemonStatus], system: System = REAL_SYSTEM) -> Iterator[PageServer]:
    """A server of a daemon whose status can change."""
    server = PageServer(status, Table.open, system=system)
    server.start()
    try:
        yield server
    finally:
        server.stop()

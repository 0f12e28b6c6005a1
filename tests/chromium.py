"""A headless Chromium for the tests of the page and of the site: one for a process, as Playwright allows no second."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Debian's and Ubuntu's package, Alpine's and Arch's, and Google's own.
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def chromium() -> str | None:
    """The browser on this machine; `CHROMIUM` names another one."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("THE PAGE IS NOT TESTED: there is no Chromium; `apt-get install chromium`, or set CHROMIUM")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - most tests need no browser

    with sync_playwright() as playwright:
        # Without its sandbox it runs as root, as CI does; it only sees this repository's own pages. No host but this
        # machine has an address, as without a network.
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        found = playwright.chromium.launch(executable_path=path, args=args)
        yield found
        found.close()

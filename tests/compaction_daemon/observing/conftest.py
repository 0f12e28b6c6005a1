"""A headless Chromium for the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

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
    with sync_playwright() as playwright:
        # Without its sandbox it runs as root, as CI does; it only sees this repository's own pages. No host but this
        # machine has an address, as without a network.
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        found = playwright.chromium.launch(executable_path=path, args=args)
        yield found
        found.close()

"""The site works where its pages are opened from the disk: its search finds what readers look for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parent.parent
SCRIPT = "javascripts/iframe-worker.js"


def test_a_page_from_the_disk_has_workers(browser: Browser, tmp_path: Path) -> None:
    """The search of the site runs in a worker, which browsers refuse to a page of the disk."""
    Path(tmp_path, "polyfill.js").write_text(Path(ROOT, "docs", SCRIPT).read_text())
    Path(tmp_path, "index.js").write_text("const index = { gdpr: 'Personal data' };")
    Path(tmp_path, "worker.js").write_text("""
        const loaded = importScripts("index.js");
        addEventListener("message", async (event) => { await loaded; postMessage(index[event.data]); });
    """)
    Path(tmp_path, "page.html").write_text("""
        <body><p></p><script src="polyfill.js"></script><script>
        const worker = new Worker("worker.js");
        worker.addEventListener("message", (event) => { document.querySelector("p").textContent = event.data; });
        worker.postMessage("gdpr");
        </script></body>
    """)
    page = browser.new_page()
    page.goto(f"file://{tmp_path}/page.html")
    expect(page.locator("p")).to_have_text("Personal data")
    page.close()


def test_the_search_loads_its_index_from_the_disk() -> None:
    """The plugin `offline` makes the index a script, and the site's own polyfill runs the worker."""
    settings = Path(ROOT, "mkdocs.yml").read_text()
    assert "\n  - search\n  - offline" in settings
    assert f"\n  polyfills:\n    - {SCRIPT}\n" in settings
    assert "\nuse_directory_urls: false" in settings


@pytest.fixture
def site() -> Path:
    """What `make docs` has just built; the other lanes run without the packages of the docs."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("`make docs` runs this")
    return Path(ROOT, "build", "site")


@pytest.mark.parametrize(("words", "page"), [("gdpr", "cleaning-up.html"), ("sql merge", "sql.html")])
def test_the_search_finds_pages(browser: Browser, site: Path, words: str, page: str) -> None:
    opened = browser.new_page()
    opened.goto(f"file://{site}/guides/keys.html")
    opened.locator("input.md-search__input").press_sequentially(words)
    expect(opened.locator(f".md-search-result__link[href*='{page}']").first).to_be_attached(timeout=20_000)
    opened.close()

"""What comes from a table is text in the page, whoever wrote it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.compaction_daemon.observing.hostile_tables import MARKUP, SECRET, hostile_table
from tests.compaction_daemon.observing.pages import PHONE, served, visit
from tests.compaction_daemon.observing.tables import table_status
from tidelog.compaction_daemon import TableState, report_of, report_page
from tidelog.compaction_daemon.observing.live_status import shown_names
from tidelog.log import Table

# Elements that the page itself never has.
STRANGERS = "img, iframe, object, embed, svg, form, script:not([src]):not(#report):not(.own), [onload], [onerror]"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return hostile_table(tmp_path_factory.mktemp("hostile"))


def open_everything(page: Page) -> str:
    """Open all lists, and go over all versions of the timeline. Returns all texts that were to be seen."""
    slider = page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuenow", re.compile(r"\d"))
    for summary in page.locator("summary").all():
        summary.click()
    slider.press("Home")
    texts = [page.locator("main").inner_text()]
    for _ in range(int(slider.get_attribute("aria-valuemax") or 0)):
        slider.press("ArrowRight")
        texts.append(page.locator("#version-detail").inner_text())
    slider.hover()
    return "\n".join(texts)


def assert_unharmed(page: Page, *, scripts: int = 0) -> None:
    assert page.evaluate("window.owned") is None
    assert page.locator(STRANGERS).count() == scripts
    content = page.content()
    assert "hunter2" not in content
    assert not re.search("[\u202e\u2028\x1b]", content)
    # Nothing that is part of the hostile text has become an address.
    addresses = page.locator("[href], [src]").evaluate_all("(nodes) => nodes.map((node) => node.href || node.src)")
    assert not [address for address in addresses if not address.startswith(("http://127.0.0.1:", "file:"))]


def test_the_served_page_shows_hostile_texts_as_texts(browser: Browser, table: Table) -> None:
    status = table_status(table.path, TableState.FAILING, error=f"TIDELOG_X: {MARKUP} {SECRET}", held_by=MARKUP)
    with (
        served([status, table_status(f"s3://{MARKUP}/t")]) as server,
        visit(browser, server.address, size=PHONE) as seen,
    ):
        expect(seen.page.locator(".tables")).to_contain_text("TIDELOG_X: </script><script>window.owned=1</script>")
        assert_unharmed(seen.page)
        assert seen.overflow() == []
        name = shown_names([table.path])[table.path]
        seen.page.get_by_role("link", name=name, exact=True).click()
        # The page asks for its parts one after the other.
        expect(seen.page.locator("#consumers")).to_contain_text("<svg onload=window.owned=1>")
        expect(seen.page.locator("#throughput")).to_contain_text("stream </script><script>window.owned=1</script>")
        open_everything(seen.page)
        # Of the refused rewrite: "3 rows instead of 4".
        for part in (
            "column",
            "part",
            "stream",
            "WRITE",
            "engine",
            "user",
            "evidence",
            "loser",
            "operation",
            "value",
            "4",
        ):
            shown = f"{part} </script><script>window.owned=1</script><img src=x onerror"
            expect(seen.page.locator("body")).to_contain_text(shown, use_inner_text=True)
        assert_unharmed(seen.page)
        assert seen.overflow() == []
        # An address that somebody else made.
        seen.page.goto(f"{server.address}/#/table/{quote(MARKUP, safe='')}")
        expect(seen.page.get_by_text("the daemon does not watch this table")).to_be_visible()
        assert seen.page.evaluate("window.owned") is None
        assert seen.page.locator(STRANGERS).count() == 0
        seen.complaints.clear()  # the browser notes the answer 404


def test_the_report_shows_hostile_texts_as_texts(browser: Browser, table: Table, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(report_page(report_of(table).to_dict()))
    with visit(browser, file.as_uri()) as seen:
        expect(seen.page.get_by_role("slider")).to_have_attribute("aria-valuenow", re.compile(r"\d"))
        for summary in seen.page.locator("summary").all():
            summary.click()
        expect(seen.page.locator("h1")).to_contain_text("window:owned=1")
        expect(seen.page.locator("main")).to_contain_text("evidence </script><script>window.owned=1</script>")
        assert_unharmed(seen.page, scripts=2)  # its own two, which the policy names by their hashes

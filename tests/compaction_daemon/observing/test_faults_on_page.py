"""What goes wrong, as the page shows it in a headless Chromium."""

from __future__ import annotations

from urllib.parse import quote

from playwright.sync_api import Browser, expect

from tests.compaction_daemon.observing.pages import served, visit
from tests.compaction_daemon.observing.tables import NO_VACUUM, busy_table, refused, table_status


def test_upkeep_that_fails_is_shown(browser: Browser) -> None:
    table = busy_table(rounds=1)
    tables = [table_status("/data/a"), table_status(table.path, upkeep_errors=(NO_VACUUM,))]
    with served(tables) as server, visit(browser, server.address) as visited:
        first = visited.page.locator(".tables tbody tr").first
        expect(first).to_contain_text("vacuum from the log fails: a.parquet could not be deleted")
        first.get_by_role("link").click()
        expect(visited.page.locator(".problem")).to_contain_text("Upkeep fails (vacuum from the log) since ")
        expect(visited.page.locator("#plan")).to_contain_text("Due now: ")
        expect(visited.page.locator(".problem")).to_contain_text("a.parquet could not be deleted")
        assert visited.faults() == []
        assert visited.overflow() == []


def test_a_refused_rewrite_is_shown(browser: Browser) -> None:
    table = busy_table(rounds=1)
    refused(table)
    address = f"/#/table/{quote(table.path, safe='')}"
    with served([table_status(table.path)]) as server, visit(browser, server.address + address) as visited:
        refusals = visited.page.locator("#refusals")
        expect(refusals).to_contain_text("the output has 3 rows instead of 4")
        expect(refusals).to_contain_text("day=2026-01-01")
        refusals.locator("summary").click()
        expect(refusals.locator("tbody tr")).to_have_count(3)
        assert visited.faults() == []
        assert visited.overflow() == []

"""The page in a headless Chromium: served by a daemon."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import cast, get_args
from urllib.parse import quote

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as StillBlankError

from tests import lanes
from tests.compaction_daemon.observing.pages import DESK, PHONE, Theme, Visit, served, serving, visit
from tests.compaction_daemon.observing.tables import (
    NO_VACUUM,
    NOW,
    OTHER_QUERY,
    SCHEMA,
    busy_table,
    daemon_status,
    put_rows,
    refused,
    streamed,
    table_status,
)
from tidelog.compaction_daemon import (
    DaemonStatus,
    DebtSample,
    LeftAlone,
    PageServer,
    TableState,
    TableStatus,
    WorkTotals,
)
from tidelog.log import Debt, Table
from tidelog.log.system import System

SIZES = {"desk": DESK, "phone": PHONE}
LOOKS = [f"{size} {theme}" for size in SIZES for theme in get_args(Theme)]


@pytest.fixture(scope="module")
def busy() -> Table:
    """A table with everything, and with the batches of two streams and of an application."""
    table = busy_table()
    for number in range(3):
        streamed(table, number, ms=200 + 200 * (number == 1))
    streamed(table, 0, query_id=OTHER_QUERY, sink="clicks", name="visits")
    rows = pa.table({"id": list(range(40)), "day": ["2026-01-01"] * 40, "price": [1.5] * 40})
    table.refresh().insert(rows, idempotency_key=(f"loader/{OTHER_QUERY}", 7))
    return table.refresh()


class Hurried(System):
    """A clock on which ten seconds pass between two looks."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic_s(self) -> float:
        self._looks += 1
        return self._looks * 10.0


def some_tables(busy: Table) -> list[TableStatus]:
    return [
        table_status(busy.path, TableState.WORKING, epoch=4),
        table_status(
            "s3://key:hunter2@bucket/orders", TableState.FAILING, error="TIDELOG_STORE_UNAVAILABLE: no answer"
        ),
        table_status("/data/gone", TableState.MISSING, version=None, debt=()),
        table_status("/data/elsewhere", TableState.ELSEWHERE, held_by="host-b:7:x"),
        table_status("/data/damaged", left_alone=LeftAlone(1, "TIDELOG_DATA_FILE_DAMAGED: no footer", "X")),
        table_status("/data/new", TableState.NEW, version=None, debt=(), last_compaction=None),
        table_status("/data/" + "long" * 60),
        table_status("/data/one", debt=(DebtSample(NOW, 5, Debt(9, 4, 100, 0, 0, 0)),)),
        table_status("/data/two", debt=tuple(DebtSample(NOW + timedelta(minutes=n), n, NO_DEBT) for n in range(2))),
    ]


NO_DEBT = Debt(9, 0, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def site(busy: Table) -> Iterator[PageServer]:
    with served(some_tables(busy)) as server:
        yield server


def open_busy(visited: Visit, busy: Table) -> Page:
    visited.page.get_by_role("link", name=busy.path).click()
    expect(visited.page.get_by_role("slider")).to_have_attribute("aria-valuenow", str(busy.version))
    return visited.page


def is_drawn(page: Page, selector: str) -> bool:
    """Whether a canvas has more than one colour, now or soon: the page draws it with the browser's next frame."""
    try:
        page.wait_for_function(
            """(canvas) => { const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                return data.some((value, index) => value !== data[index % 4]); }""",
            arg=page.locator(selector).first.element_handle(),
            timeout=10_000,
        )
    except StillBlankError:
        return False
    return True


@pytest.mark.parametrize("look", lanes.full_but(["desk light", "phone dark"], LOOKS))
def test_it_fits_is_readable_and_asks_nobody_else(browser: Browser, site: PageServer, busy: Table, look: str) -> None:
    size, theme = look.split()
    with visit(browser, site.address, size=SIZES[size], theme=cast("Theme", theme)) as visited:
        expect(visited.page.locator(".tables tbody tr")).to_have_count(9)
        assert visited.overflow() == []
        assert visited.faults() == []
        page = open_busy(visited, busy)
        for selector in ("#debt canvas", "#timeline canvas", "#throughput .chart canvas"):
            assert is_drawn(page, selector)
        for summary in page.locator("summary").all():
            summary.click()
        assert visited.overflow() == []
        assert visited.faults() == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(14, 20, 26)") == (theme == "dark")


@pytest.mark.full
def test_wide_tables_scroll_on_a_phone_and_show_that_there_is_more(
    browser: Browser, site: PageServer, busy: Table
) -> None:
    with visit(browser, site.address, size=PHONE) as visited:
        page = open_busy(visited, busy)
        consumers = page.get_by_role("region", name="Consumers", exact=True)
        assert consumers.evaluate("(node) => node.scrollWidth > node.clientWidth + 100")
        assert consumers.evaluate("(node) => getComputedStyle(node).backgroundImage.split('gradient').length") == 5
        consumers.evaluate("(node) => node.scrollTo(1000, 0)")
        assert consumers.evaluate("(node) => node.scrollLeft") > 100
        assert visited.overflow() == []
        page.get_by_role("link", name="All tables").click()
        row = page.locator(".tables tbody tr").filter(has_text="/data/new")
        expect(row.locator("td:visible")).to_have_count(2)  # its name and its state: what there is not is left out


def test_the_list_says_what_each_table_does_and_the_chosen_theme_is_kept(
    browser: Browser, site: PageServer, busy: Table
) -> None:
    with visit(browser, site.address) as visited:
        rows = visited.page.locator(".tables tbody tr")
        expect(rows.first).to_contain_text("s3://***@bucket/orders")
        expect(rows.first).to_contain_text("failing")
        expect(rows.first).to_contain_text("TIDELOG_STORE_UNAVAILABLE: no answer")
        expect(rows.nth(1)).to_contain_text("1 group left alone: TIDELOG_DATA_FILE_DAMAGED: no footer")
        expect(rows.filter(has_text="/data/elsewhere")).to_contain_text("held by host-b:7:x")
        expect(rows.filter(has_text=busy.path)).to_contain_text(re.compile("versions"))
        for path in (busy.path, "/data/one", "/data/two"):
            assert is_drawn(visited.page, f"tr:has-text('{path}') canvas"), path
        assert "hunter2" not in visited.page.content()
        page = visited.page
        page.get_by_label("Theme").first.select_option("dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert visited.faults() == []
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 26)"


@pytest.mark.full
def test_a_thousand_tables_can_be_searched(browser: Browser) -> None:
    tables = [table_status(f"/data/table-{number:04}", debt=()) for number in range(1000)]
    tables[777] = table_status("/data/table-0777", TableState.FAILING, debt=(), error="disk is full")
    with served(tables) as server, visit(browser, server.address) as visited:
        page, rows = visited.page, visited.page.locator(".tables tbody tr")
        expect(rows).to_have_count(100)
        page.get_by_label("Search tables and errors").fill("DATA 99")
        expect(rows).to_have_count(19)
        expect(page.get_by_text("19 of 1,000 tables")).to_be_visible()
        page.get_by_label("Search tables and errors").fill("full")
        expect(rows).to_have_count(1)
        page.get_by_label("Search tables and errors").fill("nothing like this")
        expect(page.get_by_text("No table matches. Clear the search")).to_be_visible()
        page.get_by_label("Search tables and errors").fill("")
        page.get_by_label("State", exact=True).select_option("failing")
        expect(rows).to_have_count(1)
        page.get_by_label("State", exact=True).select_option("")
        page.get_by_label("Sort by").select_option("name")
        expect(rows.first).to_contain_text("table-0000")
        page.get_by_role("button", name="Show all 1,000 tables").click()
        expect(rows).to_have_count(1000)


def test_a_table_s_page_shows_every_part(browser: Browser, site: PageServer, busy: Table) -> None:
    with visit(browser, site.address) as visited:
        page = open_busy(visited, busy)
        assert page.locator("h2").all_text_contents() == [
            *(
                "Debt and its trend",
                "Timeline",
                "Throughput",
                "Work of this daemon",
                "Consumers and lag",
                "Plan and why",
            ),
            *("Conflicts", "Refused rewrites", "File sizes", "Retentions and clean-up", "Columns"),
        ]
        expect(page.locator("#consumers")).to_contain_text("billing")
        expect(page.locator("#plan")).to_contain_text("Due now: ")
        expect(page.locator("#plan")).to_contain_text("leave: ")
        expect(page.locator("#conflicts")).to_contain_text("update or delete lost to update or delete")
        expect(page.locator("#refusals")).to_contain_text("No rewrite was refused")
        expect(page.locator("#settings")).to_contain_text("delta.deletedFileRetentionDuration")
        expect(page.locator("dl.tiles").first).to_contain_text("epoch 4")
        page.get_by_text(re.compile(r"The newest \d+ versions as a table")).click()
        rows = page.locator("#timeline tbody tr")
        expect(rows).to_have_count(busy.version + 1)
        expect(rows.filter(has_text="major compaction (OPTIMIZE)")).to_have_count(1)


def test_the_throughput_of_the_table_and_of_each_stream(browser: Browser, site: PageServer, busy: Table) -> None:
    with visit(browser, site.address) as visited:
        page = open_busy(visited, busy)
        cards = page.locator("#throughput .card")
        expect(cards).to_have_count(4)
        expect(cards.first).to_contain_text("The table")
        orders = cards.filter(has_text="orders")
        for text in ("query 886b9b76…", "rows/", "Rows120", "Commits3", "200 ms", "slowest 400 ms", "batch 2"):
            expect(orders).to_contain_text(text)
        assert is_drawn(page, "#throughput .card:has-text('orders') canvas")
        loader = cards.filter(has_text=f"loader/{OTHER_QUERY[:8]}…")
        expect(loader.locator(".rate")).not_to_contain_text("rows")  # one commit has no rate
        chart = page.locator("#throughput [role=img]")
        words = re.compile(r"written per version: orders 120, visits, clicks 40, loader/c0ffee00… 40, others 1,\d+")
        expect(chart).to_have_attribute("aria-label", words)
        page.get_by_label("By time").check(force=True)
        expect(chart).to_have_attribute("aria-label", re.compile(r"Rows written per \d+ (s|min|h|days): orders 120, "))


def test_an_id_takes_its_beginning_and_who_points_at_it_sees_the_whole(
    browser: Browser, site: PageServer, busy: Table
) -> None:
    with visit(browser, site.address) as visited:
        page = open_busy(visited, busy)
        slider, detail = page.get_by_role("slider"), page.locator("#version-detail")
        expect(detail).to_contain_text(f"Streamloader/{OTHER_QUERY[:8]}…Batch7")
        expect(detail.get_by_title(f"loader/{OTHER_QUERY}")).to_be_visible()
        slider.press("ArrowLeft")
        expect(detail).to_contain_text("Streamvisits, clicksquery c0ffee00…Batch0took 200 ms")
        expect(detail.get_by_title(OTHER_QUERY)).to_be_visible()
        assert OTHER_QUERY not in detail.inner_text()
        # What an application is called is one line, or two on a phone.
        heights = "(nodes) => nodes.map((node) => node.getBoundingClientRect().height)"
        assert max(detail.locator("dd").evaluate_all(heights)) < 60


@pytest.mark.full
def test_the_timeline_is_used_with_the_keyboard(browser: Browser, site: PageServer, busy: Table) -> None:
    with visit(browser, site.address) as visited:
        page = open_busy(visited, busy)
        slider, last = page.get_by_role("slider"), busy.version
        slider.focus()
        for key, expected in (
            *(("ArrowLeft", last - 1), ("ArrowDown", last - 2), ("ArrowUp", last - 1), ("ArrowRight", last)),
            *(
                ("ArrowRight", last),
                ("PageDown", last - 10),
                ("PageUp", last),
                ("Home", 0),
                ("ArrowLeft", 0),
                ("End", last),
            ),
        ):
            page.keyboard.press(key)
            expect(slider).to_have_attribute("aria-valuenow", str(expected))
        (rebased,) = (entry.version for entry in busy.history()[-10:] if entry.operation == "OPTIMIZE")
        page.keyboard.press("Home")
        for _ in range(rebased):
            page.keyboard.press("ArrowRight")
        expect(slider).to_have_attribute(
            "aria-valuetext",
            re.compile(rf"version {rebased}: minor compaction \(OPTIMIZE\), .*, rebased over {rebased - 1}"),
        )
        detail = page.locator("#version-detail")
        expect(detail).to_contain_text(f"Rebased over{rebased - 1}")
        (major,) = (entry.version for entry in busy.history() if entry.operation_class == "MAJOR")
        for _ in range(major - rebased):
            page.keyboard.press("ArrowRight")
        costs = re.compile(r"Predicted cost.* read, .* written, .*Actual cost.* read, .* written, ")
        expect(detail).to_contain_text(costs)


@pytest.mark.full
def test_a_click_chooses_a_version_by_version_and_by_time(browser: Browser, site: PageServer, busy: Table) -> None:
    with visit(browser, site.address) as visited:
        page = open_busy(visited, busy)
        slider = page.get_by_role("slider")
        for axis in ("By version", "By time"):
            page.get_by_label(axis).check(force=True)
            slider.click(position={"x": 100, "y": 60})
            expect(slider).to_have_attribute("aria-valuenow", "0")
            slider.press("End")
        for measure in ("Files", "Dead rows", "Rows", "Size", "Small files"):
            page.get_by_label(measure, exact=True).check(force=True)
            expect(page.locator("#debt [role=img]")).to_have_attribute("aria-label", re.compile(f"^{measure}: now "))


# Whether what has the focus shows it; of a choice it is the text beside the button that does.
FOCUS_IS_SEEN = """() => {
    const node = document.activeElement, seen = node.closest("label") ? node.nextElementSibling || node : node;
    const style = getComputedStyle(seen);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


# Whether what has the focus begins below the bar that stays on top, unless it is part of the bar.
FOCUS_IS_NOT_COVERED = """() => {
    const node = document.activeElement, bar = document.querySelector(".bar");
    const isAbove = bar.contains(node) || node.matches(".skip");
    return isAbove || node.getBoundingClientRect().top >= bar.getBoundingClientRect().bottom - 1;
}"""


@pytest.mark.full
def test_everything_is_reached_by_tab_and_the_focus_is_seen(browser: Browser, site: PageServer, busy: Table) -> None:
    with visit(browser, f"{site.address}/#/table/{quote(busy.path, safe='')}") as visited:
        expect(visited.page.get_by_role("slider")).to_have_attribute("aria-valuenow", str(busy.version))
        order: list[str] = []
        for _ in range(40):
            visited.page.keyboard.press("Tab")
            name = visited.focused()
            if visited.page.evaluate("document.activeElement === document.body"):
                break
            order.append(name)
            assert visited.page.evaluate(FOCUS_IS_SEEN), name
            assert visited.page.evaluate(FOCUS_IS_NOT_COVERED), name
        first = ["Skip to the content", "home", "theme", "back", "Small files", "By version", "timeline-slider"]
        assert order[: len(first)] == first
        assert {"Consumers", "Conflicts by pair", "Clean-ups", "Properties in force", "Columns and protocol"} <= {
            *order
        }
        # Backwards, what comes into view comes from above.
        for _ in range(len(order)):
            visited.page.keyboard.press("Shift+Tab")
            assert visited.page.evaluate(FOCUS_IS_NOT_COVERED), visited.focused()
        assert [name for name in order if name.startswith("Why, file by file")] == ["Why, file by file (9)"] * 2


def test_when_news_arrive_what_is_open_chosen_or_focused_stays_so(browser: Browser) -> None:
    table = busy_table(rounds=1)
    status = daemon_status(table_status(table.path))
    with serving(lambda: status, Hurried()) as server, visit(browser, "about:blank") as visited:
        page = visited.page
        page.clock.install()
        page.goto(f"{server.address}/#/table/{quote(table.path, safe='')}")
        expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", str(table.version))
        for section in ("#plan", "#timeline", "#settings", "#conflicts"):
            for summary in page.locator(f"{section} summary").all():
                summary.click()
        versions = page.get_by_role("region", name="Versions")
        versions.evaluate("(node) => node.scrollTo(0, 40)")
        opened = page.locator("details[open]").count()
        focused = page.locator("#plan summary").first
        focused.focus()
        for number in range(500, 503):
            put_rows(table, number)
        page.clock.run_for(6_000)
        expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", str(table.refresh().version))
        expect(page.locator("#plan")).to_contain_text(f"For version {table.version}.")
        expect(page.locator("details[open]")).to_have_count(opened)
        expect(focused).to_be_focused()
        assert versions.evaluate("(node) => node.scrollTop") == 40
        # The timeline follows the newest version, unless another one was chosen.
        slider = page.get_by_role("slider")
        slider.press("Home")
        put_rows(table, 503)
        page.clock.run_for(6_000)
        expect(slider).to_have_attribute("aria-valuemax", str(table.refresh().version))
        expect(slider).to_have_attribute("aria-valuenow", "0")
        expect(slider).to_be_focused()
        page.get_by_role("link", name="All tables").focus()
        page.clock.run_for(6_000)
        expect(page.get_by_role("link", name="All tables")).to_be_focused()


def test_the_work_of_the_daemon_and_what_went_wrong_are_shown(browser: Browser) -> None:
    table = busy_table(rounds=1)
    refused(table)
    totals = WorkTotals(
        compactions={"minor": 5, "major": 1},
        files_removed=4000,
        files_added=6,
        bytes_read=5_000_000,
        wasted_bytes=2048,
        rebased_over=3,
        refused=1,
        failures=2,
        step_seconds=90.0,
    )
    left = LeftAlone(3, "TIDELOG_X: no", "X")
    status = table_status(table.path, totals=totals, left_alone=left, upkeep_errors=(NO_VACUUM,))
    with served([table_status("/data/a"), status]) as server, visit(browser, server.address) as visited:
        page, first = visited.page, visited.page.locator(".tables tbody tr").first
        expect(first).to_contain_text("vacuum from the log fails: a.parquet could not be deleted")
        first.get_by_role("link").click()
        work, refusals = page.locator("#work"), page.locator("#refusals")
        for text in ("5 minor, 1 major", "4,000 became 6", "4.8 MiB and 0 B", "2.0 KiB", "3 commits", "1.5 min"):
            expect(work).to_contain_text(text)
        expect(work.locator(".bad")).to_have_text(["1 rewrite", "3 groups", "2"])
        expect(work).to_contain_text("3 groups: TIDELOG_X: no")
        expect(work).not_to_contain_text("Checkpoints")  # it wrote none
        trouble = page.locator("main .problem").first
        expect(trouble).to_contain_text("Upkeep fails (vacuum from the log) since ")
        expect(trouble).to_contain_text("a.parquet could not be deleted")
        expect(refusals).to_contain_text("the output has 3 rows instead of 4")
        expect(refusals).to_contain_text("day=2026-01-01")
        refusals.locator("summary").click()
        expect(refusals.locator("tbody tr")).to_have_count(3)
        assert visited.faults() == []
        assert visited.overflow() == []


@pytest.mark.full
def test_parts_with_nothing_to_show_are_one_line(browser: Browser) -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    status = table_status(table.path, debt=(), totals=WorkTotals(), last_compaction=None)
    address = f"/#/table/{quote(table.path, safe='')}"
    with (
        serving(lambda: daemon_status(status), Hurried()) as server,
        visit(browser, server.address + address) as visited,
    ):
        parts = visited.page.locator("section.bare")
        expect(parts.locator("h2")).to_have_text(
            [
                *("Debt and its trend", "Throughput", "Work of this daemon", "Consumers and lag", "Plan and why"),
                *("Conflicts", "Refused rewrites", "File sizes"),
            ]
        )
        assert max(parts.evaluate_all("(nodes) => nodes.map((node) => node.offsetHeight)")) < 65
        for text in ("No consumer is registered.", "No operation lost", "No rewrite was refused", "has no files."):
            expect(visited.page.locator("main")).to_contain_text(text)
        expect(visited.page.locator("#version-detail")).to_contain_text("CREATE TABLE")
        put_rows(table, 1)
        visited.page.reload()
        expect(visited.page.get_by_role("slider")).to_have_attribute("aria-valuenow", "1")
        assert is_drawn(visited.page, "#debt canvas")


def test_a_daemon_that_is_stuck_is_said(browser: Browser) -> None:
    with served([], stalled=True) as server, visit(browser, server.address) as visited:
        alert = visited.page.get_by_role("alert")
        expect(alert).to_have_text("The daemon is not healthy: a step takes longer than it should ever take.")
        expect(visited.page.get_by_text("The daemon watches no table yet.")).to_be_visible()
        assert visited.overflow() == []


def test_a_table_that_cannot_be_read_or_is_not_watched_says_why(browser: Browser) -> None:
    status = table_status("memory://nowhere", TableState.MISSING, error="there is no table", version=None)
    address = "/#/table/" + "memory%3A%2F%2Fnowhere"
    with served([status]) as server, visit(browser, server.address + address) as visited:
        expect(visited.page.get_by_text("The table cannot be read: ")).to_be_visible()
        expect(visited.page.locator("h1")).to_have_text("memory://nowhere")
        assert all("502" in complaint for complaint in visited.complaints)
        visited.complaints.clear()
        visited.page.goto(f"{server.address}/#/table/%2Fetc")
        expect(visited.page.get_by_text("the daemon does not watch this table")).to_be_visible()
        assert all("404" in complaint for complaint in visited.complaints)
        visited.complaints.clear()


@pytest.mark.full
def test_tables_come_and_go_and_a_daemon_that_is_gone_is_said(browser: Browser) -> None:
    status: list[DaemonStatus] = [daemon_status(table_status("/a"), table_status("/b"))]
    with serving(lambda: status[0]) as server, visit(browser, "about:blank") as visited:
        page = visited.page
        page.clock.install()
        page.goto(server.address)
        expect(page.locator(".tables tbody tr")).to_have_count(2)
        status[0] = daemon_status(table_status("/b", TableState.FAILING), table_status("/c"))
        page.clock.run_for(6_000)
        expect(page.locator(".tables tbody tr").first).to_contain_text("/b")
        assert [text.strip() for text in page.locator(".tables .name a").all_text_contents()] == ["/b", "/c"]
        server.stop()
        page.clock.run_for(6_000)
        expect(page.get_by_role("alert")).to_contain_text("The daemon does not answer since")
        expect(page.locator(".tables tbody tr")).to_have_count(2)
        assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in visited.complaints)
        visited.complaints.clear()

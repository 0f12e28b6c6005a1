"""The page as one file."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, expect

from scripts.vendor_chart import FOLDER, PACKAGES
from tests import lanes
from tests.compaction_daemon.observing.pages import PHONE, Theme, served, visit
from tests.compaction_daemon.observing.tables import busy_table
from tidelog.compaction_daemon import report_of, report_page
from tidelog.compaction_daemon.observing import page as page_module
from tidelog.log import Table


@pytest.fixture(scope="module")
def busy() -> Table:
    return busy_table(rounds=2)


@pytest.fixture(scope="module")
def file(busy: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("report") / "report.html"
    found.write_bytes(report_page(report_of(busy).to_dict()))
    return found


@pytest.mark.parametrize("theme", lanes.full_but(["dark"], ["light", "dark"]))
def test_it_works_from_a_disk_and_asks_nobody_for_anything(
    browser: Browser, file: Path, busy: Table, theme: Theme
) -> None:
    with visit(browser, file.as_uri(), size=PHONE, theme=theme) as visited:
        page = visited.page
        expect(page.locator("h1")).to_have_text(busy.path)
        expect(page).to_have_title(f"{busy.path} · tidelog")
        slider = page.get_by_role("slider")
        expect(slider).to_have_attribute("aria-valuenow", str(busy.version))
        slider.press("Home")
        expect(slider).to_have_attribute("aria-valuenow", "0")
        page.get_by_label("Theme").first.select_option("dark")
        page.get_by_label("Theme").first.select_option("auto")
        assert visited.overflow() == []
        assert visited.faults() == []
        assert visited.requests == [file.as_uri()]


def test_it_could_not_ask_even_if_it_tried(browser: Browser, file: Path) -> None:
    with served([]) as server, visit(browser, file.as_uri()) as visited:
        with pytest.raises(Error, match="Failed to fetch"):
            visited.page.evaluate(f"fetch('{server.address}/healthz')")
        assert (
            visited.page.evaluate(
                "() => { const node = document.createElement('script'); node.textContent = 'window.owned = 1';"
                "document.body.append(node); return window.owned; }"
            )
            is None
        )
        assert all("Content Security Policy" in complaint for complaint in visited.complaints)
        visited.complaints.clear()
        visited.requests.clear()


def test_the_policy_allows_the_scripts_of_the_file_and_nothing_else(file: Path) -> None:
    text = file.read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts}
    assert len(scripts) == len(hashes) == 2
    assert set(re.search(r"script-src ([^;]*);", policy)[1].split()) == hashes  # type: ignore[index]
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text.replace("http://www.w3.org", ""))


def test_every_file_of_the_program_is_in_it_and_the_one_that_starts_it_is_last() -> None:
    names = [path.stem for path in (Path(page_module.__file__).parent / "page" / "program").iterdir()]
    assert sorted(names) == sorted(page_module._PROGRAM_PARTS)
    assert page_module._PROGRAM_PARTS[-1] == "main"


def test_a_script_that_could_end_its_element_is_refused(monkeypatch: pytest.MonkeyPatch, busy: Table) -> None:
    read = page_module._read
    monkeypatch.setattr(page_module, "_read", lambda name: read(name) + b"// </script>" * name.endswith(".js"))
    with pytest.raises(AssertionError, match="could end its own element"):
        report_page(report_of(busy).to_dict())


@pytest.mark.parametrize("vendored", PACKAGES, ids=lambda each: each.name)
def test_the_library_is_the_one_that_was_chosen(vendored: object) -> None:
    name, expected = vendored.name, vendored.sha256  # type: ignore[attr-defined]
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == expected
    if name.endswith(".js"):
        assert expected in (FOLDER.parents[3] / "THIRD-PARTY.md").read_text()

"""The tables of requests in docs/reference/stores.md hold the counts that the tests assert, and what they cost."""

from __future__ import annotations

from collections import Counter

import pytest

from scripts.layers import ROOT
from tests.log.storage.request_counts import COUNTS, OWN_VERSION, OWN_VERSION_EVERY_S

PAGE = (ROOT / "docs" / "reference" / "stores.md").read_text()
PUT_USD, GET_USD = 0.005 / 1000, 0.0004 / 1000
HOUR_S = 3600


def row(name: str) -> list[str]:
    """The cells of the row whose first cell begins with the name."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "open"])
def test_each_operation_is_shown_with_its_count(name: str) -> None:
    count = COUNTS[name]
    total, gets, puts, _ = row(f"{name} |")
    assert (int(total), int(gets), int(puts or 0)) == (count.total(), count["GET"] + count["HEAD"], count["PUT"])


def test_opening_is_shown_with_its_count() -> None:
    assert row("open |")[0] == str(COUNTS["open"].total())


@pytest.mark.parametrize(
    ("name", "every_s", "count", "reads"),
    [
        ("an idle feed, asked once a second", 1, COUNTS["poll of an idle feed"], True),
        ("an idle feed with a trigger of 10 seconds", 10, COUNTS["poll of an idle feed"], True),
        ("an idle daemon, for each table", 60, COUNTS["look of an idle daemon, for each table"], True),
        ("a stream with a trigger of 10 seconds", 10, COUNTS["batch of a sink, one file"], False),
    ],
)
def test_an_hour_costs_what_follows(name: str, every_s: int, count: Counter[str], *, reads: bool) -> None:
    more = HOUR_S // OWN_VERSION_EVERY_S * OWN_VERSION.total() if reads else 0
    puts = HOUR_S // every_s * count["PUT"]
    gets = HOUR_S // every_s * (count["GET"] + count["HEAD"]) + more
    shown = row(name)
    assert [int(cell.replace(",", "")) for cell in shown[:2]] == [puts, gets]
    digits = len(shown[2].partition(".")[2])
    assert float(shown[2]) == pytest.approx(puts * PUT_USD + gets * GET_USD, abs=0.5 * 10**-digits)

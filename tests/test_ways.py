"""How winding the ways may be: the modules that a reader of an operation turns to, and how often it comes back."""

from __future__ import annotations

import pytest

from scripts.ways import Way, walked, ways

# The most that each way may have. A way gets longer by accident, one helper at a time: before you raise a number, see
# with `python -m scripts.ways --way NAME` which modules are one idea.
MODULES = {"insert": 40, "upsert": 59, "scan": 40, "changes": 32, "daemon step": 85}
RETURNS = {"insert": 154, "upsert": 510, "scan": 79, "changes": 117, "daemon step": 1489}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Way]:
    return {way.name: way for way in ways(tmp_path_factory.mktemp("ways"))}


@pytest.mark.parametrize("name", MODULES)
def test_a_way_visits_few_modules(name: str, found: dict[str, Way]) -> None:
    assert len(found[name].modules) <= MODULES[name], found[name].modules


@pytest.mark.parametrize("name", RETURNS)
def test_a_way_seldom_comes_back(name: str, found: dict[str, Way]) -> None:
    assert found[name].returns <= RETURNS[name], f"see `python -m scripts.ways --way {name}`"


def test_the_way_of_nothing_is_empty() -> None:
    assert walked("nothing", lambda: None).counts() == {
        "way": "nothing",
        "modules": 0,
        "functions": 0,
        "calls": 0,
        "returns": 0,
    }

"""Each rule switched off alone makes the oracle object; `mutations` searches without knowing where."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import run
from tests.log.oracle.mutations import MUTATIONS, Mutation, patched
from tests.log.oracle.settings import SETTINGS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_rule_switched_off_is_noticed(mutation: Mutation) -> None:
    run(SETTINGS["vectors"], mutation.witness).require_nothing_wrong()
    with patched(mutation):
        assert run(SETTINGS["vectors"], mutation.witness).findings


def test_a_patch_is_taken_back() -> None:
    with patched(MUTATIONS[0]):
        pass
    run(SETTINGS["vectors"], MUTATIONS[0].witness).require_nothing_wrong()

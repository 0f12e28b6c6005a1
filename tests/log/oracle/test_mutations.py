"""The oracle objects to every mutation, in its witness history. Run `mutations` to search without the witnesses."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import run
from tests.log.oracle.mutations import MUTATIONS, Mutation
from tests.log.oracle.settings import SETTINGS
from tests.patching import patched


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_oracle_notices_a_rule_that_is_switched_off(mutation: Mutation) -> None:
    run(mutation.setting, mutation.witness).require_nothing_wrong()
    with patched(mutation):
        assert run(mutation.setting, mutation.witness).findings


def test_a_mutation_is_undone_after_its_block() -> None:
    with patched(MUTATIONS[0]):
        pass
    run(SETTINGS["vectors"], MUTATIONS[0].witness).require_nothing_wrong()

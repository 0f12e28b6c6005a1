"""The traps of the model, each found by exhaustive search once; a story each, and what must come of it."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import run
from tests.log.oracle.settings import SETTINGS

VECTORS, PARTITIONS, COPIES = "vectors", "vectors, partitions", "copies"
FEED = "vectors, feed"


def told(setting: str, history: str) -> list[str]:
    """How each commit of the history ended, all of them judged right by the oracle."""
    report = run(SETTINGS[setting], history)
    report.require_nothing_wrong()
    return report.outcomes


def test_the_lineage_of_a_rebased_compaction_speaks_of_addresses_live_at_its_commit() -> None:
    """A MINOR moves the rows that a MAJOR, staged before, has read at their old places. The update that follows was
    staged between the two: it knows the MINOR's file only, and must find its way into the MAJOR's.
    """
    assert told(VECTORS, "MINOR; MAJOR@0; UPDATE k=1@1") == ["committed"] * 3


def test_the_same_where_the_compaction_clusters() -> None:
    assert told(VECTORS, "MINOR; MAJOR clustered@0; UPDATE k=1@1") == ["committed"] * 3


def test_the_same_where_only_some_inputs_had_moved() -> None:
    """The group holds files that the MINOR took and one that it left alone."""
    assert told(VECTORS, "MINOR of two; MAJOR@0; UPDATE v<70@1") == ["committed"] * 3


def test_lineage_names_the_vector_that_the_rewrite_read() -> None:
    """A DELETE comes between a MINOR's rewrite and its commit, so the MINOR removes files with vectors that it has not
    read. Ranks in the old vectors tell where each row went; an update staged between them follows by these.
    """
    assert told(VECTORS, "DELETE k=1; MINOR@0; UPDATE v<70@1") == ["committed"] * 3


def test_a_dead_output_s_length_still_counts() -> None:
    """All rows of one of a MAJOR's two outputs died before it committed, so that output is not added; the rows of the
    other one are counted past it all the same.
    """
    assert told(VECTORS, "DELETE k<=3; MAJOR into two@0; UPDATE v<70@1") == ["committed"] * 3
    assert told(VECTORS, "DELETE k<5; MAJOR into two@0; UPDATE v<70@1") == ["committed"] * 3


def test_disjoint_writes_are_judged_by_what_was_read() -> None:
    """An INSERT into partition 2 brings a row with the key that an update looked for in every partition. Their files
    have nothing in common; the update would change the new row as well, so it is lost.
    """
    assert told(PARTITIONS, "INSERT k=1; UPDATE k=1@0") == ["committed", "conflict: rows match that did not"]


def test_a_delete_takes_the_new_row_along() -> None:
    assert told(PARTITIONS, "INSERT k=1; DELETE k=1@0") == ["committed", "committed"]


def test_rows_that_a_truncate_killed_do_not_survive_in_a_copy() -> None:
    """Without vectors a DELETE stages copies of the rows that it leaves. A TRUNCATE that came first killed these."""
    _, outcome = told(COPIES, "TRUNCATE; DELETE k=1@0")
    assert outcome in {"committed", "nothing to do", "conflict: without vectors, its files were touched"}


def test_rows_that_an_overwrite_killed_do_not_survive_in_a_copy() -> None:
    told(COPIES, "OVERWRITE; DELETE k<=3@0")


def test_two_deletes_of_a_row_are_no_conflict() -> None:
    assert told(VECTORS, "DELETE k=1; DELETE k<=3@0") == ["committed", "committed"]


def test_a_row_that_came_and_went_matches_nothing() -> None:
    """Judged at the newest version, not winner by winner: the row that matched is gone again."""
    assert told(VECTORS, "INSERT k=1; DELETE k=1; UPDATE k=1@0")[:2] == ["committed", "committed"]
    # All that the update was staged for died, too. One whose own rows live goes on:
    outcomes = told(VECTORS, "INSERT k=1; DELETE v>1000; UPDATE k=1@0")
    assert outcomes == ["committed", "committed", "committed"]


def test_an_image_dies_with_its_row() -> None:
    """A DELETE kills rows that an update has staged images of; the others' images live."""
    assert told(VECTORS, "DELETE k=1; UPDATE v<70@0") == ["committed", "committed"]


def test_an_image_that_a_feed_tells_of_cannot_die() -> None:
    """The update has written what it changed into change files, which take no vector."""
    expected = ["committed", "conflict: its change files tell of other rows"]
    assert told(FEED, "DELETE k=1; UPDATE v<70@0") == expected


def test_a_clustered_compaction_carries_later_deletes() -> None:
    """Two transactions staged before it follow its map, one after the other."""
    assert told(VECTORS, "MAJOR clustered; DELETE k=1@0; UPDATE v<70@0") == ["committed"] * 3


def test_a_chain_of_compactions() -> None:
    assert told(VECTORS, "MINOR; MAJOR clustered; MAJOR into two; UPDATE k=1@0") == ["committed"] * 4


@pytest.mark.parametrize("later", ["MINOR", "MAJOR", "MAJOR clustered"])
def test_rows_that_another_engine_moved_are_left_alone(later: str) -> None:
    """Nothing tells where they went, so a compaction of them has nothing left to do."""
    assert told(VECTORS, f"foreign OPTIMIZE; {later}@0") == ["foreign", "superseded"]


def test_rows_that_came_back_end_a_delete_of_them() -> None:
    """Another engine's RESTORE takes the DELETE back that came first; nobody can tell what its rows are now."""
    outcome = told(VECTORS, "DELETE k=1; foreign RESTORE; DELETE k<=3@0")[-1]
    assert outcome == "conflict: rows came back"


def test_a_second_copy_of_one_stream_loses() -> None:
    assert told(VECTORS, "INSERT once; INSERT once@0")[-1] == "conflict: it is the second copy of one stream"

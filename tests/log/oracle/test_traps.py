"""The traps of the transaction model, each found by exhaustive search, and their right outcome."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import run
from tests.log.oracle.settings import SETTINGS

VECTORS, PARTITIONS, COPIES = "vectors", "vectors, partitions", "copies"
FEED = "vectors, feed"


def outcomes_of(setting: str, history: str) -> list[str]:
    """How each commit of the history ended. Fails if the oracle objects to one."""
    report = run(SETTINGS[setting], history)
    report.require_nothing_wrong()
    return report.outcomes


def test_the_lineage_of_a_rebased_compaction_has_addresses_that_are_live_at_its_commit() -> None:
    """A MINOR moves rows that a MAJOR, staged before, has read at their old addresses. The update was staged between
    the two: it knows only the MINOR's output, and must follow its rows into the MAJOR's.
    """
    assert outcomes_of(VECTORS, "MINOR; MAJOR@0; UPDATE k=1@1") == ["committed"] * 3


def test_the_lineage_of_a_rebased_clustering_has_addresses_that_are_live_at_its_commit() -> None:
    assert outcomes_of(VECTORS, "MINOR; MAJOR clustered@0; UPDATE k=1@1") == ["committed"] * 3


def test_a_compaction_of_which_only_some_inputs_moved() -> None:
    """The group holds files that the MINOR rewrote and one that it did not."""
    assert outcomes_of(VECTORS, "MINOR of two; MAJOR@0; UPDATE v<70@1") == ["committed"] * 3


def test_lineage_names_the_vector_that_the_rewrite_read() -> None:
    """A DELETE commits between a MINOR's rewrite and its commit, so the MINOR removes files with vectors that it has
    not read. Ranks in the old vectors determine the new addresses, and an update staged in between follows them.
    """
    assert outcomes_of(VECTORS, "DELETE k=1; MINOR@0; UPDATE v<70@1") == ["committed"] * 3


def test_the_row_count_of_a_dead_output_still_matters() -> None:
    """All rows of one of a MAJOR's two outputs died before it committed, so that output is not added. The addresses in
    the other output are still counted past it.
    """
    assert outcomes_of(VECTORS, "DELETE k<=3; MAJOR into two@0; UPDATE v<70@1") == ["committed"] * 3
    assert outcomes_of(VECTORS, "DELETE k<5; MAJOR into two@0; UPDATE v<70@1") == ["committed"] * 3


def test_disjoint_writes_conflict_if_one_read_more_than_it_wrote() -> None:
    """An INSERT into partition 2 adds a row with the key that an update looked for in every partition. They write
    different files, but the update would change the new row as well, so it conflicts.
    """
    assert outcomes_of(PARTITIONS, "INSERT k=1; UPDATE k=1@0") == ["committed", "conflict: new rows match"]


def test_a_delete_also_deletes_the_new_row() -> None:
    assert outcomes_of(PARTITIONS, "INSERT k=1; DELETE k=1@0") == ["committed", "committed"]


def test_rows_that_a_truncate_deleted_do_not_survive_in_a_copy() -> None:
    """Without vectors a DELETE stages copies of the rows that it keeps. A TRUNCATE that won deleted these rows."""
    _, outcome = outcomes_of(COPIES, "TRUNCATE; DELETE k=1@0")
    assert outcome in {"committed", "nothing to do", "conflict: without vectors, its files were touched"}


def test_rows_that_an_overwrite_deleted_do_not_survive_in_a_copy() -> None:
    outcomes_of(COPIES, "OVERWRITE; DELETE k<=3@0")


def test_two_deletes_of_a_row_do_not_conflict() -> None:
    assert outcomes_of(VECTORS, "DELETE k=1; DELETE k<=3@0") == ["committed", "committed"]


def test_a_row_that_was_added_and_deleted_again_does_not_match() -> None:
    """Matches are judged at the newest version and not winner by winner."""
    assert outcomes_of(VECTORS, "INSERT k=1; DELETE k=1; UPDATE k=1@0")[:2] == ["committed", "committed"]
    # There all rows of the update died. Here they are still live:
    outcomes = outcomes_of(VECTORS, "INSERT k=1; DELETE v>1000; UPDATE k=1@0")
    assert outcomes == ["committed", "committed", "committed"]


def test_an_image_dies_with_its_row() -> None:
    """A DELETE deletes one of the rows that an update changes. The images of the other rows stay."""
    assert outcomes_of(VECTORS, "DELETE k=1; UPDATE v<70@0") == ["committed", "committed"]


def test_a_lost_row_is_a_conflict_if_change_files_are_staged() -> None:
    """Change files cannot have a deletion vector, so a lost row would stay in the feed."""
    expected = ["committed", "conflict: its change files hold other rows"]
    assert outcomes_of(FEED, "DELETE k=1; UPDATE v<70@0") == expected


def test_a_clustered_compaction_carries_later_deletes() -> None:
    """Two transactions staged before it follow its row map, one after the other."""
    assert outcomes_of(VECTORS, "MAJOR clustered; DELETE k=1@0; UPDATE v<70@0") == ["committed"] * 3


def test_a_chain_of_compactions() -> None:
    assert outcomes_of(VECTORS, "MINOR; MAJOR clustered; MAJOR into two; UPDATE k=1@0") == ["committed"] * 4


@pytest.mark.parametrize("later", ["MINOR", "MAJOR", "MAJOR clustered"])
def test_a_compaction_of_rows_that_another_engine_moved_is_superseded(later: str) -> None:
    """There is no lineage, so the compaction has nothing left to do."""
    assert outcomes_of(VECTORS, f"foreign OPTIMIZE; {later}@0") == ["foreign", "superseded"]


def test_a_delete_of_restored_rows_conflicts() -> None:
    """Another engine's RESTORE undoes an earlier DELETE, so it is unknown which rows are which."""
    outcome = outcomes_of(VECTORS, "DELETE k=1; foreign RESTORE; DELETE k<=3@0")[-1]
    assert outcome == "conflict: rows were restored"


def test_a_second_copy_of_a_stream_conflicts() -> None:
    assert outcomes_of(VECTORS, "INSERT once; INSERT once@0")[-1] == "conflict: it is the second copy of one stream"


def test_what_holds_no_live_row_is_replaced_without_a_change() -> None:
    """A DELETE of the last rows of a file with a vector leaves the file. Its rows do not die again, and without other
    rows in its scope a TRUNCATE is no commit, even if it was staged before the DELETE.
    """
    assert outcomes_of(PARTITIONS, "DELETE p=1; TRUNCATE p=1@1") == ["committed", "nothing to do"]
    assert outcomes_of(PARTITIONS, "DELETE p=1; TRUNCATE p=1@0") == ["committed", "nothing to do"]
    assert outcomes_of(PARTITIONS, "DELETE p=1; OVERWRITE p=1@1; MINOR@0") == ["committed", "committed", "superseded"]
    assert outcomes_of(VECTORS, "DELETE p=1; TRUNCATE@1; UPDATE v<70@0") == ["committed", "committed", "nothing to do"]

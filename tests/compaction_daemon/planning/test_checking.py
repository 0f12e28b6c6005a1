"""A plan that was kept is checked against the table again before it is applied."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.compaction_daemon.planning.planned_tables import File, numbers, table_of
from tests.compaction_daemon.support import put_commit
from tidelog.compaction_daemon import Plan, check_plan, plan
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableReplacedError
from tidelog.log.format.actions import DeletionVectorDescriptor, RemoveFile

FILES = [File(10, at=at, part=part, rows=5) for part in "abc" for at in range(2)]


def removed(path: str) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=1)


@pytest.fixture
def table() -> Table:
    return table_of(FILES)


def test_an_unchanged_plan_fits_as_it_is(table: Table) -> None:
    found = plan(table)
    assert check_plan(table, Plan.from_json(found.to_json())) == (found, ())


def test_a_plan_fits_after_commits_of_other_files(table: Table) -> None:
    found = plan(table)
    put_commit(table, File(10, at=9, part="a", rows=5).to_add("other"))
    fitting, dropped = check_plan(table, found)
    assert (fitting.groups, fitting.version, dropped) == (found.groups, table.version, ())


def test_groups_of_other_files_are_dropped_and_named(table: Table) -> None:
    found = plan(table)
    put_commit(table, removed("0001"))
    with_vector = msgspec.structs.replace(
        File(10, at=0, part="b", rows=5).to_add("0002"),
        deletion_vector=DeletionVectorDescriptor("i", "y", 1, 1),
    )
    put_commit(table, removed("0002"), with_vector)
    fitting, dropped = check_plan(table, found)
    assert numbers(fitting) == [[4, 5]]
    assert fitting.predicted == found.groups[2].predicted
    assert [(drop.path, drop.files, drop.partition_values, drop.reason) for drop in dropped] == [
        ("0001", 2, {"part": "a"}, "the file is no longer part of the table"),
        ("0002", 2, {"part": "b"}, "rows of the file were deleted or brought back"),
    ]


def test_nothing_but_the_files_is_taken_from_a_plan(table: Table) -> None:
    """A partition or a size that was edited would otherwise end up in the table."""
    found = plan(table)
    lie = msgspec.structs.replace(found.groups[0].inputs[0], size=99, partition_values={"part": "z"})
    forged = replace(found.groups[0], inputs=(lie, found.groups[0].inputs[1]), partition_values={"part": "z"})
    fitting, dropped = check_plan(table, replace(found, groups=(forged,)))
    assert (fitting.groups, dropped) == (found.groups[:1], ())
    mixed = replace(found.groups[0], inputs=(found.groups[0].inputs[0], found.groups[1].inputs[0]))
    fitting, (drop,) = check_plan(table, replace(found, groups=(mixed,)))
    assert (fitting.groups, drop.path) == ((), "0002")
    assert drop.reason == "the file is in another partition than the first one"


def test_columns_that_can_no_longer_be_clustered_by(table: Table) -> None:
    (group, *_) = plan(table, "major", cluster_by=["n"]).groups
    fitting, (drop,) = check_plan(table, replace(plan(table, "major"), groups=(replace(group, cluster_by=("gone",)),)))
    assert fitting.groups == ()
    assert "there is no column 'gone'" in drop.reason


def test_the_plan_of_another_table_is_refused(table: Table) -> None:
    other = table_of(FILES)
    with pytest.raises(TableReplacedError, match="the plan is for another table") as raised:
        check_plan(other, plan(table))
    assert (raised.value.expected_id, raised.value.found_id) == (table.id, other.id)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"inputs": ()}, "a group has no files"),
        ({"level": "huge"}, "there is no compaction level 'huge'"),
        ({"cluster_by": ("n",)}, "a minor compaction does not cluster"),
        ({"cluster_order": "z"}, "there is no cluster order 'z'"),
        ({"outputs": -1}, "a group would have -1 outputs"),
    ],
)
def test_a_plan_that_nobody_would_make_is_refused(table: Table, change: dict[str, object], fault: str) -> None:
    found = plan(table)
    with pytest.raises(ConfigurationError, match=fault):
        check_plan(table, replace(found, groups=(replace(found.groups[0], **change),)))  # type: ignore[arg-type]


def test_a_file_in_two_groups_is_refused(table: Table) -> None:
    found = plan(table)
    for groups in (found.groups[:1] * 2, (replace(found.groups[0], inputs=found.groups[0].inputs * 2),)):
        with pytest.raises(ConfigurationError, match="it names the file 0000 twice"):
            check_plan(table, replace(found, groups=groups))

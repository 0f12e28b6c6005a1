"""Every cell of the four conflict matrices, with real jobs staged on one version and committed one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.log.conflict.cells import JOBS, LAYOUTS, Job, Layout, Rows, Template, rows_of
from tidelog.log import Committed, OperationClass, Superseded, Table
from tidelog.log.conflict.policies import POLICIES, WRITE_SERIALIZABLE, Policy, Verdict
from tidelog.log.errors import ConcurrentAppendException, ConflictError

MINOR, MAJOR, INSERT = OperationClass.MINOR, OperationClass.MAJOR, OperationClass.INSERT
OVERWRITE, UPDATE_DELETE = OperationClass.OVERWRITE, OperationClass.UPDATE_DELETE


def every_cell(*policies: Policy) -> pytest.MarkDecorator:
    """Parametrize by policy and layout, with and without deletion vectors and a third commit in between.

    `make test` runs the plainest way of each policy; without vectors it is `full`, and beside a third commit `nightly`.
    """
    ways = []
    for policy, layout in itertools.product(policies, LAYOUTS):
        for vectors, third in itertools.product((True, False), (False, True)):
            notes = ["no vectors"] * (not vectors) + ["a third commit"] * third
            plainest = layout is LAYOUTS[0] and not notes
            ways.append(
                pytest.param(
                    *(policy, layout, vectors, third),
                    id=", ".join([policy.name, layout.name, *notes]),
                    marks=[] if plainest else pytest.mark.nightly if third else pytest.mark.full,
                )
            )
    return pytest.mark.parametrize(("policy", "layout", "vectors", "third"), ways)


def pairs() -> Iterator[tuple[Job, Job]]:
    return itertools.product(JOBS.values(), JOBS.values())


def race(
    template: Template, layout: Layout, earlier: Job, later: Job, *, third: bool, metadata_retry: bool
) -> tuple[Table, Committed | Superseded | ConflictError]:
    """Stage both on one version. Commit the earlier one, then a third commit if wanted, then the later one."""
    table = template.copy()
    first, second = earlier.stage(table, layout, layout.earlier, 1), later.stage(table, layout, layout.later, 2)
    assert isinstance(first.commit(metadata_retry=metadata_retry), Committed)
    if third:
        # Harmless under every policy: rows of another partition, or no rows at all.
        if layout.partitioned:
            table.insert([{"p": "c", "k": 77, "v": 0}])
        else:
            table.set_properties({"delta.checkpointInterval": 50})
    try:
        return table, second.commit(metadata_retry=metadata_retry)
    except ConflictError as error:
        return table, error


def after(template: Template, layout: Layout, *jobs: tuple[Job, str, int], third: bool) -> Rows:
    rows = template.rows
    for job, part, number in jobs:
        rows = job.rows(rows, layout, part, number)
    return rows | ({("c", 77, 0)} if third and layout.partitioned else frozenset())


@every_cell(*POLICIES.values())
def test_the_matrix_as_published(policy: Policy, layout: Layout, vectors: bool, third: bool) -> None:
    template = Template(layout, vectors=vectors, properties={"tidelog.conflictPolicy": policy.name})
    wrong = []
    for earlier, later in pairs():
        table, outcome = race(template, layout, earlier, later, third=third, metadata_retry=False)
        of_earlier, of_later = (policy.class_of(job.operation_class) for job in (earlier, later))
        assert of_earlier is not None
        assert of_later is not None
        fails = layout.overlaps and policy.verdict(of_earlier, of_later) is Verdict.FAIL
        if fails:
            fits = isinstance(outcome, policy.errors(of_earlier, of_later)) and rows_of(table) == after(
                template, layout, (earlier, layout.earlier, 1), third=third
            )
            if isinstance(outcome, ConflictError):
                assert outcome.fields["policy"] == policy.name
        else:
            # An `ok` is rebased, and can still end in a conflict that the model allows.
            expected = promised(layout, policy, earlier, later, vectors=vectors)
            fits = isinstance(outcome, expected) and rows_of(table) in possible(
                template, layout, policy, earlier, later, outcome, third=third
            )
        if not fits:
            wrong.append(f"{earlier.name} then {later.name}: {outcome!r}")
    assert not wrong, "\n".join(wrong)


@every_cell(*POLICIES.values())
def test_the_matrix_with_the_metadata_retry(policy: Policy, layout: Layout, vectors: bool, third: bool) -> None:
    template = Template(layout, vectors=vectors, properties={"tidelog.conflictPolicy": policy.name})
    wrong = []
    for earlier, later in pairs():
        table, outcome = race(template, layout, earlier, later, third=third, metadata_retry=True)
        expected = promised(layout, policy, earlier, later, vectors=vectors)
        rows = possible(template, layout, policy, earlier, later, outcome, third=third)
        if not isinstance(outcome, expected) or rows_of(table) not in rows:
            wrong.append(f"{earlier.name} then {later.name}: {outcome!r}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def possible(
    template: Template, layout: Layout, policy: Policy, earlier: Job, later: Job, outcome: object, *, third: bool
) -> set[Rows]:
    """The possible rows: those of running both jobs in turn, or only the earlier one if the later one lost."""
    mine, theirs = (later, layout.later, 2), (earlier, layout.earlier, 1)
    if isinstance(outcome, ConflictError):
        return {after(template, layout, theirs, third=third)}
    orders = {after(template, layout, theirs, mine, third=third)}
    if may_come_last(policy, earlier, later):
        orders.add(after(template, layout, mine, theirs, third=third))
    return orders


def promised(layout: Layout, policy: Policy, earlier: Job, later: Job, *, vectors: bool) -> tuple[type, ...]:
    """The possible outcomes with the metadata retry, from the table in the model."""
    if not layout.overlaps:
        return (Committed,)
    if not vectors and needs_vectors(policy, earlier, later):
        return (ConflictError, Superseded, Committed)
    match later.operation_class:
        case OperationClass.MINOR:
            gone = earlier.operation_class in {OVERWRITE, MINOR, MAJOR}
            return (Superseded,) if gone else (Committed,)
        case OperationClass.MAJOR:
            gone = earlier.operation_class in {OVERWRITE, MAJOR}
            return (Superseded,) if gone else (Committed,)
        case _ if later.name == "UPDATE" and earlier.name in {"INSERT", "UPDATE"}:
            # Different rows match now: the inserted one, or the new image of the same row.
            return (Committed,) if may_come_last(policy, earlier, later) else (ConcurrentAppendException,)
        case _:
            return (Committed,)


def may_come_last(policy: Policy, earlier: Job, later: Job) -> bool:
    """Whether the earlier job can be ordered last: WriteSerializable allows it for blind appends, except with keys."""
    return policy is WRITE_SERIALIZABLE and earlier.operation_class is INSERT and later.name != "UPSERT"


def needs_vectors(policy: Policy, earlier: Job, later: Job) -> bool:
    """Whether the later job may need to mark rows dead, or to follow rows out of a file that it copied."""
    touching = {UPDATE_DELETE, MINOR, MAJOR}
    if later.operation_class is UPDATE_DELETE:
        appended = earlier.operation_class is INSERT and not may_come_last(policy, earlier, later)
        return earlier.operation_class in touching or appended
    if later.operation_class in {MINOR, MAJOR}:
        return earlier.operation_class in touching
    return False

"""The policies match the published tables."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.policies import POLICIES, Policy, PolicyClass, Verdict
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
)
from tidelog.log.format import properties

COPIES = Path(__file__).parent / "matrices"
PUBLISHED = Path(__file__).parents[3].parent / "shared" / "matrices"
KINDS = {
    kind.__name__: kind
    for kind in (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)
}
ALL = pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))


def rows(name: str, folder: Path) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def matrix(policy: Policy) -> dict[tuple[str, str], str]:
    return {
        (earlier, later): str(policy.verdict(earlier, later))
        for earlier, later in itertools.product(policy.classes, repeat=2)
    }


@pytest.fixture(params=[COPIES, PUBLISHED], ids=["copies", "published"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found if found.is_dir() else COPIES


@pytest.mark.parametrize("name", ["delta-table", "transactional-table"])
def test_maxcompute_matrices_match_the_published_ones(folder: Path, name: str) -> None:
    expected = {(row["earlier"], row["later"]): row["verdict"] for row in rows(f"{name}.csv", folder)}
    assert matrix(POLICIES[name]) == expected


@pytest.mark.parametrize(("name", "column"), [("serializable", None), ("write-serializable", "write_serializable")])
def test_delta_levels_match_the_published_ones(folder: Path, name: str, column: str | None) -> None:
    published = rows("delta-isolation.csv", folder)
    assert matrix(POLICIES[name]) == {(row["earlier"], row["later"]): row[column or name] for row in published}
    for row in published:
        fitting = {KINDS[kind] for kind in row["exception"].split("|") if kind}
        found = POLICIES[name].errors(PolicyClass(row["earlier"]), PolicyClass(row["later"]))
        assert set(found) == (fitting if row[column or name] == "fail" else set())


@ALL
def test_a_matrix_covers_all_pairs_of_its_classes(policy: Policy) -> None:
    assert all(tuple(row) == policy.classes for row in policy.matrix.values())
    if policy.exceptions is not None:
        assert tuple(policy.exceptions) == policy.classes
        assert all(tuple(row) == policy.classes for row in policy.exceptions.values())
    assert set(policy.class_of_operation) == set(OperationClass) - {OperationClass.NONE}
    assert set(policy.class_of_operation.values()) == set(policy.classes)
    assert policy.class_of(OperationClass.NONE) is None


@ALL
def test_exactly_the_failing_cells_have_errors(policy: Policy) -> None:
    for earlier, later in itertools.product(policy.classes, repeat=2):
        errors = policy.errors(earlier, later)
        assert bool(errors) == (policy.verdict(earlier, later) is Verdict.FAIL)
        assert all(issubclass(error, ConflictError) for error in errors)
        assert (errors == (ConflictError,)) == (bool(errors) and not policy.judges_files)


@pytest.mark.parametrize(
    ("name", "minor", "major"),
    [
        ("delta-table", "MINOR", "MAJOR"),
        ("transactional-table", "MERGE", "MERGE"),
        ("write-serializable", "COMPACT", "COMPACT"),
        ("serializable", "COMPACT", "COMPACT"),
    ],
)
def test_compactions_map_to_the_classes_of_the_policy(name: str, minor: str, major: str) -> None:
    assert POLICIES[name].class_of(OperationClass.MINOR) == minor
    assert POLICIES[name].class_of(OperationClass.MAJOR) == major
    for same in (OperationClass.INSERT, OperationClass.OVERWRITE, OperationClass.UPDATE_DELETE):
        assert POLICIES[name].class_of(same) == str(same)


def test_the_property_accepts_the_names_of_the_policies() -> None:
    assert tuple(POLICIES) == properties.CONFLICT_POLICIES
    assert all(properties.validate({properties.CONFLICT_POLICY: name}) for name in POLICIES)
    assert properties.conflict_policy({}) == "delta-table"

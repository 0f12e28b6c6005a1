"""Errors: the tree, stable codes, the text of a message, pickling."""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.log import OperationClass, errors
from tidelog.log.errors import CommitStateUnknownError, ConflictError, RetryableError, TidelogError


def with_subclasses(kind: type[TidelogError]) -> Iterator[type[TidelogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from with_subclasses(child)


ALL = sorted(
    {kind for kind in with_subclasses(TidelogError) if vars(errors).get(kind.__name__) is kind},
    key=lambda kind: kind.__name__,
)
FIELDS = {"path": "/data/t", "version": 3, "evidence": "one = two, [three]", "empty": None}


@pytest.mark.parametrize("kind", ALL)
def test_errors_survive_pickle_and_copy(kind: type[TidelogError]) -> None:
    error = kind("it went wrong", advice="try this", **FIELDS)
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(copied) is kind
        assert str(copied) == str(error)
        assert (copied.message, copied.advice, copied.fields) == ("it went wrong", "try this", FIELDS)
        assert getattr(copied, "path") == "/data/t"  # noqa: B009 - not every class declares it


@pytest.mark.parametrize("kind", ALL)
def test_messages_start_with_the_code_and_end_with_the_fields(kind: type[TidelogError]) -> None:
    text = str(kind("it went wrong", advice="try this", path="/data/t", version=3))
    assert text == f"{kind.code}: it went wrong; try this [path=/data/t, version=3]"
    assert str(kind("it went wrong")) == f"{kind.code}: it went wrong"


@pytest.mark.parametrize(
    "value", [None, "", (), [], {}, set(), object(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), [object()], {"a": 1}]
)
def test_empty_fields_and_objects_are_attributes_but_not_shown(value: Any) -> None:
    error = TidelogError("it went wrong", path="/data/t", token=value)
    assert str(error) == "TIDELOG: it went wrong [path=/data/t]"
    assert error.fields["token"] is vars(error)["token"] is value
    assert str(TidelogError("it went wrong", token=value)) == "TIDELOG: it went wrong"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.5, "1.5"),
        (False, "False"),
        ("a b", "a b"),
        (["a", 1], "[a, 1]"),
        (("a", "b"), "[a, b]"),
        (OperationClass.MINOR, "MINOR"),
    ],
)
def test_plain_fields_are_shown_without_quotes(value: Any, text: str) -> None:
    assert str(TidelogError("it went wrong", field=value)) == f"TIDELOG: it went wrong [field={text}]"


def test_codes_are_distinct_words() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"TIDELOG(_[A-Z]+)*", code) for code in codes)


def test_the_tree_in_the_module_docstring_matches_the_classes() -> None:
    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}((?:[|` ] *(?:-- )?)*)([A-Z]\w+(?:Error|Exception))\b", line)
        if match:
            drawn.append((len(match.group(1)), match.group(2)))
    parents: dict[str, str | None] = {}
    stack: list[tuple[int, str]] = []
    for depth, name in drawn:
        while stack and stack[-1][0] >= depth:
            stack.pop()
        parents[name] = stack[-1][1] if stack else None
        stack.append((depth, name))
    assert parents == {kind.__name__: None if kind is TidelogError else kind.__bases__[0].__name__ for kind in ALL}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_a_docstring(kind: type[TidelogError]) -> None:
    assert inspect.getdoc(kind)


def test_conflicts_have_the_names_that_delta_users_know_and_one_more() -> None:
    names = {
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "MetadataChangedException",
        "ConcurrentTransactionException",
        "ProtocolChangedException",
        "TransactionExpiredError",
    }
    assert {kind.__name__ for kind in with_subclasses(ConflictError)} - {"ConflictError"} == names


def test_unknown_commits_and_conflicts_are_not_retryable() -> None:
    assert not issubclass(CommitStateUnknownError, RetryableError)
    assert not issubclass(ConflictError, RetryableError)

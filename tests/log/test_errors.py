"""Errors: one tree, a stable code in every message, fields that survive another process."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from tidelog.log import errors
from tidelog.log.errors import CommitStateUnknownError, ConflictError, RetryableError, TidelogError


def below(kind: type[TidelogError]) -> Iterator[type[TidelogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


ALL = sorted(
    {kind for kind in below(TidelogError) if kind.__module__ == errors.__name__}, key=lambda kind: kind.__name__
)
FIELDS = {"path": "/data/t", "version": 3, "evidence": "one = two, [three]", "nothing": None}


@pytest.mark.parametrize("kind", ALL)
def test_an_error_pickles_whole(kind: type[TidelogError]) -> None:
    error = kind("it went wrong", advice="try this", **FIELDS)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert (again.message, again.advice, again.fields) == ("it went wrong", "try this", FIELDS)
        assert vars(again)["path"] == "/data/t"


@pytest.mark.parametrize("kind", ALL)
def test_a_message_begins_with_a_code_and_ends_with_the_fields(kind: type[TidelogError]) -> None:
    text = str(kind("it went wrong", advice="try this", path="/data/t", version=3))
    assert text == f"{kind.code}: it went wrong; try this [path=/data/t, version=3]"
    assert str(kind("it went wrong")) == f"{kind.code}: it went wrong"


def test_codes_are_stable_words_and_no_two_kinds_share_one() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"TIDELOG(_[A-Z]+)*", code) for code in codes)


def test_the_tree_at_the_top_of_the_module_is_the_tree() -> None:
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
def test_an_error_says_in_its_docstring_when_it_is_raised(kind: type[TidelogError]) -> None:
    assert inspect.getdoc(kind)


def test_deltas_six_are_conflicts_under_their_known_names() -> None:
    names = {
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "MetadataChangedException",
        "ConcurrentTransactionException",
        "ProtocolChangedException",
    }
    assert {kind.__name__ for kind in below(ConflictError)} - {"ConflictError"} == names


def test_what_may_be_committed_is_nothing_to_retry_blindly() -> None:
    assert not issubclass(CommitStateUnknownError, RetryableError)
    assert not issubclass(ConflictError, RetryableError)

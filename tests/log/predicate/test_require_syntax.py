"""Checking a predicate without a table: everything but its columns."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.log.errors import PredicateError
from tidelog.log.predicate import require_syntax


@pytest.mark.parametrize(
    "text", ["op = 'd'", "a.b.c > 3 AND `x y` IS NOT NULL", "k IN (1, 2) OR v LIKE 'a%'", "upper(op) = 'D'"]
)
def test_a_predicate_over_any_columns_passes(text: str) -> None:
    require_syntax(text)


@pytest.mark.parametrize(
    "text", ["", "nonsense(", "op = 'd' AND", "initcap(op) = 'D'", "op = 'd'; DROP TABLE t", 5, None]
)
def test_anything_else_is_refused(text: Any) -> None:
    with pytest.raises(PredicateError):
        require_syntax(text)

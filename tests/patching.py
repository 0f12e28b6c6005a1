"""Replace a function by a wrong one, for the mutation tests of the oracle and of the simulation."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

Function: TypeAlias = Callable[..., Any]


class Patch(Protocol):
    """`replaced` takes the function, method or property at `target` (module:name) and returns a wrong one."""

    @property
    def target(self) -> str: ...

    @property
    def replaced(self) -> Callable[[Function], Any]: ...


def gives(value: Any) -> Callable[[Function], Function]:
    """Replace a function by one that always returns `value`."""
    return lambda original: functools.wraps(original)(lambda *_args, **_kwargs: value)


@contextmanager
def patched(patch: Patch) -> Iterator[None]:
    """Apply the patch within the block."""
    module_name, _, path = patch.target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for part in owners:
        owner = getattr(owner, part)
    original = vars(owner)[name]
    setattr(owner, name, patch.replaced(original))
    try:
        yield
    finally:
        setattr(owner, name, original)

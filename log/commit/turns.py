"""Turns: a writer that keeps losing asks the others to let it go first.

Without turns, a writer whose rebase and put take longer than the time between two commits of other writers loses every
race. So after ASK_AFTER_S it puts a request: an empty file in `_tidelog/turns`. Writers of a busy table look there once
for each transaction, before the first put, and wait while requests stand that they found. So each of them commits at
most once more before the one that asked, if that one needs less than TURN_S.

A request is only a hint. No request is needed for a commit to be right, and whatever fails around it is ignored. One
that outlived its writer costs the others a single wait of TURN_S, after which they withdraw it.
"""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

from tidelog.log.errors import TidelogError
from tidelog.log.storage import Store
from tidelog.log.system import System

TURN_FOLDER = "_tidelog/turns"
# Among writers that are equally fast, few lose for this long.
ASK_AFTER_S = 1.0
# Longer than a rebase and a put take on a slow store. It is also what a writer that died while asking costs the others.
TURN_S = 3.0
_LOOKS = 60
# Where a look costs money, a writer that commits more often than this does not look each time. It adds to the wait of
# one that asked.
LOOK_EVERY_S = 1.0
# A table without a commit for so long has no contention: its writers do not look.
BUSY_MS = 1000
_IGNORED = (TidelogError, OSError)
# When this process last looked through a store, by the monotonic clock.
_LOOKED_S: MutableMapping[Store, float] = WeakKeyDictionary()


def turn_after_others(store: Store, system: System, head_timestamp_ms: int) -> Turn:
    """The turn of a transaction. On a busy table, returns once the writers went that ask for theirs."""
    turn = Turn(store, system)
    if system.now_ms() - head_timestamp_ms < BUSY_MS:
        turn.let_others_go()
    return turn


class Turn:
    """The turn of one transaction."""

    def __init__(self, store: Store, system: System) -> None:
        self._store = store
        self._system = system
        self._name = system.uuid()
        self._ask_at_s = system.monotonic_s() + ASK_AFTER_S
        self._asked = False

    def let_others_go(self) -> None:
        """Wait until the requests that stand now are withdrawn, for TURN_S at most."""
        if not self._looks_now():
            return
        standing = self._requests()
        for _ in range(_LOOKS):
            if not standing:
                return
            self._system.sleep_s(TURN_S / _LOOKS)
            standing &= self._requests()
        for name in standing:
            self._withdraw(name)

    def ask_if_due(self) -> bool:
        """Ask for a turn if the transaction has tried for so long, and again when the others withdraw the request.

        Returns whether it has asked.
        """
        now_s = self._system.monotonic_s()
        if now_s >= self._ask_at_s:
            self._asked, self._ask_at_s = True, now_s + TURN_S
            with contextlib.suppress(*_IGNORED):
                self._store.put_if_absent(f"{TURN_FOLDER}/{self._name}", b"", durable=False)
        return self._asked

    def end(self) -> None:
        """Withdraw the request, if there is one."""
        if self._asked:
            self._withdraw(self._name)

    def _looks_now(self) -> bool:
        """Whether it is time to look. Where a look costs money, a writer looks once in LOOK_EVERY_S."""
        if not self._store.trusted_s:
            return True
        now_s = self._system.monotonic_s()
        if now_s - _LOOKED_S.get(self._store, -LOOK_EVERY_S) < LOOK_EVERY_S:
            return False
        _LOOKED_S[self._store] = now_s
        return True

    def _requests(self) -> set[str]:
        try:
            return set(self._store.names(TURN_FOLDER))
        except _IGNORED:
            return set()

    def _withdraw(self, name: str) -> None:
        with contextlib.suppress(*_IGNORED):
            self._store.delete(f"{TURN_FOLDER}/{name}")

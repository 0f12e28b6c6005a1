"""Memory for what is kept of files: a process has so much of it for all of its tables."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, MutableMapping
from threading import Lock
from typing import Generic, TypeVar

from tidelog.log.storage import Store

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Room:
    """Memory that objects of this process share: so many bytes at most. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        # What objects had that nobody uses any more. They end at any time, so nothing is locked then.
        self._released: deque[int] = deque()
        self._lock = Lock()

    def take(self, owner: object, size: int) -> bool:
        """Count so many bytes until the owner ends; False if there is no room for them."""
        with self._lock:
            if not self._has(size):
                return False
            self._taken += size
        weakref.finalize(owner, self._released.append, size).atexit = False
        return True

    def has(self, size: int) -> bool:
        """Whether there is room for so many bytes."""
        with self._lock:
            return self._has(size)

    def _has(self, size: int) -> bool:
        while self._released:
            self._taken -= self._released.popleft()
        return self._taken + size <= self._most


class CacheByStore(Generic[_Key, _Value]):
    """What is kept of each store, for as long as the store is in use.

    Not thread-safe: hold `lock` while you use it, or what `of` returns.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._kept: MutableMapping[Store, OrderedDict[_Key, _Value]] = weakref.WeakKeyDictionary()

    def of(self, store: Store) -> OrderedDict[_Key, _Value]:
        """What is kept of a store, which is the one that was asked for last from now on."""
        kept = self._kept.pop(store, None)
        self._kept[store] = kept = OrderedDict() if kept is None else kept
        return kept

    def make_room(self, room: Room, size: int, store: Store) -> bool:
        """Let go of what is kept of other stores, those that were asked for longest ago first, until there is room.

        Returns whether there is. What is kept of `store` itself stays: its next reader asks for all of it again.
        """
        while not room.has(size):
            oldest = next((kept for other, kept in self._kept.items() if kept and other is not store), None)
            if oldest is None:
                return False
            oldest.clear()
        return True

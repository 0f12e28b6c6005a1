"""Producers: each sends events in its own thread, some of them poisoned, and records where each one was stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import Any

from kafka import KafkaProducer

from examples.kafka.events import POISONS, Event, event, payload
from examples.kafka.topics import EVENTS

_ACKNOWLEDGED_S = 120


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that the broker acknowledged. `poison` is the kind of poison, None for a valid event."""

    event: Event
    value: bytes | None
    poison: str | None
    partition: int
    offset: int


class Producer(Thread):
    """Sends `count` records at `rate` per second. Every `poison_every`-th is poisoned, with the kinds in turn.

    The client is idempotent: a record that it sends again after a broken connection is stored once.
    """

    def __init__(self, address: str, number: int, count: int, rate: float, poison_every: int) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self.number = number
        self.sent: list[Sent] = []
        self.count = count
        self.started = 0
        self.error: Exception | None = None
        self._address = address
        self._rate = rate
        self._poison_every = poison_every
        self._ended = Flag()

    def run(self) -> None:
        """Send all records and wait for the acknowledgements; an error is kept in `error`."""
        try:
            client: Any = KafkaProducer(bootstrap_servers=self._address, linger_ms=5, enable_idempotence=True)
            try:
                self._send_all(client)
            finally:
                client.close(timeout=1)
        except Exception as error:  # noqa: BLE001 - the main thread checks it
            self.error = error

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()

    def _send_all(self, client: Any) -> None:
        waiting = []
        begun_s = time.monotonic()
        for number in range(self.count):
            if self._ended.wait(max(0.0, begun_s + number / self._rate - time.monotonic())):
                return
            made = event(self.number, number)
            poison = self._poison(number)
            value = payload(made) if poison is None else POISONS[poison].payload(made)
            waiting.append((made, value, poison, client.send(EVENTS, key=made["id"].encode(), value=value)))
            self.started += 1
        for made, value, poison, future in waiting:
            place = future.get(timeout=_ACKNOWLEDGED_S)
            self.sent.append(Sent(made, value, poison, place.partition, place.offset))

    def _poison(self, number: int) -> str | None:
        turn, rest = divmod(number, self._poison_every)
        # Each producer starts with another kind, so that even a short run has many kinds.
        kinds: Sequence[str] = tuple(POISONS)
        return kinds[(turn * 3 + self.number) % len(kinds)] if rest == self._poison_every - 1 else None

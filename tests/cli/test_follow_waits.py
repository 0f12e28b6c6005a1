"""Waiting for a consumer's name, and for a store that does not answer, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.cli.follow import NAME_WAIT_LIMIT_MS, OUTAGE_LIMIT_S, Outage, Stop, claim_when_free
from tidelog.log.errors import ConsumerInUseError, StoreUnavailableError
from tidelog.log.system import System

# What a claim returns that succeeds.
CLAIMED: Any = object()


class Clock(System):
    """A clock that moves only when a test moves it. Jitter takes nothing off."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def uniform(self, low: float, high: float) -> float:
        assert low == high / 2
        return high


class Waits(Stop):
    """Records waits instead of waiting, and stops at the `last` one."""

    def __init__(self, clock: Clock, *, last: int = 1000) -> None:
        super().__init__()
        self._clock = clock
        self._last = last
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._clock.now_s += seconds
        self.is_set = len(self.seconds) == self._last


def in_use(free_in_s: float, owner: str = "host:1") -> ConsumerInUseError:
    return ConsumerInUseError("taken", path="p", consumer="c", owner=owner, free_in_ms=round(free_in_s * 1000))


def claiming(answer: Callable[[float], object], clock: Clock, takes_s: float = 0) -> Any:
    """A claim that takes a while. `answer` gives what it finds, after so many seconds."""
    began_s = clock.now_s

    def claim() -> object:
        clock.now_s += takes_s
        found = answer(clock.now_s - began_s)
        if isinstance(found, Exception):
            raise found
        return found

    return claim


def dead_for(seconds: float) -> Callable[[float], object]:
    """The name of an owner that gives no sign of life."""
    return lambda now_s: CLAIMED if now_s >= seconds else in_use(seconds - now_s)


def test_a_free_name_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stop = Waits(clock)
    assert claim_when_free(claiming(dead_for(0), clock), "c", stop, clock) is CLAIMED
    assert stop.seconds == []
    assert capsys.readouterr().err == ""


def test_the_name_of_an_owner_that_is_dead(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stop = Waits(clock)
    assert claim_when_free(claiming(dead_for(3.5), clock), "c", stop, clock) is CLAIMED
    assert stop.seconds == [1, 1, 1, 0.5]
    assert capsys.readouterr().err == "the consumer c belongs to host:1: waiting up to 4 s for the name\n"


@pytest.mark.parametrize("takes_s", [5, 11])
def test_a_slow_answer_is_no_sign_of_life(takes_s: float) -> None:
    """The store measured the silence at an unknown moment of the claim."""
    clock = Clock()
    stop = Waits(clock)

    def answer(now_s: float) -> object:
        is_first = now_s == takes_s
        return dead_for(60)(now_s if is_first else now_s - takes_s)

    assert claim_when_free(claiming(answer, clock, takes_s), "c", stop, clock) is CLAIMED


@pytest.mark.parametrize(
    ("every_s", "looks"),
    [(0.1, 4), (15, 16)],
    ids=["it writes all the time", "it writes now and then"],
)
def test_an_owner_that_is_alive(every_s: float, looks: int) -> None:
    clock = Clock()
    stop = Waits(clock)
    with pytest.raises(ConsumerInUseError):
        claim_when_free(claiming(lambda now_s: in_use(60 - now_s % every_s), clock), "c", stop, clock)
    assert len(stop.seconds) + 1 == looks


def test_somebody_else_was_faster() -> None:
    clock = Clock()
    stop = Waits(clock)

    def answer(now_s: float) -> object:
        return in_use(10 - now_s) if now_s < 2 else in_use(1, owner="host:2")

    with pytest.raises(ConsumerInUseError) as refused:
        claim_when_free(claiming(answer, clock), "c", stop, clock)
    assert refused.value.owner == "host:2"
    assert stop.seconds == [1, 1]


def test_a_name_that_is_taken_for_long_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stop = Waits(clock)
    with pytest.raises(ConsumerInUseError):
        claim_when_free(claiming(dead_for(NAME_WAIT_LIMIT_MS / 1000 + 1), clock), "c", stop, clock)
    assert stop.seconds == []
    assert capsys.readouterr().err == ""


def test_the_wait_for_a_name_is_bounded() -> None:
    """Even if its owner's silence does not grow, as with a store whose clock stands still."""
    clock = Clock()
    stop = Waits(clock)
    with pytest.raises(ConsumerInUseError):
        claim_when_free(claiming(lambda _now_s: in_use(0.001), clock), "c", stop, clock)
    assert sum(stop.seconds) < 3


def test_a_stop_ends_the_wait_for_a_name() -> None:
    clock = Clock()
    stop = Waits(clock, last=2)
    assert claim_when_free(claiming(dead_for(60), clock), "c", stop, clock) is None
    assert stop.seconds == [1, 1]


def test_an_outage_is_announced_once_and_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stop = Waits(clock)
    outage = Outage(stop, clock)
    error = StoreUnavailableError("no answer", path="p")
    while clock.now_s < 1000 + OUTAGE_LIMIT_S:
        outage.wait(error)
    with pytest.raises(StoreUnavailableError) as raised:
        outage.wait(error)
    assert raised.value is error
    assert stop.seconds[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert OUTAGE_LIMIT_S <= sum(stop.seconds) < OUTAGE_LIMIT_S + 30
    said = capsys.readouterr().err
    assert said.startswith("trying again for 10 minutes: TIDELOG_STORE_UNAVAILABLE: no answer")
    assert said.count("\n") == 1


def test_the_end_of_an_outage_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stop = Waits(clock)
    outage = Outage(stop, clock)
    outage.end()
    assert capsys.readouterr().err == ""
    for _ in range(2):
        stop.seconds.clear()
        outage.wait(StoreUnavailableError("no answer", path="p"))
        outage.wait(StoreUnavailableError("no answer", path="p"))
        assert stop.seconds == [1, 2]
        outage.end()
        outage.end()
        first, second = capsys.readouterr().err.splitlines()
        assert first.startswith("trying again for 10 minutes")
        assert second == "the store answers again, after 3 s"

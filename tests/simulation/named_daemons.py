"""Scenarios of daemons, made by hand: what the rules of leases are for."""

from __future__ import annotations

from tests.simulation.actors import Create, Drop
from tests.simulation.daemons import Attend
from tests.simulation.faults import COMMIT
from tests.simulation.named import Named, named
from tests.simulation.scenario import HOUR_MS, Hold

_LEASE = "_tidelog/leases/0/"
# Takes the lease from an owner that gives no sign of life, and does nothing with it.
_TAKES_OVER = Attend("none", patience=3, after_ms=1000)


def _record(number: int) -> str:
    return rf"{_LEASE}{number:020d}\.json"


DAEMONS: tuple[Named, ...] = (
    named(
        "a daemon that is paused before its commit",
        "it has rewritten files and puts its version after another one has taken over, which has not compacted yet",
        "",
        {"daemon-0": (Attend(),), "daemon-1": (_TAKES_OVER,)},
        holds=(Hold("daemon-0", "link", COMMIT, until="daemon-1"),),
    ),
    named(
        "a daemon that is paused before it begins",
        "it has the fence and looks at the table after another one has taken over, so that it sees the new epoch",
        "",
        {"daemon-0": (Attend(),), "daemon-1": (_TAKES_OVER,)},
        # It has the lease, and asks for version 5.
        holds=(Hold("daemon-0", "read", r"_delta_log/0+5\.json", nth=4, until="daemon-1"),),
    ),
    named(
        "a takeover that dies before its commit",
        "it has written its record; a third daemon takes over from it, and must shut the first one out as well",
        "",
        {
            "daemon-0": (Attend(),),
            "daemon-1": (_TAKES_OVER,),
            "daemon-2": (Attend("none", patience=3, after_ms=60_000),),
        },
        holds=(
            Hold("daemon-0", "link", COMMIT, until="daemon-2"),
            Hold("daemon-1", "link", COMMIT, dies=True),
        ),
    ),
    named(
        "a daemon that puts a number which was deleted",
        "it sleeps before it takes a released lease; others have it, give signs of life and delete old records",
        "",
        {
            "daemon-0": (Attend("none", end="release"),),
            "daemon-1": (Attend("none", after_ms=1000),),
            "daemon-2": (Attend("none", beats=6, end="release", after_ms=2000),),
        },
        holds=(Hold("daemon-1", "link", _record(2), until="daemon-2"),),
    ),
    named(
        "a daemon that puts a number which was deleted, behind another table's",
        "a record of a table that was dropped comes after the drop; nobody deletes it before the numbers that follow",
        "",
        {
            "daemon-0": (Attend("none"),),
            "drop-1": (Drop(after_ms=1000), Create()),
            "daemon-2": (Attend("none", after_ms=2000),),
            "daemon-3": (Attend("none", beats=6, end="release", after_ms=3000),),
        },
        store="cloud",
        holds=(
            Hold("daemon-0", "put", _record(0), until="drop-1"),
            Hold("daemon-2", "put", _record(1), until="daemon-3"),
        ),
    ),
    named(
        "a daemon that is alive keeps the lease",
        "it gives signs of life while another one looks again and again; clocks of the day are hours apart",
        "",
        {
            "daemon-0": tuple(Attend("none", beats=1, after_ms=after_ms) for after_ms in (0, *[9_000] * 7)),
            "daemon-1": (Attend("none", patience=4, after_ms=1000),),
            "daemon-2": (Attend("none", patience=4, after_ms=2000),),
        },
        skew_ms=HOUR_MS,
    ),
    named(
        "two daemons that take over at the same time",
        "both have waited; one puts its record and sleeps before its commit, the other one comes later and goes on",
        "",
        {
            "daemon-0": (Attend(end="forget"),),
            "daemon-1": (Attend("minor", patience=3, after_ms=1000), Attend("heartbeat")),
            "daemon-2": (Attend("none", patience=5, after_ms=1000), Attend("heartbeat")),
        },
        holds=(Hold("daemon-1", "link", COMMIT, until="daemon-2"),),
    ),
)

"""Five races, each staged by hand: an operation begins, others commit, then it commits as well, or loses."""

from __future__ import annotations

from collections.abc import Callable

from examples.update_beside_stream.flights import (
    DELETE_CANCELLED,
    IS_LATE,
    SET_CHECKED,
    SET_LATE,
    Flights,
    where_day,
)
from tidelog.compaction_daemon import compact, stage
from tidelog.log import Committed, Superseded, Table
from tidelog.log.errors import ConflictError

Say = Callable[[str], None]


def play(flights: Flights, say: Say) -> None:
    """Play all scenes. The stream has committed a few days before."""
    for scene in (_delete, _update_of_a_past_day, _update_of_what_arrives, _compaction, _second_compaction):
        assert scene.__doc__
        say(f"  {scene.__doc__.strip()}")
        say(f"      {scene(flights)}")


def _delete(flights: Flights) -> str:
    """DELETE status = 'cancelled'; meanwhile the stream adds a day, and a compaction rewrites the files."""
    mine = Table.open(flights.path).begin().delete(DELETE_CANCELLED)
    _add_a_day(flights)
    compact(flights.path)
    done = _committed(mine.commit())
    left = flights.table.refresh().scan(DELETE_CANCELLED).count()
    return f"{_described(done)}; the new day's cancelled flights are deleted, too ({left} left)"


def _update_of_a_past_day(flights: Flights) -> str:
    """UPDATE of a past day; meanwhile the stream adds a day, and a compaction rewrites the files."""
    mine = Table.open(flights.path).begin().update(where_day(0), SET_CHECKED)
    _add_a_day(flights)
    compact(flights.path)
    done = _committed(mine.commit())
    flights.check_day(0)
    return f"{_described(done)}; its {done.metrics['numUpdatedRows']} rows were followed into the new file"


def _update_of_what_arrives(flights: Flights) -> str:
    """UPDATE of all late flights; meanwhile the stream adds a day with late flights."""
    table = Table.open(flights.path)
    mine = table.begin().update(IS_LATE, SET_LATE)
    _add_a_day(flights)
    try:
        mine.commit()
    except ConflictError as error:
        again = table.update(IS_LATE, SET_LATE)
        return f"lost with {error.code}, as it would miss them; run again, it is version {again.version}"
    raise AssertionError("the update committed, although it did not see the new late flights")


def _compaction(flights: Flights) -> str:
    """COMPACTION; meanwhile a DELETE takes rows out of its inputs."""
    _add_a_day(flights)
    mine = stage(flights.table.refresh())
    deleted = Table.open(flights.path).delete(DELETE_CANCELLED).metrics["numDeletedRows"]
    done = _committed(mine.commit())
    return f"{_described(done)}; the {deleted} rows stay deleted in its new file"


def _second_compaction(flights: Flights) -> str:
    """COMPACTION; meanwhile another one rewrites the same files."""
    _add_a_day(flights)
    mine = stage(flights.table.refresh())
    compact(flights.path)
    outcome = mine.commit()
    assert isinstance(outcome, Superseded)
    return f"superseded by version {outcome.by}: nothing was left to do, and nothing is wrong"


def _add_a_day(flights: Flights) -> None:
    flights.announce_day()
    flights.await_days()


def _committed(outcome: Committed | Superseded) -> Committed:
    assert isinstance(outcome, Committed)
    return outcome


def _described(done: Committed) -> str:
    return f"committed as version {done.version}, rebased over {', '.join(map(str, done.rebased_over))}"

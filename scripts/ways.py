"""How many pages a reader turns who follows an operation: the modules that it visits, and how often it comes back.

    python -m scripts.ways                 a JSON line for each way
    python -m scripts.ways --way insert    and each visit in order: a line for each page that the reader turns

A way is an operation on a warm table: an insert, an upsert, a scan, the changes of a few commits, a daemon's step. Only
the calls of tidelog's own functions on the caller's thread count. `modules` and `functions` are different ones, `calls`
are all, and `returns` are visits of a module that was left before. Calls within a module turn no page.

Measured in November 2026, before and after helpers were folded into their owners, callers collected before they called
and commits were read in blocks: insert 49 modules and 251 returns, then 33 and 123; upsert 75 and 687, then 50 and 312;
scan 42 and 154, then 26 and 76; a daemon's step 110 and 2,004, then 75 and 988. The bounds are in `tests/test_ways.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from tidelog import Daemon, Table

ROOT = Path(__file__).parent.parent
_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64())])
_ROWS = 1_000
_INSERTS = 8
# With more of them, other threads than the caller's read ahead.
_CORES = 2


@dataclass
class Visit:
    """A stay in one module: what is called there until another module's function is."""

    module: str
    functions: list[str]
    is_return: bool


@dataclass
class Way:
    """The visits of one operation, in order."""

    name: str
    visits: list[Visit] = field(default_factory=list)

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(visit.module for visit in self.visits))

    @property
    def returns(self) -> int:
        return sum(visit.is_return for visit in self.visits)

    def counts(self) -> dict[str, str | int]:
        called = [(visit.module, name) for visit in self.visits for name in visit.functions]
        return {
            "way": self.name,
            "modules": len(self.modules),
            "functions": len(set(called)),
            "calls": len(called),
            "returns": self.returns,
        }


def walked(name: str, operation: Callable[[], object]) -> Way:
    """The way of an operation. Call it once before, so that caches are warm."""
    way, seen = Way(name), set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (module := _module(frame.f_code.co_filename)) is None:
            return
        if not way.visits or way.visits[-1].module != module:
            way.visits.append(Visit(module, [], is_return=module in seen))
            seen.add(module)
        way.visits[-1].functions.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return way


def _module(filename: str) -> str | None:
    """The path of a module of tidelog's below the root; None for other code."""
    _, found, module = filename.partition(f"{ROOT}/tidelog/")
    return module if found else None


def ways(folder: Path) -> list[Way]:
    """Each way once, on a table in this folder whose code and caches are warm; the same on machines of any size."""
    before = pa.cpu_count()
    pa.set_cpu_count(_CORES)
    try:
        return _walked(folder)
    finally:
        pa.set_cpu_count(before)


def _walked(folder: Path) -> list[Way]:
    place = str(folder / "table")
    table = Table.create(place, _SCHEMA, properties={"tidelog.primaryKey": "id", "delta.enableChangeDataFeed": "true"})
    _fill(table, 0)
    table.upsert(_rows(500))
    table.scan("id < 10").to_arrow()
    table.changes(after=2, until=5).to_arrow()
    Daemon([place]).step()
    _fill(table, 20_000)
    found = [
        walked("insert", lambda: table.insert(_rows(50_000))),
        walked("upsert", lambda: table.upsert(_rows(50_500))),
        walked("scan", lambda: table.scan("id < 10").to_arrow()),
        walked("changes", lambda: table.changes(after=10, until=14).to_arrow()),
    ]
    daemon = Daemon([place])
    return [*found, walked("daemon step", daemon.step)]


def _fill(table: Table, first: int) -> None:
    for number in range(_INSERTS):
        table.insert(_rows(first + number * _ROWS))


def _rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + _ROWS), "v": [1.0] * _ROWS}, schema=_SCHEMA)


def pages(way: Way) -> str:
    """Each visit on a line. `<` marks a return, and the number is that of the module's first visit."""
    numbers = {module: number for number, module in enumerate(way.modules, 1)}
    return "\n".join(
        f"{numbers[visit.module]:4} {'<' if visit.is_return else ' '} {visit.module:36} "
        + ", ".join(dict.fromkeys(visit.functions))
        for visit in way.visits
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--way", help="print each visit of this way: insert, upsert, scan, changes or 'daemon step'")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for way in ways(Path(folder)):
            if given.way is None:
                print(json.dumps(way.counts()))
            elif given.way == way.name:
                print(pages(way))
                print(json.dumps(way.counts()))


if __name__ == "__main__":
    main()

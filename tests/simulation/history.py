"""What really happened: every commit that appeared, by table, and every file that disappeared.

It watches the store's names, so it knows the truth whatever the actors were told. Faults that can be seen at once are
reported at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.log.oracle.view import Line, actions, vector_id, vector_path
from tests.simulation.files import File
from tests.simulation.process import owner

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CONSUMER = re.compile(r"_tidelog/consumers/([^/]+)/\d{20}\.json")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4000-8000-[0-9a-f]{12}")
_DATA = re.compile(r"(?!_delta_log/).*(\.parquet|\.bin|\.arrow)")
Owner = tuple[int, int]
# Application ids that are no streams'.
MARKS = ("tidelog/", "tidelog.daemon/")
# The mark of a commit that deletes a key which has no row.
TOMBSTONES = "tidelog/tombstones"


@dataclass(frozen=True)
class Written:
    """A commit that appeared. `owner` is the actor and the operation that put it."""

    version: int
    content: bytes
    lines: list[Line]
    owner: Owner | None
    ms: int

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing but the marks of clean-ups and daemons: nobody asked for it."""
        kinds = {kind for line in self.lines for kind in line}
        applications = {txn["appId"] for txn in actions(self.lines, "txn")}
        own = all(name.startswith(MARKS) and name != TOMBSTONES for name in applications)
        return own and not kinds & {"add", "remove", "cdc", "metaData", "protocol", "domainMetadata"}

    @property
    def files(self) -> Iterator[str]:
        """The path of the commit, and of the files that it adds."""
        yield f"_delta_log/{self.version:020d}.json"
        for action in actions(self.lines, "add"):
            yield action["path"]
            vector = _vector_path(action)
            if vector is not None:
                yield vector
        yield from (action["path"] for action in actions(self.lines, "cdc"))

    @property
    def horizon(self) -> int:
        """The version before which a vacuum that it announces may delete data files; -1 if it announces none."""
        marks = (txn for txn in actions(self.lines, "txn") if txn["appId"] == "tidelog/horizon")
        return max((int(txn["version"]) for txn in marks), default=-1)

    @property
    def timestamp_ms(self) -> int:
        return int(self.lines[0]["commitInfo"]["inCommitTimestamp"])

    @property
    def ends_table(self) -> bool:
        return any("tidelog.dropped" in (each.get("writerFeatures") or ()) for each in actions(self.lines, "protocol"))


@dataclass
class Incarnation:
    """A table from its first commit to its drop. A table that is created again at the path is another one."""

    table_id: str
    commits: dict[int, Written] = field(default_factory=dict)
    live: dict[str, str | None] = field(default_factory=dict)
    """The live data files, with the paths of their vectors."""
    removed_ms: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    @property
    def head(self) -> int:
        return max(self.commits)

    @property
    def first(self) -> int:
        return min(self.commits)

    @property
    def last(self) -> Written:
        return self.commits[self.head]


@dataclass
class History:
    """All tables that were at the path. `strays` are commits that appeared where no reader looks for them.

    `table_of` gives the table that an operation worked on, if it is known; `object_to` reports a fault.
    """

    object_to: Callable[[str, str], None]
    now_ms: Callable[[], int]
    exists: Callable[[str], bool]
    table_of: Callable[[Owner], str | None]
    acting: Callable[[], int | None]
    least_age_ms: int | None = None
    """How old a file must be before clean-up may delete it; None if nobody checks."""
    incarnations: list[Incarnation] = field(default_factory=list)
    strays: list[Written] = field(default_factory=list)
    created_ms: dict[str, int] = field(default_factory=dict)

    @property
    def current(self) -> Incarnation:
        return self.incarnations[-1]

    def appeared(self, path: str, file: File) -> None:
        match = _COMMIT.fullmatch(path)
        if match is None:
            self.created_ms.setdefault(path, self.now_ms())
            return
        lines = [json.loads(line) for line in file.content.splitlines()]
        version = int(match[1])
        who = owner(lines[0].get("commitInfo", {}).get("txnId", ""))
        written = Written(version, file.content, lines, who, self.now_ms())
        metadata = actions(lines, "metaData")
        known = {each.table_id for each in self.incarnations}
        if metadata and metadata[-1]["id"] not in known and version > self.current.head:
            self.incarnations.append(Incarnation(metadata[-1]["id"]))
        elif self.current.ended or version != self.current.head + 1:
            self.strays.append(written)
            return
        self._follow(written)

    def begin(self, contents: list[bytes]) -> None:
        """The commits that are there at the beginning."""
        for version, content in enumerate(contents):
            lines = [json.loads(line) for line in content.splitlines()]
            if version == 0:
                self.incarnations.append(Incarnation(actions(lines, "metaData")[0]["id"]))
            self._apply(Written(version, content, lines, None, 0))

    def _follow(self, written: Written) -> None:
        table = self._apply(written)
        if written.owner is not None and not written.is_empty:
            worked_on = self.table_of(written.owner)
            if worked_on not in {None, table.table_id}:
                self.object_to(
                    "incarnation",
                    f"version {written.version} of the table {table.table_id[:13]} was put by {written.owner}, which "
                    f"worked on the table {worked_on}",
                )
        for action in actions(written.lines, "add"):
            for path in (action["path"], _vector_path(action)):
                if path is not None and not self.exists(path):
                    self.object_to(
                        "missing", f"version {written.version} by {written.owner} adds {path}, which is gone"
                    )

    def _apply(self, written: Written) -> Incarnation:
        table = self.current
        table.commits[written.version] = written
        for action in actions(written.lines, "remove"):
            table.live.pop(action["path"], None)
            table.removed_ms[action["path"]] = written.ms
        for action in actions(written.lines, "add"):
            table.live[action["path"]] = _vector_path(action)
            table.removed_ms.pop(action["path"], None)
        if written.ends_table:
            table.ended = True
            table.live.clear()
        return table

    def vanished(self, path: str) -> None:
        if not self.incarnations or _DATA.fullmatch(path) is None:
            return
        table = self.current
        if path in table.live or path in table.live.values():
            self.object_to("missing", f"the live file {path} of version {table.head} is deleted")
            return
        if table.ended or self.is_own(path) or self.least_age_ms is None or path in self._older():
            return
        if len(self.incarnations) > 1 and self.created_ms.get(path, 0) <= table.commits[table.first].ms:
            return  # whoever wrote it worked on a table that was dropped
        since_ms = max(table.removed_ms.get(path, 0), self.created_ms.get(path, 0))
        if self.now_ms() - since_ms < self.least_age_ms:
            age_ms = self.now_ms() - since_ms
            self.object_to("retention", f"{path} is deleted {age_ms} ms after it was written or removed")

    def is_own(self, path: str) -> bool:
        """Whether whoever acts now wrote this file: the id in its name says so."""
        found = _ID.search(path)
        return found is not None and (owner(found[0]) or (None,))[0] == self.acting()

    def _older(self) -> set[str]:
        """The files of tables that ended."""
        return {path for table in self.incarnations[:-1] for path in (*table.removed_ms, *table.live)}


class Sign(NamedTuple):
    """A record of a consumer of a table that appeared, and its writer. Clean-ups wait for it if `holds`."""

    name: str
    table_id: str
    writer: int | None
    ms: int
    holds: bool


@dataclass
class Signs:
    """The records of all consumers, in the order in which they appeared, with the times of their files."""

    found: list[Sign] = field(default_factory=list)

    def appeared(self, path: str, file: File) -> None:
        match = _CONSUMER.fullmatch(path)
        if match is not None:
            record = json.loads(file.content)
            writer, _ = owner(record["id"]) or (None, None)
            holds = record["state"] == "registered"
            self.found.append(Sign(match[1], record["table"], writer, file.modified_ms, holds))

    def newest_ms(self, name: str, writer: int) -> int:
        """The time of the newest record of a consumer that this actor wrote."""
        return max(sign.ms for sign in self.found if (sign.name, sign.writer) == (name, writer))

    def are_unbroken(self, name: str, table_id: str, since_ms: int, now_ms: int, ttl_ms: int) -> bool:
        """Whether clean-ups had to wait for the consumer all the time from its record of `since_ms` until now."""
        later_ms = now_ms
        for sign in reversed([sign for sign in self.found if (sign.name, sign.table_id) == (name, table_id)]):
            if not sign.holds or later_ms - sign.ms >= ttl_ms:
                return False
            if sign.ms <= since_ms:
                return True
            later_ms = sign.ms
        return False


def _vector_path(action: dict[str, Any]) -> str | None:
    """The file of the action's deletion vector."""
    unique_id = vector_id(action)
    return None if unique_id is None else vector_path(unique_id)

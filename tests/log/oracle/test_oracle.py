"""The oracle objects to each kind of wrong commit.

A patch between tidelog and the store alters the last commit of a history, as a fault in the conflict code would. The
check named in the case must object. The same history without the patch passes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.log.oracle import world as worlds
from tests.log.oracle.history import parse, run
from tests.log.oracle.model import Row
from tests.log.oracle.operations import catalogue
from tests.log.oracle.settings import SETTINGS
from tests.log.oracle.view import Line, actions
from tests.log.oracle.world import Verdict, World
from tests.log.support import bitmap, vector_file
from tidelog.log import Transaction
from tidelog.log.commit.result import Superseded
from tidelog.log.errors import ConflictError
from tidelog.log.format import deletion_vector
from tidelog.log.storage.memory import MemoryStore

Sabotage = Callable[[World, list[Line]], list[Line]]


def sabotaged(monkeypatch: pytest.MonkeyPatch, setting: str, history: str, sabotage: Sabotage) -> Verdict:
    """Run the history, with its last commit altered on the way into the store."""
    world = World(SETTINGS[setting])
    turns = parse(history, catalogue(world.setting))
    pending = []
    for turn in turns:
        pending.append(world.stage(turn.operation))
        if turn is not turns[-1]:
            assert not world.commit(pending[-1]).findings
    put = MemoryStore.put_if_absent

    def altered(store: MemoryStore, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.startswith("_delta_log/") and path.endswith(".json"):
            lines = [json.loads(line) for line in content.splitlines()]
            content = b"".join(json.dumps(line).encode() + b"\n" for line in sabotage(world, lines))
        put(store, path, content, durable=durable)

    monkeypatch.setattr(MemoryStore, "put_if_absent", altered)
    return world.commit(pending[-1])


def vector_of(world: World, positions: Sequence[int]) -> dict[str, Any]:
    """Store a deletion vector and return its descriptor as JSON."""
    file_id = uuid.UUID(world.system.uuid())
    blob = bitmap(positions)
    world.store._files[deletion_vector.file_name(file_id)] = (vector_file(blob), 1)
    name = deletion_vector.relative_name("", file_id)
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "offset": 1,
        "sizeInBytes": len(blob),
        "cardinality": len(positions),
    }


def without(kind: str, number: int = 0) -> Sabotage:
    """Drop one action of a kind."""

    def change(world: World, lines: list[Line]) -> list[Line]:
        del world
        gone = actions(lines, kind)[number]
        return [line for line in lines if line.get(kind) is not gone]

    return change


def changed(kind: str, **values: Any) -> Sabotage:
    """Change values in every action of a kind."""

    def change(world: World, lines: list[Line]) -> list[Line]:
        del world
        for action in actions(lines, kind):
            action.update(values)
        return lines

    return change


def recorded(change: Callable[[dict[str, Any]], object]) -> Sabotage:
    """Change the `tidelog` part of commitInfo."""

    def apply(world: World, lines: list[Line]) -> list[Line]:
        del world
        change(lines[0]["commitInfo"]["tidelog"])
        return lines

    return apply


def doubled(kind: str) -> Sabotage:
    def change(world: World, lines: list[Line]) -> list[Line]:
        del world
        return [*lines, {kind: actions(lines, kind)[0]}]

    return change


def _groups(record: dict[str, Any]) -> Any:
    return record["lineage"]["groups"]


def _vector_forgotten(record: dict[str, Any]) -> None:
    """The lineage lacks the vectors that the rewrite read."""
    for entry in _groups(record)[0]["inputs"]:
        entry["dvId"] = None


def _inputs_swapped(record: dict[str, Any]) -> None:
    _groups(record)[0]["inputs"].reverse()


def _output_longer(record: dict[str, Any]) -> None:
    _groups(record)[0]["outputs"][0]["rows"] += 1
    _groups(record)[0]["inputs"][1]["rows"] += 1


def lost_row(world: World, lines: list[Line]) -> list[Line]:
    """One more live file is removed."""
    taken = {remove["path"] for remove in actions(lines, "remove")}
    file = next(file for path, file in world.node.view.files.items() if path not in taken)
    remove = {**file.add, "extendedFileMetadata": True, "deletionTimestamp": 1, "dataChange": True}
    return [*lines, {"remove": remove}]


def _with_vector(lines: list[Line], vector: dict[str, Any] | None) -> list[Line]:
    for add in actions(lines, "add"):
        if vector is None:
            add.pop("deletionVector")
        else:
            add["deletionVector"] = vector
    return lines


def smaller_vector(world: World, lines: list[Line]) -> list[Line]:
    """Dead rows become live again: the new vector holds only the newly deleted row."""
    return _with_vector(lines, vector_of(world, [0]))


def larger_vector(world: World, lines: list[Line]) -> list[Line]:
    """One more row dies."""
    return _with_vector(lines, vector_of(world, [0, 1, 3]))


def other_row(world: World, lines: list[Line]) -> list[Line]:
    """Another row than the matching one dies: position 3 instead of 0."""
    return _with_vector(lines, vector_of(world, [1, 3]))


def vector_beyond_the_file(world: World, lines: list[Line]) -> list[Line]:
    return _with_vector(lines, vector_of(world, [0, 1, 77]))


def vector_removed_as_none(world: World, lines: list[Line]) -> list[Line]:
    """The remove does not name the live vector."""
    del world
    for remove in actions(lines, "remove"):
        remove.pop("deletionVector", None)
    return lines


def dead_output(world: World, lines: list[Line]) -> list[Line]:
    """The file of an INSERT has only dead rows."""
    for add in actions(lines, "add"):
        add["deletionVector"] = vector_of(world, range(json.loads(add["stats"])["numRecords"]))
        add["stats"] = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    return lines


def miscounted(world: World, lines: list[Line]) -> list[Line]:
    del world
    for add in actions(lines, "add"):
        add["stats"] = json.dumps({**json.loads(add["stats"]), "numRecords": 7})
    return lines


def narrow_bounds(world: World, lines: list[Line]) -> list[Line]:
    del world
    for add in actions(lines, "add"):
        add["stats"] = json.dumps({**json.loads(add["stats"]), "maxValues": {"k": 0, "v": 0}})
    return lines


def resurrecting_append(world: World, lines: list[Line]) -> list[Line]:
    """A removed file comes back."""
    return [*lines, next(line for line in world.reader.lines(1) if "add" in line)]


def late_info(world: World, lines: list[Line]) -> list[Line]:
    del world
    return [*lines[1:], lines[0]]


def old_time(world: World, lines: list[Line]) -> list[Line]:
    lines[0]["commitInfo"]["inCommitTimestamp"] = world.node.view.timestamp_ms
    return lines


def false_change(world: World, lines: list[Line]) -> list[Line]:
    """The feed reports one change of an UPDATE twice."""
    del world
    return [*lines, {"cdc": {**actions(lines, "cdc")[0], "path": actions(lines, "cdc")[1]["path"], "dataChange": True}}]


VECTORS, FEED, COPIES = "vectors", "vectors, feed", "copies"
CASES: dict[str, tuple[str, str, Sabotage, str]] = {
    "a row that is live twice": (VECTORS, "MINOR", without("remove"), "log"),
    "rows lost in a compaction": (VECTORS, "MINOR", without("add"), "identity"),
    "rows lost in an insert": (VECTORS, "INSERT", lost_row, "rows"),
    "rows of another file die too": (VECTORS, "DELETE k=1", lost_row, "identity"),
    "a delete lost": (VECTORS, "DELETE k=1", smaller_vector, "rows"),
    "one row too many deleted": (VECTORS, "DELETE k=1", larger_vector, "rows"),
    "another row deleted": (VECTORS, "DELETE k=1", other_row, "identity"),
    "dead rows that are live again": (VECTORS, "DELETE k=1", smaller_vector, "log"),
    "an image lost": (VECTORS, "UPDATE k=1", without("add", 1), "rows"),
    "the old row kept": (VECTORS, "UPDATE k=1", without("remove"), "log"),
    "a vector beyond its file": (VECTORS, "DELETE k=1", vector_beyond_the_file, "log"),
    "a remove without its vector": (VECTORS, "DELETE k=1", vector_removed_as_none, "log"),
    "a remove of an unknown file": (VECTORS, "DELETE k=1", changed("remove", path="nowhere"), "log"),
    "a remove without a size": (VECTORS, "DELETE k=1", changed("remove", extendedFileMetadata=False), "log"),
    "two adds of a path": (VECTORS, "INSERT", doubled("add"), "log"),
    "two removes of a path": (VECTORS, "MINOR", doubled("remove"), "log"),
    "two commitInfos": (VECTORS, "INSERT", doubled("commitInfo"), "log"),
    "commitInfo last": (VECTORS, "INSERT", late_info, "log"),
    "a commit time that does not increase": (VECTORS, "INSERT", old_time, "log"),
    "an add without a live row": (VECTORS, "INSERT", dead_output, "log"),
    "a wrong row count": (VECTORS, "INSERT", miscounted, "log"),
    "bounds that exclude rows": (VECTORS, "INSERT", narrow_bounds, "log"),
    "a vector in a table without vectors": (COPIES, "INSERT", dead_output, "log"),
    "a removed file that comes back": (VECTORS, "MINOR; TRUNCATE; INSERT", resurrecting_append, "log"),
    "an insert without dataChange": (VECTORS, "INSERT", changed("add", dataChange=False), "feed"),
    "a compaction with dataChange in its adds": (VECTORS, "MINOR", changed("add", dataChange=True), "time version"),
    "a compaction with dataChange in its removes": (VECTORS, "MINOR", changed("remove", dataChange=True), "feed"),
    "an update without its change rows": (FEED, "UPDATE k=1", without("cdc", 0), "feed"),
    "change rows that are reported twice": (FEED, "UPDATE k=1", false_change, "feed"),
    "a class other than the staged one": (
        VECTORS,
        "INSERT",
        recorded(lambda own: own.update({"class": "OVERWRITE"})),
        "class",
    ),
    "no lineage": (VECTORS, "MINOR", recorded(lambda own: own.pop("lineage")), "identity"),
    "lineage without the vectors that were read": (VECTORS, "MINOR", recorded(_vector_forgotten), "log"),
    "lineage in another order": (VECTORS, "MINOR", recorded(_inputs_swapped), "values"),
    "lineage with wrong row counts": (VECTORS, "MINOR", recorded(_output_longer), "lineage"),
    "an input left out of the lineage": (
        VECTORS,
        "MINOR",
        recorded(lambda own: _groups(own)[0]["inputs"].pop()),
        "log",
    ),
    "two txn of one application": (VECTORS, "INSERT once", doubled("txn"), "log"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_oracle_objects_to_a_wrong_commit(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, Sabotage, str]
) -> None:
    setting, history, sabotage, check = case
    run(SETTINGS[setting], history).require_nothing_wrong()
    found = sabotaged(monkeypatch, setting, history, sabotage).findings
    assert check in {name for name, _ in found}, found


def test_the_oracle_objects_to_an_unnecessary_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_transaction: Transaction) -> None:
        raise ConflictError("lost for no reason")

    monkeypatch.setattr(Transaction, "commit", lose)
    for name in ("INSERT", "OVERWRITE", "DELETE k=1", "UPDATE k=1", "MINOR"):
        assert "need" in {finding.check for finding in run(SETTINGS[VECTORS], name).findings}, name


def test_the_oracle_objects_to_a_superseded_compaction_with_rows_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "commit", lambda _transaction: Superseded(1))
    (found,) = run(SETTINGS[VECTORS], "MINOR").findings
    assert found.check == "need"


def test_the_oracle_objects_to_a_superseded_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "commit", lambda _transaction: Superseded(1))
    (found,) = run(SETTINGS[VECTORS], "INSERT").findings
    assert found.check == "need"


def test_the_oracle_objects_to_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_transaction: Transaction) -> None:
        raise KeyError("a file")

    monkeypatch.setattr(Transaction, "commit", fail)
    (found,) = run(SETTINGS[VECTORS], "INSERT").findings
    assert found.check == "failure"


def test_the_oracle_objects_to_an_operation_that_did_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "commit", lambda transaction: transaction._unchanged())
    for name, check in (("INSERT", "rows"), ("DELETE k=1", "rows"), ("TRUNCATE", "rows"), ("MINOR", "outcome")):
        assert check in {finding.check for finding in run(SETTINGS[VECTORS], name).findings}, name


def test_the_oracle_objects_to_wrong_results_of_tidelogs_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run(SETTINGS[FEED], "UPDATE k=1").findings
    monkeypatch.setattr(worlds, "_rows", lambda table: [Row(0, 0, 0)] * table.num_rows)
    checks = {finding.check for finding in run(SETTINGS[FEED], "UPDATE k=1").findings}
    assert checks == {"scan", "changes", "net"}


def test_a_history_writes_the_same_log_every_time() -> None:
    def logged() -> list[bytes]:
        world = World(SETTINGS["vectors, feed, partitions"])
        try:
            for name in ("UPDATE k=1", "MINOR", "DELETE p=1"):
                world.commit(world.stage(catalogue(world.setting)[name]))
            return [content for path, (content, _) in sorted(world.store._files.items()) if path.endswith(".json")]
        finally:
            world.close()

    assert logged() == logged()

"""Random histories of a table, and a naive model of what each version contains.

A history is a list of commits, each a list of steps. The model turns a step into actions that are legal at that point
(protocol, "Per-commit validity") and keeps the state in plain dictionaries, in commit order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeAlias

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from tests.log.support import PROTOCOL, START_MS, add, metadata, put_commit, remove
from tidelog.log.format.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from tidelog.log.state.head import Totals
from tidelog.log.storage import Store


class Kind(Enum):
    ADD = auto()
    ADD_AGAIN_AFTER_REMOVE = auto()
    REMOVE = auto()
    CHANGE_VECTOR = auto()
    UPDATE_IN_PLACE = auto()
    MOVE = auto()
    TXN = auto()
    METADATA = auto()
    PROTOCOL = auto()
    DOMAIN = auto()


Step: TypeAlias = tuple[Kind, int]
# Steps on live files are more frequent, because those are the ones that replay can get wrong.
_KINDS = [
    *Kind,
    Kind.ADD,
    Kind.ADD,
    Kind.REMOVE,
    Kind.CHANGE_VECTOR,
    Kind.CHANGE_VECTOR,
    Kind.UPDATE_IN_PLACE,
    Kind.MOVE,
]
STEPS: st.SearchStrategy[Step] = st.tuples(st.sampled_from(_KINDS), st.integers(0, 7))
HISTORIES = st.lists(st.lists(STEPS, max_size=4), min_size=3, max_size=12).map(
    lambda steps: [[(Kind.ADD, number) for number in range(4)], *steps]
)


def removes_of(table: pa.Table) -> list[RemoveFile]:
    """The tombstones of a state as actions."""
    found = []
    for row in table.to_pylist():
        values = {name: value for name, value in row.items() if value is not None}
        if "partitionValues" in values:
            values["partitionValues"] = dict(values["partitionValues"])
        found.append(msgspec.convert(values, RemoveFile))
    return found


def logical(action: AddFile | RemoveFile) -> FileKey:
    """The logical file. An absolute path can be spelled with and without its scheme."""
    vector = action.deletion_vector
    return action.path.removeprefix("file://"), vector.unique_id if vector else None


# The part in which paths usually differ is the same here, so that only the whole path distinguishes them.
_COMMON = "part-00000-5ad1ab4c-0000-4000-8000-000000000000-c000.snappy.parquet"


def _path(version: int, number: int) -> str:
    name = f"{version}-{number}"
    return (f"f{name}", f"{name}/{_COMMON}", f"file:///data/{name}.parquet", f"ü{name * 9}")[number % 4]


def _spelled_otherwise(path: str) -> str:
    return path.removeprefix("file://")


@dataclass(frozen=True)
class Expected:
    """The state at one version, as plain values."""

    version: int
    protocol: Protocol
    metadata: Metadata
    time_version_ms: int | None = None
    live: dict[FileKey, AddFile] = field(default_factory=dict)
    tombstones: dict[FileKey, RemoveFile] = field(default_factory=dict)
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    @property
    def timestamp_ms(self) -> int:
        return START_MS + self.version

    @property
    def totals(self) -> Totals:
        return Totals(len(self.live), sum(file.size for file in self.live.values()))

    def after(self, actions: Iterable[Action]) -> Expected:
        """The next version, computed in the plainest way."""
        state = replace(
            self,
            version=self.version + 1,
            live=dict(self.live),
            tombstones=dict(self.tombstones),
            transactions=dict(self.transactions),
            domains=dict(self.domains),
        )
        for action in actions:
            state = state._with(action)
        return replace(state, live=_in_commit_order(self.live, state.live))

    def _with(self, action: Action) -> Expected:
        if isinstance(action, (AddFile, RemoveFile)):
            self.live.pop(logical(action), None)
            self.tombstones.pop(logical(action), None)
        match action:
            case AddFile():
                self.live[logical(action)] = action
            case RemoveFile():
                self.tombstones[logical(action)] = action
            case SetTransaction():
                self.transactions[action.app_id] = action
            case DomainMetadata():
                self.domains.pop(action.domain, None)
                if not action.removed:
                    self.domains[action.domain] = action
            case Metadata():
                return replace(self, metadata=action)
            case Protocol():
                return replace(self, protocol=action)
            case _:
                raise AssertionError(action)
        changes = isinstance(action, (AddFile, RemoveFile)) and action.data_change
        return replace(self, time_version_ms=self.timestamp_ms) if changes else self


def _in_commit_order(before: dict[FileKey, AddFile], after: dict[FileKey, AddFile]) -> dict[FileKey, AddFile]:
    """A file that was live before the commit keeps its place, even if it was added again."""
    places = {path: place for place, (path, _) in enumerate(before)}
    return dict(sorted(after.items(), key=lambda entry: places.get(entry[0][0], len(places))))


@dataclass
class History:
    """The actions of each commit, and the expected state at each version: version n is `states[n]`."""

    commits: list[list[Action]]
    states: list[Expected]

    def put(self, store: Store) -> None:
        for version, actions in enumerate(self.commits):
            put_commit(store, version, *actions)


def build(steps: Sequence[Sequence[Step]]) -> History:
    first: list[Action] = [metadata(), PROTOCOL]
    history = History([first], [Expected(-1, PROTOCOL, metadata()).after(first)])
    for commit_steps in steps:
        state = history.states[-1]
        maker = _Maker(state)
        for kind, number in commit_steps:
            maker.step(kind, number)
        history.commits.append(maker.actions)
        history.states.append(state.after(maker.actions))
    return history


class _Maker:
    """Builds the actions of a commit, with at most one step per path, application, domain, metadata and protocol."""

    def __init__(self, state: Expected) -> None:
        self.actions: list[Action] = []
        self._state = state
        self._version = state.version + 1
        self._touched: set[object] = set()

    def step(self, kind: Kind, number: int) -> None:
        match kind:
            case Kind.TXN:
                name = f"app{number % 3}"
                self._once((kind, name), SetTransaction(app_id=name, version=self._version, last_updated=number))
            case Kind.METADATA:
                self._once(kind, metadata(name=f"m{self._version}", created_time=number))
            case Kind.PROTOCOL:
                features = (*(PROTOCOL.writer_features or ()), f"f{number}")
                self._once(kind, msgspec.structs.replace(PROTOCOL, writer_features=features))
            case Kind.DOMAIN:
                name = f"d{number % 2}"
                self._once(
                    (kind, name), DomainMetadata(domain=name, configuration=f"c{self._version}", removed=number > 5)
                )
            case Kind.ADD:
                path = _path(self._version, number)
                self._once(path, self._file(path, number))
            case Kind.ADD_AGAIN_AFTER_REMOVE:
                gone = sorted({path for path, _ in self._state.tombstones} - {path for path, _ in self._state.live})
                if gone:
                    path = gone[number % len(gone)]
                    self._once(path, self._file(path, number))
            case _:
                self._on_live(kind, number)

    def _on_live(self, kind: Kind, number: int) -> None:
        files = list(self._state.live.values())
        if not files:
            return
        file = files[number % len(files)]
        match kind:
            case Kind.REMOVE:
                gone = remove(file, deletion_timestamp=START_MS + self._version)
                if number > 3:
                    gone = msgspec.structs.replace(gone, path=_spelled_otherwise(file.path))
                self._once(file.path, gone)
            case Kind.CHANGE_VECTOR:
                changed = msgspec.structs.replace(file, deletion_vector=_other_vector(file, number))
                both = (remove(file), changed)
                self._once(file.path, *(both if number % 2 else both[::-1]))
            case Kind.UPDATE_IN_PLACE:
                path = _spelled_otherwise(file.path) if number > 3 else file.path
                self._once(file.path, msgspec.structs.replace(file, path=path, stats=f"s{number}", data_change=False))
            case Kind.MOVE:
                target = self._file(f"m{self._version}-{number}.parquet", number, data_change=False)
                self._once(file.path, remove(file, data_change=False), target)
            case _:
                raise AssertionError(kind)

    def _file(self, path: str, number: int, *, data_change: bool = True) -> AddFile:
        return add(
            path,
            data_change=data_change,
            size=10 + number,
            partition_values={"p": None if number == 0 else str(number)},
            stats=None if number == 1 else f'{{"numRecords":{number}}}',
            tags={"t": None} if number == 2 else None,
            base_row_id=number if number == 3 else None,
        )

    def _once(self, key: object, *actions: Action) -> None:
        if key not in self._touched:
            self._touched.add(key)
            self.actions.extend(actions)


def _other_vector(file: AddFile, number: int) -> DeletionVectorDescriptor | None:
    """A deletion vector other than the file's, or none (which RESTORE can lead to)."""
    old = file.deletion_vector
    new = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv="vBn[lx{q8@P<9BNH/isA",
        offset=None if number == 2 else 1 + number,
        size_in_bytes=36,
        cardinality=1 + number,
    )
    return None if old is not None and (number == 0 or old.unique_id == new.unique_id) else new

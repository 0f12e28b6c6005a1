"""The actions of a commit as typed values, and their JSON lines.

Keys are those of the Delta protocol. Unknown actions and keys are ignored, as the protocol requires of readers.
`commitInfo` is free-form, so it stays a dictionary; `commit_info` reads its known keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from tidelog.log.format.paths import canonical

# The integer widths of checkpoints; an action with a larger number is invalid.
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Action(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Common settings: immutable, camelCase on disk, absent keys left out, never part of a reference cycle."""


class Protocol(_Action, frozen=True, gc=False):
    """The minimum versions and, from (3, 7) on, the features that readers and writers must support."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Format(msgspec.Struct, frozen=True):
    """The format of the data files: always parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(_Action, frozen=True, gc=False):
    """The table's identity, schema (Spark's StructType JSON), partitioning and properties."""

    id: str
    format: Format
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    # Some tables never got a schema; they have no columns.
    schema_string: str = '{"type":"struct","fields":[]}'
    name: str | None = None
    description: str | None = None
    created_time: Long | None = None


class DeletionVectorDescriptor(_Action, frozen=True, gc=False):
    """Where a file's deletion vector is stored: `u` relative path, `p` absolute path, `i` inline."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Size
    cardinality: Long
    offset: Size | None = None

    @property
    def unique_id(self) -> str:
        """The id that identifies a logical file together with its path (protocol, "Reconciliation")."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class AddFile(_Action, frozen=True, gc=False):
    """A data file, with its deletion vector, that this commit adds to the table."""

    path: str
    partition_values: dict[str, str | None]
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def key(self) -> FileKey:
        """The logical file: its path and the id of its deletion vector."""
        return canonical(self.path), self.deletion_vector.unique_id if self.deletion_vector else None

    def removed(self, now_ms: int, *, data_change: bool) -> RemoveFile:
        """The action that removes this logical file, in the extended form that readers need."""
        return RemoveFile(
            path=self.path,
            data_change=data_change,
            deletion_timestamp=now_ms,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            stats=self.stats,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
        )


class RemoveFile(_Action, frozen=True, gc=False):
    """A logical file that this commit removes from the table; kept as a tombstone until its retention ends."""

    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    @property
    def key(self) -> FileKey:
        """The logical file: its path and the id of its deletion vector."""
        return canonical(self.path), self.deletion_vector.unique_id if self.deletion_vector else None


class AddCDCFile(_Action, frozen=True, gc=False):
    """A file of change rows. If a version has any, the change feed reads only these."""

    path: str
    partition_values: dict[str, str | None]
    size: Long
    # Always false, and always written: omit_defaults does not apply to factories.
    data_change: bool = msgspec.field(default_factory=bool)
    tags: dict[str, str | None] | None = None


class SetTransaction(_Action, frozen=True, gc=False):
    """An application's progress: the newest `version` it has committed."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class Sidecar(_Action, frozen=True, gc=False):
    """Part of a V2 checkpoint: a file in `_delta_log/_sidecars` that holds adds and removes."""

    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


class DomainMetadata(_Action, frozen=True, gc=False):
    """A named configuration of the table; `removed` marks a tombstone."""

    domain: str
    configuration: str
    removed: bool


FileKey: TypeAlias = tuple[str, str | None]
CommitInfo: TypeAlias = dict[str, Any]
Action: TypeAlias = Protocol | Metadata | AddFile | RemoveFile | AddCDCFile | SetTransaction | DomainMetadata


class _Line(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """One line of a commit: an object with one key, the action's name."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: AddCDCFile | None = None
    txn: SetTransaction | None = None
    domain_metadata: DomainMetadata | None = None
    sidecar: Sidecar | None = None


_DECODER = msgspec.json.Decoder(_Line)
_ENCODER = msgspec.json.Encoder()
_KEY_OF_TYPE: dict[type, str] = {
    Protocol: "protocol",
    Metadata: "metaData",
    AddFile: "add",
    RemoveFile: "remove",
    AddCDCFile: "cdc",
    SetTransaction: "txn",
    DomainMetadata: "domainMetadata",
}


class _Parts(NamedTuple):
    """The actions of a commit by kind."""

    adds: list[AddFile]
    removes: list[RemoveFile]
    cdc: list[AddCDCFile]
    others: list[Protocol | Metadata | SetTransaction | DomainMetadata]


def _split(actions: Iterable[Action]) -> _Parts:
    parts = _Parts([], [], [], [])
    for action in actions:
        if isinstance(action, AddFile):
            parts.adds.append(action)
        elif isinstance(action, RemoveFile):
            parts.removes.append(action)
        elif isinstance(action, AddCDCFile):
            parts.cdc.append(action)
        else:
            parts.others.append(action)
    return parts


@dataclass(frozen=True)
class Commit:
    """The content of a commit, and its actions by kind: files added, files removed, files of change rows, and others.

    `info` is empty if the writer left no commitInfo. `data_change` is whether the commit changes the table's rows; only
    such commits have a time version. `parts` are the actions by kind, for those who know them already.
    """

    version: Long
    info: CommitInfo
    actions: tuple[Action, ...]
    parts: InitVar[_Parts | None] = None
    adds: list[AddFile] = field(init=False, repr=False, compare=False)
    removes: list[RemoveFile] = field(init=False, repr=False, compare=False)
    cdc: list[AddCDCFile] = field(init=False, repr=False, compare=False)
    others: list[Protocol | Metadata | SetTransaction | DomainMetadata] = field(init=False, repr=False, compare=False)
    data_change: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self, parts: _Parts | None) -> None:
        adds, removes, cdc, others = parts or _split(self.actions)
        data_change = bool(cdc) or any(add.data_change for add in adds)
        data_change = data_change or any(remove.data_change for remove in removes)
        vars(self).update(adds=adds, removes=removes, cdc=cdc, others=others, data_change=data_change)

    @property
    def transactions(self) -> list[SetTransaction]:
        """The progress of applications."""
        return [action for action in self.others if isinstance(action, SetTransaction)]


def encode_commit(info: CommitInfo, actions: Iterable[Action]) -> bytes:
    """Encode a commit as newline-delimited JSON, with `commitInfo` first as in-commit timestamps require."""
    lines: list[dict[str, Action | CommitInfo]] = [{"commitInfo": info}]
    lines.extend({_KEY_OF_TYPE[type(action)]: action} for action in actions)
    return b"".join(_ENCODER.encode(line) + b"\n" for line in lines)


def decode_commit(version: int, content: bytes) -> Commit:
    """Decode a commit. Raises `msgspec.MsgspecError` if a line is not a valid action."""
    lines = _decode_lines(content)
    if not lines:
        raise msgspec.DecodeError("the file is empty")
    info = next((line.commit_info for line in lines if line.commit_info is not None), {})
    adds = [line.add for line in lines if line.add is not None]
    if any(_other(line) is not None for line in lines if line.add is None):
        found = (line.add or _other(line) for line in lines)
        return Commit(version, info, tuple(action for action in found if action is not None))
    # A large commit often has only adds, which need no other pass over the actions.
    return Commit(version, info, tuple(adds), _Parts(adds, [], [], []))


def decode_first_info(version: int, content: bytes) -> CommitInfo:
    """The commitInfo on a commit's first line; empty if it is not there. `content` may end within the commit."""
    first = content[: content.find(b"\n") + 1]
    return decode_commit(version, first).info if first.strip() else {}


def decode_sidecars(content: bytes) -> list[Sidecar]:
    """Decode the sidecars in a V2 checkpoint's JSON. Raises `msgspec.MsgspecError`."""
    return [line.sidecar for line in _decode_lines(content) if line.sidecar is not None]


def _decode_lines(content: bytes) -> list[_Line]:
    try:
        # msgspec skips unknown keys without checking that they are valid UTF-8.
        if not content.isascii():
            content.decode()
        return _DECODER.decode_lines(content)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _other(line: _Line) -> Action | None:
    """The action of a line other than an add; None if it is unknown or absent."""
    return line.remove or line.txn or line.meta_data or line.protocol or line.cdc or line.domain_metadata


def encode_action(value: Any) -> bytes:
    """Encode an action, or a structure that contains actions, as JSON."""
    return _ENCODER.encode(value)

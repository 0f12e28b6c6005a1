"""Encoding and decoding actions and commits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log import strategies
from tests.log.support import PROTOCOL, add, metadata, remove
from tidelog.log.format.actions import (
    Action,
    AddCDCFile,
    AddFile,
    Commit,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    decode_commit,
    decode_first_info,
    encode_commit,
)

_VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
)
_VECTOR_JSON = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}

# Each action with every key set, and its JSON according to the protocol.
_FULL: list[tuple[Action, str, dict[str, Any]]] = [
    (
        AddFile(
            path="a",
            partition_values={"p": None, "q": "1"},
            size=1,
            modification_time=2,
            data_change=False,
            stats="{}",
            tags={"t": "v"},
            deletion_vector=_VECTOR,
            base_row_id=3,
            default_row_commit_version=4,
            clustering_provider="liquid",
        ),
        "add",
        {
            "path": "a",
            "partitionValues": {"p": None, "q": "1"},
            "size": 1,
            "modificationTime": 2,
            "dataChange": False,
            "stats": "{}",
            "tags": {"t": "v"},
            "deletionVector": _VECTOR_JSON,
            "baseRowId": 3,
            "defaultRowCommitVersion": 4,
            "clusteringProvider": "liquid",
        },
    ),
    (
        RemoveFile(
            path="a",
            data_change=True,
            deletion_timestamp=5,
            extended_file_metadata=True,
            partition_values={},
            size=1,
            stats="{}",
            tags={},
            deletion_vector=_VECTOR,
            base_row_id=3,
            default_row_commit_version=4,
        ),
        "remove",
        {
            "path": "a",
            "dataChange": True,
            "deletionTimestamp": 5,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": 1,
            "stats": "{}",
            "tags": {},
            "deletionVector": _VECTOR_JSON,
            "baseRowId": 3,
            "defaultRowCommitVersion": 4,
        },
    ),
    (
        AddCDCFile(path="c", partition_values={}, size=1, tags={"t": "v"}),
        "cdc",
        {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False, "tags": {"t": "v"}},
    ),
    (
        SetTransaction(app_id="app", version=0, last_updated=6),
        "txn",
        {"appId": "app", "version": 0, "lastUpdated": 6},
    ),
    (
        DomainMetadata(domain="d", configuration="", removed=False),
        "domainMetadata",
        {"domain": "d", "configuration": "", "removed": False},
    ),
    (
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=("x",), writer_features=("x", "y")),
        "protocol",
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x", "y"]},
    ),
    (
        Metadata(
            id="i",
            format=Format(),
            schema_string="s",
            partition_columns=(),
            configuration={},
            name="n",
            description="d",
            created_time=7,
        ),
        "metaData",
        {
            "id": "i",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": "s",
            "partitionColumns": [],
            "configuration": {},
            "name": "n",
            "description": "d",
            "createdTime": 7,
        },
    ),
]


@pytest.mark.parametrize(("action", "key", "expected"), _FULL, ids=[key for _, key, _ in _FULL])
def test_an_action_has_the_keys_of_the_protocol(action: Action, key: str, expected: dict[str, Any]) -> None:
    _, line = encode_commit({}, [action]).splitlines()
    assert json.loads(line) == {key: expected}


@pytest.mark.parametrize(("action", "key", "expected"), _FULL, ids=[key for _, key, _ in _FULL])
def test_an_action_is_read_from_the_keys_of_the_protocol(action: Action, key: str, expected: dict[str, Any]) -> None:
    content = json.dumps({key: expected}).encode()
    assert decode_commit(0, content).actions == (action,)


def test_unset_keys_are_left_out_but_required_ones_are_kept() -> None:
    lines = encode_commit(
        {}, [add("a"), metadata(configuration={}), Protocol(min_reader_version=1, min_writer_version=2)]
    )
    _, first, second, third = map(json.loads, lines.splitlines())
    assert first["add"] == {
        "path": "a",
        "partitionValues": {},
        "size": 100,
        "modificationTime": 1,
        "dataChange": True,
    }
    assert {"configuration", "format", "partitionColumns"} <= second["metaData"].keys()
    assert third["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}


@given(info=st.dictionaries(strategies.NAMES, strategies.TEXTS), actions=st.lists(strategies.ACTIONS, max_size=5))
def test_a_commit_survives_a_round_trip(info: dict[str, Any], actions: list[Action]) -> None:
    content = encode_commit(info, actions)
    assert decode_commit(3, content) == Commit(version=3, info=info, actions=tuple(actions))
    assert content.count(b"\n") == len(actions) + 1, "one line per action"
    assert list(json.loads(content.splitlines()[0])) == ["commitInfo"], "in-commit timestamps require it first"


def test_unknown_actions_and_unknown_keys_are_ignored() -> None:
    content = b"""
        {"sidecar":{"path":"x.parquet","sizeInBytes":1,"modificationTime":1}}
        {"checkpointMetadata":{"version":1}}
        {"inventedLater":{"a":[1,2,{"b":null}]}}
        {"add":{"path":"a","partitionValues":{},"size":100,"modificationTime":1,"dataChange":true,"later":{"x":1}}}
        {}
    """
    assert decode_commit(0, content).actions == (add("a"),)


def test_null_keys_count_as_absent() -> None:
    line = b'{"add":{"path":"a","partitionValues":{},"size":100,"modificationTime":1,"dataChange":true,"stats":null}}'
    assert decode_commit(0, line).actions == (add("a"),)


def test_blank_lines_windows_line_ends_and_order_do_not_matter() -> None:
    txn, commit_info = b'{"txn":{"appId":"a","version":1}}', b'{"commitInfo":{"operation":"X"}}'
    commit = decode_commit(0, b"\r\n".join([txn, b"", commit_info, b""]))
    assert commit.info == {"operation": "X"}
    assert commit.actions == (SetTransaction(app_id="a", version=1),)


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b'{"add":{"path":"a"}}',
        b'{"add":{"path":"a","partitionValues":{},"size":"1","modificationTime":1,"dataChange":true}}',
        b'{"txn":{"appId":"a","version":1}',
        b"[]",
        b"\xff\xfe",
    ],
)
def test_a_damaged_line_is_refused(content: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_commit(0, content)


def test_a_logical_file_is_its_path_and_its_deletion_vector() -> None:
    inline = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="wi5b", size_in_bytes=4, cardinality=1)
    assert add("a").key == ("a", None)
    assert add("a", deletion_vector=_VECTOR).key == ("a", "uab^-aqEH.-t@S}K{vb[*k^@4")
    assert add("a", deletion_vector=inline).key == ("a", "iwi5b")
    assert remove(add("a", deletion_vector=_VECTOR)).key == add("a", deletion_vector=_VECTOR).key


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([], False),
        ([metadata(), PROTOCOL, SetTransaction(app_id="a", version=1)], False),
        ([add("a", data_change=False), remove(add("b"), data_change=False)], False),
        ([add("a")], True),
        ([remove(add("a"))], True),
        ([add("a", data_change=False), remove(add("b"))], True),
        ([AddCDCFile(path="c", partition_values={}, size=1)], True),
    ],
)
def test_only_changed_rows_are_a_data_change(actions: list[Action], expected: bool) -> None:
    assert Commit(version=0, info={}, actions=tuple(actions)).data_change is expected


def test_a_leading_commit_info_is_read_without_the_rest() -> None:
    info = {"inCommitTimestamp": 7, "operation": "WRITE"}
    content = encode_commit(info, [add("a")])
    assert decode_first_info(0, content) == info
    assert decode_first_info(0, content + b"not read\n") == info
    lines = content.splitlines(keepends=True)
    assert decode_first_info(0, lines[0][:-1]) == {}, "the line may be cut off"
    assert decode_first_info(0, lines[1] + lines[0]) == {}
    assert decode_first_info(0, b"\n" + content) == {}
    with pytest.raises(msgspec.MsgspecError):
        decode_first_info(0, b"nonsense\n" + content)

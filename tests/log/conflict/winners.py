"""Metadata changes by other writers, and a rebase over commits that were never written."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tidelog.log import Table
from tidelog.log.commit.race import StoreBlobs
from tidelog.log.conflict.operation_class import classify
from tidelog.log.conflict.outcome import RebaseOutcome
from tidelog.log.conflict.rebase import Rebase
from tidelog.log.conflict.staged import Staged
from tidelog.log.format.actions import Commit, Metadata, Protocol
from tidelog.log.format.schema import to_schema_string
from tidelog.log.state.loader import load


def head_metadata(table: Table) -> Metadata:
    return load(table.store).head.metadata


def head_protocol(table: Table) -> Protocol:
    return load(table.store).head.protocol


def with_schema(table: Table, schema: pa.Schema) -> Metadata:
    return msgspec.structs.replace(head_metadata(table), schema_string=to_schema_string(schema))


def with_properties(table: Table, **properties: str) -> Metadata:
    old = head_metadata(table)
    changed = {name.replace("__", "."): value for name, value in properties.items()}
    return msgspec.structs.replace(old, configuration={**old.configuration, **changed})


def rebase(table: Table, staged: Staged, winners: list[Commit]) -> RebaseOutcome:
    found = Rebase(staged, 0, head_protocol(table), head_metadata(table), StoreBlobs(table.store))
    for winner in winners:
        found.fold(winner, classify(winner))
    return found.judge()

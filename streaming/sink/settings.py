"""The arguments of a Sink, checked when it is created, before any batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from itertools import takewhile
from typing import Any, ParamSpec

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log import predicate
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties as table_properties
from tidelog.log.operations.merge_rules import ALL, PARTIAL
from tidelog.log.presentable import did_you_mean, presentable
from tidelog.log.read.keys import keys_of_upsert, order_columns
from tidelog.log.storage import open_store
from tidelog.log.storage.memory import MemoryStore
from tidelog.streaming.executors.session import require_apart
from tidelog.streaming.sink.throttle import Throttle

APPEND, UPSERT, OVERWRITE_PARTITIONS = SINK_MODES = ("append", "upsert", "overwrite-partitions")
AUTO, DRIVER, SPARK = WRITERS = ("auto", "driver", "spark")
ERROR, ADOPT = _ON_RESET = ("error", "adopt")
# Neither an absolute path nor a URL. An empty text is none of this kind: the store refuses it.
_RELATIVE = re.compile(r"(?![A-Za-z][A-Za-z0-9+.-]+:)[^/]")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# The arguments that the representation of a Sink shows where they are not the default.
_DEFAULTS: dict[str, object] = {
    "name": "default",
    "mode": APPEND,
    "keys": (),
    "other_keys": False,
    "order_by": None,
    "delete_where": None,
    "columns": ALL,
    "adopt_txn": None,
    "partition_by": (),
    "properties": {},
    "schema_evolution": False,
    "writer": AUTO,
    "on_reset": ERROR,
    "throttle": None,
    "checkpoint": None,
    "dead_letters": None,
    "captured": None,
    "append_complete": False,
}
# The arguments that need a mode.
_MODES = {
    **dict.fromkeys(("keys", "other_keys", "order_by", "delete_where", "dead_letters"), UPSERT),
    "append_complete": APPEND,
}
_Given = ParamSpec("_Given")


@dataclass(frozen=True, slots=True, repr=False)
class SinkSettings:
    """The arguments of a Sink, normalised; `path` and `checkpoint` are URLs of stores."""

    path: str
    name: str
    mode: str
    keys: tuple[str, ...]
    other_keys: bool
    order_by: tuple[str, ...] | None
    delete_where: str | None
    columns: str
    adopt_txn: str | None
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    storage_options: Mapping[str, str] | None
    schema_evolution: bool
    writer: str
    on_reset: str
    throttle: Throttle | None
    checkpoint: str | None
    dead_letters: Callable[[DataFrame, int], None] | None
    captured: tuple[str, ...] | None
    append_complete: bool

    def __repr__(self) -> str:
        """The call of Sink with these arguments, without its defaults and its storage options."""
        given = [presentable(repr(self.path))]
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value and value != default:
                shown = list(value) if isinstance(value, tuple) else value
                given.append(presentable(f"{name}={shown!r}"))
        return f"Sink({', '.join(given)})"

    def of_batch(self, now: Callable[[], int]) -> SinkSettings:
        """The settings with `delete_where` at the time of a batch, which is the same for all its rows and attempts."""
        delete_where = predicate.at_time(self.delete_where, now)
        return self if delete_where == self.delete_where else replace(self, delete_where=delete_where)

    def keys_of(self, schema: pa.Schema, properties: Mapping[str, str]) -> list[str]:
        """The key columns of an upsert into a table of this schema and with these properties.

        Raises ConfigurationError.
        """
        return keys_of_upsert(self.keys, schema, properties, other_keys=self.other_keys)

    def order_of(self, schema: pa.Schema, properties: Mapping[str, str]) -> list[str]:
        """The columns that say which of two rows of a batch with one key is newer; empty if none do."""
        return order_columns(None, schema, properties) if self.order_by is None else list(self.order_by)

    def order_in(self, schema: pa.Schema, properties: Mapping[str, str]) -> list[str]:
        """The first of these columns, up to one that the table lacks: they order rows of different batches as well."""
        known = {name.lower() for name in schema.names}
        names = self.order_of(schema, properties)
        return order_columns([*takewhile(lambda name: name.lower() in known, names)], schema, {})

    @property
    def properties_of_new_table(self) -> dict[str, str]:
        """The properties of a table that the sink creates: those of its user, and its keys as the primary one."""
        properties = dict(self.properties)
        key = table_properties.spell_names(self.keys)
        if key is not None:
            properties.setdefault(table_properties.PRIMARY_KEY, key)
        return properties

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is not a valid sink name",
                advice="use 1 to 100 letters, digits, dots, dashes and underscores",
            )
        _require_one_of("mode", self.mode, SINK_MODES)
        _require_one_of("writer", self.writer, WRITERS)
        _require_one_of("columns", self.columns, (ALL, PARTIAL))
        _require_one_of("on_reset", self.on_reset, _ON_RESET)
        for argument, mode in _MODES.items():
            if getattr(self, argument) and self.mode != mode:
                raise ConfigurationError(
                    f"{argument} needs mode={mode!r}, but the mode is {self.mode!r}",
                    advice=f"pass mode={mode!r}, or leave {argument} out",
                )
        if self.columns == PARTIAL and (self.mode, self.writer) not in {(UPSERT, AUTO), (UPSERT, DRIVER)}:
            raise ConfigurationError(
                f"columns={PARTIAL!r} needs mode={UPSERT!r}, and the driver writes such a batch",
                advice=f"pass mode={UPSERT!r}, and leave writer out",
            )
        if self.captured is not None and self.mode != UPSERT:
            raise ConfigurationError(f"captured needs mode={UPSERT!r}", advice="use tidelog.streaming.capture.sink")
        if self.delete_where is not None:
            predicate.require_syntax(self.delete_where)
        if self.keys or self.other_keys:  # as in a table that the sink creates, whose columns are not known yet
            names = dict.fromkeys((*self.keys, *table_properties.primary_key(self.properties)))
            self.keys_of(pa.schema([(name, pa.null()) for name in names]), self.properties)
        if self.throttle is not None and not isinstance(self.throttle, Throttle):
            raise ConfigurationError(
                f"throttle must be a Throttle, not {type(self.throttle).__name__}",
                advice="pass Throttle(max_debt_files=..., max_delay_s=...)",
            )
        if self.checkpoint is not None:
            require_apart(self.path, self.checkpoint)
        if self.adopt_txn is not None and not self.adopt_txn:
            raise ConfigurationError(
                "adopt_txn is empty", advice="pass the application id that the other engine's stream wrote"
            )
        if self.writer == SPARK and isinstance(open_store(self.path, self.storage_options), MemoryStore):
            raise ConfigurationError(
                f"{self.path} is in this process's memory, where Spark's executors cannot write",
                advice="leave writer out, or use a table on a disk or in an object store",
            )


def arguments_known(constructor: Callable[_Given, None]) -> Callable[_Given, None]:
    """Name the argument that an unknown one is like; Python before 3.13 does not."""
    known = list(signature(constructor).parameters)[1:]

    @wraps(constructor)
    def checked(*args: _Given.args, **given: _Given.kwargs) -> None:
        for name in given:
            if name not in known:
                raise ConfigurationError(
                    f"a Sink has no argument {name!r}",
                    advice=f"{did_you_mean(name, known)}the arguments are {', '.join(known)}",
                )
        constructor(*args, **given)

    return checked


def sink_settings(
    path: str,
    *,
    keys: Sequence[str],
    order_by: str | Sequence[str] | None,
    partition_by: Sequence[str],
    properties: Mapping[str, object] | None,
    storage_options: Mapping[str, str] | None,
    checkpoint: str | None,
    captured: Sequence[str] | None,
    **as_given: Any,
) -> SinkSettings:
    """The normalised arguments. Raises ConfigurationError or PredicateError for one that is invalid."""
    return SinkSettings(
        path=open_store(path, storage_options).url,
        keys=_names("keys", keys),
        order_by=_order(order_by),
        partition_by=_names("partition_by", partition_by),
        properties=table_properties.validate(properties or {}),
        storage_options=storage_options,
        checkpoint=_checkpoint(checkpoint, storage_options),
        captured=None if captured is None else _names("captured", captured),
        **as_given,
    )


def _order(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else _names("order_by", given)


def _checkpoint(given: str | None, storage_options: Mapping[str, str] | None) -> str | None:
    if given is None:
        return None
    if _RELATIVE.match(str(given)):
        raise ConfigurationError(
            f"checkpoint={given!r} is a relative path, which Spark and the Sink can resolve differently",
            advice="pass the absolute path, to the query as well",
        )
    store = open_store(given, storage_options)
    if isinstance(store, MemoryStore):
        raise ConfigurationError(
            f"checkpoint={given!r} is in this process's memory, where Spark cannot write",
            advice="pass the query's own checkpointLocation",
        )
    return store.url


def _names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigurationError(f"{argument} must be a list of column names, not a string", advice=f"pass [{given!r}]")
    names = tuple(given)
    if not all(names) or len(set(names)) < len(names):
        raise ConfigurationError(
            f"{argument}={list(names)!r} has an empty or repeated name", advice="name each column once"
        )
    return names


def _require_one_of(argument: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise ConfigurationError(
            f"{argument}={value!r} is not supported",
            advice=f"{did_you_mean(value, known)}use one of {', '.join(known)}",
        )

"""Answers for the schemas of the SQL catalog `tidelog`: CREATE, DROP, SHOW and DESCRIBE SCHEMA.

A schema is a folder below the catalog's warehouse, or in another schema. It is there if it has a table, a schema, or
the file that CREATE SCHEMA puts into it, which also holds its comment and its properties.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.storage import Store, open_store
from tidelog.streaming.datasource.sql_catalog import Request, folder_place, tables_in
from tidelog.streaming.datasource.sql_tables import drop_table

_FILE = "_tidelog_schema.json"
_HIDDEN = ("_", ".")


def _namespaces(request: Request, _: Any) -> str:
    return "\n".join(_inner(request))


def _inner(request: Request) -> Iterator[str]:
    """The schemas directly in one."""
    path, storage_options = folder_place(request)
    tables = set(tables_in(request))
    for name in open_store(path, storage_options).folders():
        if name.startswith(_HIDDEN) or name in tables:
            continue
        if _is_there(_with(request, name)):
            yield name


def _with(request: Request, name: str) -> Request:
    return {**request, "names": [*request["names"], name]}


def _store(request: Request) -> Store:
    return open_store(*folder_place(request))


def _is_there(request: Request) -> bool:
    if not request["names"] or _read(_store(request)) is not None or any(tables_in(request)):
        return True
    return next(_inner(request), None) is not None


def _read(store: Store) -> dict[str, str] | None:
    """What CREATE SCHEMA wrote; None if it did not."""
    try:
        content = store.read(_FILE)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)["properties"]
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(
            f"the schema at {store.url} cannot be read: {error}",
            advice=f"delete its file {_FILE}, and create the schema again; its tables stay",
            path=store.url,
        ) from error


def _namespace(request: Request, _: Any) -> str:
    if not request["names"]:
        return "{}"
    store = _store(request)
    return json.dumps({**(_read(store) or {}), "location": store.url})


def _create(request: Request, _: Any) -> bool:
    """Whether it was made: False if it is there already."""
    properties = dict(request["properties"])
    store = _store(request)
    location = properties.pop("location", None)
    if location is not None and location.removeprefix("file:").rstrip("/") != store.url:
        raise ConfigurationError(
            f"a schema of the catalog tidelog is the folder of its name, here {store.url}, not {location}",
            advice="leave LOCATION out; a table can have one",
        )
    if _is_there(request):
        return False
    try:
        store.put_if_absent(_FILE, _content(properties))
    except FileExistsError:
        return False
    return True


def _content(properties: Mapping[str, str]) -> bytes:
    return json.dumps({"properties": properties}, ensure_ascii=False).encode()


def _alter(request: Request, _: Any) -> None:
    store = _store(request)
    changed = {**(_read(store) or {}), **request["properties"]}
    store.replace(_FILE, _content({name: value for name, value in changed.items() if value is not None}))


def _drop(request: Request, _: Any) -> bool:
    """Whether it was dropped: False if it holds something, and that is not to be dropped with it."""
    tables, inner = list(tables_in(request)), list(_inner(request))
    if (tables or inner) and not request["cascade"]:
        return False
    for name in inner:
        _drop(_with(request, name), None)
    for name in tables:
        drop_table(_with(request, name))
    store = _store(request)
    if _FILE in store.names(""):
        store.delete(_FILE)
    store.remove_empty_folders()
    return True


OF_NAMESPACES: Mapping[str, Callable[[Request, Any], Any]] = {
    "namespaces": _namespaces,
    "namespaceExists": lambda request, _: _is_there(request),
    "namespace": _namespace,
    "createNamespace": _create,
    "alterNamespace": _alter,
    "dropNamespace": _drop,
}

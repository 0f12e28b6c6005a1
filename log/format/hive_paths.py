"""Partition folders as Hive and Spark name them, such as `day=2026-01-31/city=S%C3%A3o/part-0.parquet`.

A value is percent-escaped, and null is `__HIVE_DEFAULT_PARTITION__`. A path does not say of which type a value is. In
an action, the whole path is escaped once more, as a URI (see `paths`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.paths import to_storage_path, to_uri

_NULL = "__HIVE_DEFAULT_PARTITION__"
# A file that Hadoop's shell has not finished to copy.
_COPYING = "._COPYING_"
# 18 digits fit into 64 bits.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# What Hive and Spark escape. Also a null character, which no file name can have; two characters that break the XML of
# an object store's listing; and a dot at the end, which Azure refuses there.
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{[\]^\ufffe\uffff]|\.$""")
# What file systems allow for the name of a folder, in bytes.
_LONGEST_NAME = 255


def may_be_used(metadata: Metadata) -> bool:
    """Whether new files of a table may be in partition folders at all.

    With column mapping or random prefixes, other engines put new files elsewhere, even if the old ones are in folders.
    """
    configuration = metadata.configuration
    is_mapped = configuration.get(properties.COLUMN_MAPPING_MODE, "none").lower() != "none"
    is_random = configuration.get(properties.RANDOM_PREFIXES, "false").lower() == "true"
    return bool(metadata.partition_columns) and not is_mapped and not is_random


def is_any_inside(uris: Iterable[str], partition_columns: Sequence[str]) -> bool:
    """Whether any of the files, named as in their actions, is in partition folders: one for each partition column."""
    wanted = set(partition_columns)
    return any(wanted <= _named(uri) for uri in uris if "=" in uri) if wanted else False


def are_misplaced(adds: pa.Table, partition_columns: Sequence[str]) -> BoolArray:
    """Which files, a table of their `add` actions, are outside of partition folders that could hold their values."""
    usual = f"{to_uri(escaped(partition_columns[0]))}="
    found = ~np.asarray(pc.starts_with(adds["path"], usual), dtype=bool)
    for number in np.flatnonzero(found).tolist():
        uri, values = adds["path"][number].as_py(), dict(adds["partitionValues"][number].as_py() or ())
        is_inside = is_any_inside([uri], partition_columns)
        found[number] = not is_inside and folder_of(partition_columns, values) is not None
    return found


def _named(uri: str) -> set[str]:
    """The columns that the folders on a path name."""
    folders = (folder.partition("=") for folder in to_storage_path(uri).split("/")[:-1])
    return {unquote(name) for name, equals, _ in folders if equals}


def folder_of(partition_columns: Sequence[str], values: Mapping[str, str | None]) -> str | None:
    """The folder of a partition, such as `day=2026-01-31/city=São%2F`; `values` are as `folder_text` gives them.

    None if the name of a folder cannot hold a value, because it is too long, or would mean null.
    """
    names = []
    for column in partition_columns:
        value = values.get(column)
        name = f"{escaped(column)}={_NULL if value in (None, '') else escaped(value)}"
        if value == _NULL or len(name.encode()) > _LONGEST_NAME:
            return None
        names.append(name)
    return "/".join(names)


def escaped(text: str) -> str:
    """A column's name or value as the name of a folder has it."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def is_left_out(path: str) -> bool:
    """Whether readers of folders skip a file: it, or a folder on its path, begins with `.` or `_`.

    As in Spark, a partition folder such as `_day=1` is not hidden.
    """
    parts = path.split("/")
    return path.endswith(_COPYING) or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts
    )


def partition_texts(path: str) -> dict[str, str | None]:
    """The partition columns that the folders of a path name, from the top level down, with their values as text.

    Null and empty values are None. Raises ValueError, which says why, for a folder that is not a partition folder.
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if not equals or not name:
            raise ValueError(f"the folder {folder!r} is not a partition folder such as day=2026-01-31")
        name, value = _decoded(name), _decoded(value)
        if name in found:
            raise ValueError(f"its folders have the partition column {name!r} twice")
        found[name] = None if value in (_NULL, "") else value
    return found


def type_of_texts(texts: Collection[str | None]) -> pa.DataType:
    """The type of a partition column with these values, if the type gives back each text exactly: long, date or string.

    So `7` is a long, and `07` a string. Without values it is a string.
    """
    known = [text for text in texts if text is not None]
    if known and all(map(_WHOLE.fullmatch, known)):
        return pa.int64()
    return pa.date32() if known and all(map(_is_date, known)) else pa.string()


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"{text!r} does not decode to UTF-8") from None

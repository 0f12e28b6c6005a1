"""Paths of partition folders as Hive and Spark name them, such as `day=2026-01-31/city=S%C3%A3o/part-0.parquet`.

A value is percent-escaped, and null is `__HIVE_DEFAULT_PARTITION__`. A path does not say of which type a value is.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date
from urllib.parse import unquote

import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"
# A file that Hadoop's shell has not finished to copy.
_COPYING = "._COPYING_"
# 18 digits fit into 64 bits.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


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

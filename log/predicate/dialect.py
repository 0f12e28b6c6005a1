"""Spark's SQL as sqlglot reads it, but with functions as they were written.

sqlglot would turn a function of Spark into one of its own, whose meaning can differ.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

# Functions with a syntax of their own, such as CAST(a AS b).
_OWN_SYNTAX = ("CAST", "EXTRACT", "POSITION", "SUBSTR", "SUBSTRING", "TRIM")
_PARSERS = {name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX}


class _Plain(Spark):
    class Tokenizer(Spark.Tokenizer):
        # In Spark, '' inside of a text is one quotation mark.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = _PARSERS


DIALECT = _Plain()

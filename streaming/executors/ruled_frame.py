"""What Spark computes for a table with a rule that tidelog cannot evaluate: a function of the user, or an unusual one.

Spark adds columns to the DataFrame: those that the data lacks, and for each rule whether the row fulfils it. The tasks
that write the rows look at these columns, so that a row that breaks a rule is the same error on every path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pt
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.pandas.types import from_arrow_type

from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.rules import RowRules, declared, spark_work
from tidelog.streaming.executors.plain_frame import arrow_schema, plain_texts, prepared, quoted, widens

_ALL = 2**31 - 1
_ZONE = "spark.sql.session.timeZone"
_UTC = frozenset({"utc", "etc/utc", "gmt", "etc/gmt", "ut", "z", "+00:00", "utc+00:00", "utc+0", "gmt+0", "gmt0"})


def only_in_spark(frame: DataFrame, writer: DataWriter) -> tuple[str, ...]:
    """The expressions of the table's rules for which the rows of the frame have to be written through Spark.

    tidelog cannot evaluate them, or they depend on the session's time zone, which is not UTC.
    """
    rules = RowRules.of(writer)
    work = spark_work(rules, frame.columns, in_utc=_in_utc(frame.sparkSession)) if rules.rules else None
    return () if work is None else work.reasons


def ruled(frame: DataFrame, writer: DataWriter) -> tuple[DataFrame, RowRules]:
    """The table's rules, and the frame with the columns that Spark has to compute for them.

    Raises UnsupportedFeatureError for an expression that Spark cannot evaluate either.
    """
    rules = RowRules.of(writer)
    work = spark_work(rules, frame.columns, in_utc=_in_utc(frame.sparkSession)) if rules.rules else None
    if work is None:
        return frame, rules
    frame = _stored(_typed(frame, rules.schema), rules)
    for field, text in work.filled:
        frame = _with(frame, field.name, text, writer, _cast(field))
    frame = _stored(frame, rules) if work.filled else frame
    for name, text in work.answers:
        frame = _with(frame, name, text, writer, lambda column: F.coalesce(column, F.lit(False)))  # noqa: FBT003 - a value
    return frame, work.rules


def with_keys(frame: DataFrame, rules: RowRules, names: Sequence[str]) -> DataFrame:
    """The frame with the columns `names` as the table will have them, so that equal keys are equal in the frame too.

    Those that it lacks are filled, if the table has a default for them or generates them. The tasks check the values.
    Raises UnsupportedFeatureError for an expression that Spark cannot evaluate.
    """
    frame = plain_texts(frame)
    if not rules.rules or rules.answers:
        return frame
    writer, known = rules.writer, {name.lower() for name in frame.columns}
    own = declared(writer.metadata, rules.path)
    frame = _stored(_typed(frame, rules.schema), rules)
    for rule in (*own.defaults, *own.generated):
        if rule.column in names and rule.column.lower() not in known:
            frame = _with(frame, rule.column, rule.expression, writer, _cast(rules.schema.field(rule.column)))
    return _stored(frame, rules)


def _in_utc(session: SparkSession) -> bool:
    return (session.conf.get(_ZONE) or "").lower() in _UTC


def _cast(field: pa.Field) -> Callable[[Column], Column]:
    kind = from_arrow_type(field.type, prefer_timestamp_ntz=True)
    return lambda column: column.cast(kind)


def _with(
    frame: DataFrame, name: str, text: str, writer: DataWriter, converted: Callable[[Column], Column]
) -> DataFrame:
    try:
        found = frame.select("*", converted(F.expr(text)).alias(name))
        _ = found.schema  # Spark Connect looks at the expression only now
    except (AnalysisException, ParseException) as error:
        url = writer.store.url
        raise UnsupportedFeatureError(
            f"a rule of {url} needs {text[:200]!r}, which neither tidelog nor this Spark session can evaluate: "
            f"{str(error)[:200]}",
            advice="register the function in the session, or write with the engine that made the table",
            path=url,
            features=text[:200],
        ) from error
    return found


def _stored(frame: DataFrame, rules: RowRules) -> DataFrame:
    """The frame with the values that readers will see, as in RowRules. Texts that are too long stay as they are."""
    lengths = {rule.column.lower(): rule for rule in rules.rules.lengths}
    for field in arrow_schema(frame) if lengths else ():
        rule = lengths.get(field.name.lower())
        if rule is not None and pt.is_string(field.type):
            text, limit = frame[quoted(field.name)], rule.limit
            if rule.pads:
                text = F.when(F.length(text) < limit, F.rpad(text, limit, " ")).otherwise(text)
            is_blank = F.rtrim(F.substring(text, limit + 1, _ALL)) == ""
            frame = frame.withColumn(field.name, F.when(is_blank, F.substring(text, 1, limit)).otherwise(text))
    return prepared(frame, rules.writer)


def _typed(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The frame with the numbers of the table's columns in the table's types, if these are wider."""
    wanted = {field.name.lower(): field.type for field in schema}
    columns = []
    for field in arrow_schema(frame):
        column, kind = frame[quoted(field.name)], wanted.get(field.name.lower())
        if kind is not None and field.type != kind and widens(field.type, kind):
            column = column.cast(from_arrow_type(kind)).alias(field.name)
        columns.append(column)
    return frame.select(*columns)

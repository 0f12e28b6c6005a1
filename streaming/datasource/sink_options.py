"""The options of `writeStream.format("tidelog")` and of `toTable(name)`, parsed and checked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import brief
from tidelog.streaming.datasource.read_options import (
    READ_OPTIONS,
    flag_in,
    names_in,
    require_known,
    require_path,
    split_names,
)

_PROPERTY, _DEAD_LETTERS = "property.", "deadletters."


def _text(options: Mapping[str, str], key: str) -> str:
    return options[key]


def _word(options: Mapping[str, str], key: str) -> str:
    return options[key].strip().lower()


def _flag(options: Mapping[str, str], key: str) -> bool:
    return flag_in(options, key, _KNOWN)


def _order(options: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    return names_in(options, key) if options[key].strip() else ()


# The options that stand for an argument of a Sink, and how their text is read.
_ARGUMENTS: dict[str, tuple[str, Callable[[Mapping[str, str], str], Any]]] = {
    "mode": ("mode", _word),
    "sinkName": ("name", _text),
    "keys": ("keys", names_in),
    "otherKeys": ("other_keys", _flag),
    "orderBy": ("order_by", _order),
    "deleteWhere": ("delete_where", _text),
    "columns": ("columns", _word),
    "adoptTxn": ("adopt_txn", _text),
    "partitionBy": ("partition_by", names_in),
    "schemaEvolution": ("schema_evolution", _flag),
    "mergeSchema": ("schema_evolution", _flag),
    "writer": ("writer", _word),
    "onReset": ("on_reset", _word),
    "appendComplete": ("append_complete", _flag),
}
# What Spark passes on of the query itself.
_OF_QUERY = ("checkpointLocation", "queryName")
_OTHERS = ("path", "deadLetters", "throttle", "maxDelaySeconds", *_OF_QUERY)
_KNOWN = {name.lower(): name for name in (*_ARGUMENTS, *_OTHERS)}
# What another option, or nothing, takes the place of.
_INSTEAD = {
    "name": "a sink's name is the option 'sinkName', and a query's is .queryName(...)",
    "order_by": "use 'orderBy'",
    "txnappid": "leave it out: the sink records each batch itself; 'adoptTxn' continues the stream of another engine",
    "txnversion": "leave it out: the sink records each batch itself",
    "overwriteschema": "leave it out, or use 'mergeSchema', which adds new columns: a stream keeps the others",
    "checkpoint": "use checkpointLocation",
    "asyncprogresstrackingenabled": "leave it out: Spark would record a batch's offsets after the batch, and a batch "
    "that it replays could not be told from another one",
}
_APPEND, _UPSERT = "append", "upsert"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a stream's sink.

    `arguments` are those of a Sink, but for `dead_letters` and for `throttle`, which has the small files and the
    seconds of a Throttle, as far as they were given. `checkpoint` is the query's, if it was given.
    """

    path: str
    arguments: Mapping[str, Any] = field(repr=False)
    dead_letters: SinkOptions | None = None
    throttle: Mapping[str, Any] | None = None
    checkpoint: str | None = None


def parse_sink(raw: Mapping[str, str], *, partitions: Sequence[str] = (), output_mode: str = "Append") -> SinkOptions:
    """The options of a stream's sink; `partitions` and `output_mode` are what the writer says beside them.

    Raises ConfigurationError for one that is unknown or malformed, and for an output mode that does not go with them.
    """
    parsed = _parsed(raw)
    if partitions:
        if "partition_by" in parsed.arguments:
            raise ConfigurationError(
                "the option 'partitionBy' and .partitionBy(...) say the same", advice="leave one of them out"
            )
        parsed = replace(parsed, arguments={**parsed.arguments, "partition_by": tuple(partitions)})
    _require_output_mode(parsed.arguments, output_mode)
    return parsed


def _parsed(raw: Mapping[str, str]) -> SinkOptions:
    options, secrets = split_names(raw)
    properties = {name[len(_PROPERTY) :]: text for name, text in raw.items() if name.lower().startswith(_PROPERTY)}
    letters = {name[len(_DEAD_LETTERS) :]: text for name, text in raw.items() if name.lower().startswith(_DEAD_LETTERS)}
    options = {name: text for name, text in options.items() if not name.startswith((_PROPERTY, _DEAD_LETTERS))}
    _require_known(options, raw)
    arguments: dict[str, Any] = {
        name: read(options, key.lower()) for key, (name, read) in _ARGUMENTS.items() if key.lower() in options
    }
    if properties:
        arguments["properties"] = properties
    if secrets:
        arguments["storage_options"] = secrets
    return SinkOptions(
        require_path(options, 'use .start("/path/to/table")'),
        arguments,
        _letters(options, letters),
        _throttle(options),
        options.get("checkpointlocation"),
    )


def _require_known(options: Mapping[str, str], raw: Mapping[str, str]) -> None:
    for key in options:
        if key in _INSTEAD:
            raise ConfigurationError(f"unknown option {key!r} of a stream's sink", advice=_INSTEAD[key])
        if key.startswith(("delta.", "tidelog.")):
            name = next(name for name in raw if name.lower() == key)
            raise ConfigurationError(
                f"unknown option {name!r} of a stream's sink",
                advice=f"a property of a table that the sink creates is the option 'property.{name}'",
            )
        if key in READ_OPTIONS and key not in _KNOWN:
            raise ConfigurationError(f"the option {READ_OPTIONS[key]!r} is for reads only", advice="leave it out")
    names = {name: name for name in ("deadLetters.<option>", "property.<name>")}
    require_known(options, {**_KNOWN, **names})
    if "mergeschema" in options and "schemaevolution" in options:
        raise ConfigurationError(
            "the options 'schemaEvolution' and 'mergeSchema' say the same", advice="leave one of them out"
        )


def _letters(options: Mapping[str, str], more: Mapping[str, str]) -> SinkOptions | None:
    if "deadletters" in options:
        given = {key for key in more if key.lower() in {name.lower() for name in ("path", "deadLetters", *_OF_QUERY)}}
        if given:
            raise ConfigurationError(
                f"unknown option 'deadLetters.{min(given)}'", advice="'deadLetters' itself is the path"
            )
        return _parsed({**more, "path": options["deadletters"]})
    if more:
        raise ConfigurationError(
            f"the option 'deadLetters.{min(more)}' has no table",
            advice="give its path as the option 'deadLetters', or leave it out",
        )
    return None


def _throttle(options: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "throttle" not in options:
        if "maxdelayseconds" in options:
            raise ConfigurationError(
                "the option 'maxDelaySeconds' needs 'throttle'",
                advice="give the number of small files above which the stream slows down, as in throttle=1000",
            )
        return None
    found = {"max_debt_files": _number(options, "throttle", int)}
    if "maxdelayseconds" in options:
        found["max_delay_s"] = _number(options, "maxdelayseconds", float)
    return found


def _number(options: Mapping[str, str], key: str, kind: Callable[[str], int | float]) -> int | float:
    try:
        return kind(options[key].strip())
    except ValueError as error:
        raise ConfigurationError(
            f"the option {_KNOWN[key]!r} cannot be {brief(options[key])}", advice="give a number"
        ) from error


def _require_output_mode(arguments: Mapping[str, Any], output_mode: str) -> None:
    """Raise ConfigurationError if the rows of the query's batches would come twice, or be lost, in this mode."""
    mode = arguments.get("mode", _APPEND)
    if output_mode.lower() == "update" and mode != _UPSERT:
        raise ConfigurationError(
            f"with outputMode('update') each batch has the rows that changed, and mode {mode!r} does not replace "
            "their older ones alone",
            advice="use .option('mode', 'upsert') with the columns of the groups in .option('keys', ...); or "
            "outputMode('append') with a watermark",
        )
    if output_mode.lower() == "complete" and mode == _APPEND and not arguments.get("append_complete"):
        raise ConfigurationError(
            "with outputMode('complete') each batch has all rows of its result, which would be appended each time",
            advice="use .option('mode', 'upsert') with the columns of the groups in .option('keys', ...), or "
            ".option('mode', 'overwrite-partitions'); or outputMode('append') with a watermark; "
            ".option('appendComplete', 'true') keeps every result",
        )

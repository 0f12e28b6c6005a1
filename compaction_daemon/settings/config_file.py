"""The configuration file of a daemon, `tidelog.toml`: read, checked, and compared with the one before.

Every error names the file, the line, the key, and what would be right. None shows a storage option.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from tidelog.compaction_daemon.settings.config import DaemonConfig, ListenAddress
from tidelog.compaction_daemon.settings.sources import TableSource
from tidelog.log.errors import ConfigurationError
from tidelog.log.log_records import LOG_FORMATS, LOG_LEVELS
from tidelog.log.presentable import did_you_mean
from tidelog.log.storage.regular_file import read_regular_file
from tidelog.log.system import environment

MAX_FILE_BYTES = 2**24
"""No larger configuration file is read: ten thousand tables with options of their own take some megabytes."""

_WORDS = {str: "a text in quotes", bool: "true or false", int: "a whole number", float: "a number"}
_TEXTS, _TABLE = "a list of strings", "a table"
# What each section takes. The keys of [daemon] are the fields of DaemonConfig.
_SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "tables": {"path": str, "folder": bool, "include": _TEXTS, "exclude": _TEXTS, "storage_options": _TABLE},
    "daemon": get_type_hints(DaemonConfig),
    "http": {"listen": str},
    "logging": {"format": LOG_FORMATS, "level": LOG_LEVELS},
}

# No key of a file has as many parts, and no value is nested as deep. Storage options may be nested.
_MOST_PARTS = _DEEPEST = 32
_FLAT = "write sections in brackets, and below each its keys, as the reference shows"
_LONGEST_SHOWN, _LONGEST_LINE = 100, 2_000
# A key with more parts than that, outside of texts and comments.
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\]|\\.?)*+(?:"|$)|'[^']*+(?:'|$))"""
_DOTTED = re.compile(rf"(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MOST_PARTS},}})|{_PART}|#.*|.")
_VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A path of the machine that is neither absolute, nor below a home, nor a URL.
_RELATIVE = re.compile(r"(?![/~])(?![A-Za-z][A-Za-z0-9+.-]+:)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


@dataclass(frozen=True, slots=True)
class DaemonFile:
    """What a configuration file says.

    Attributes:
        sources: Where the tables are.
        config: How the daemon runs.
        listen: Where it shows its page; None for nowhere.
        log_format: `text` or `json`.
        log_level: The least level of what is logged; None if the file does not say.
    """

    sources: tuple[TableSource, ...] = ()
    config: DaemonConfig = field(default_factory=DaemonConfig)
    listen: ListenAddress | None = None
    log_format: str = "text"
    log_level: str | None = None

    def changes_since(self, before: DaemonFile) -> list[str]:
        """What is different from another file, in words; nothing that could be a credential."""
        old, new = before._values(), self._values()
        found = [f"{name}: {old[name]} -> {new[name]}" for name in new if old[name] != new[name]]
        was, now = before.by_path(), self.by_path()
        found += [f"tables: + {path}" for path in now if path not in was]
        found += [f"tables: - {path}" for path in was if path not in now]
        found += [f"tables: changed {path}" for path in now if path in was and now[path] != was[path]]
        return found

    def _values(self) -> dict[str, Any]:
        """What it says besides the tables."""
        found = {f"daemon.{name}": value for name, value in asdict(self.config).items()}
        found |= {name: getattr(self, name) for name in ("listen", "log_format", "log_level")}
        return {name: "none" if value is None else value for name, value in found.items()}

    def by_path(self) -> dict[str, list[TableSource]]:
        """The sources by their paths: a file can have several of one path, with different patterns."""
        found: dict[str, list[TableSource]] = {}
        for source in self.sources:
            found.setdefault(source.path, []).append(source)
        return found


def read_config(path: str) -> DaemonFile:
    """Read and check a configuration file. Relative paths in it are relative to its folder.

    Raises:
        ConfigurationError: The file cannot be read or is not valid. The text names the file, the line and the key.
    """
    try:
        text = read_regular_file(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    else:
        return parse_config(text, path)
    # Without the cause: it can hold the whole text.
    raise ConfigurationError(f"cannot read the configuration file {path}: {reason}", advice="check the path")


def parse_config(text: str, path: str) -> DaemonFile:
    """Check the text of the configuration file at `path`; see `read_config`."""
    return _Reader(text, path).file()


class _Reader:
    """Checks one file. `_fail` needs its text, for the line."""

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path

    def file(self) -> DaemonFile:
        self._require_flat_keys()
        try:
            found = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            # Without the cause: it holds the whole text.
            message = f"the configuration file {self._path} is not valid TOML: {error}"
            raise ConfigurationError(message, advice="see https://toml.io") from None
        except RecursionError:
            message = f"the configuration file {self._path} is nested too deeply{_near(self._text)}"
            raise ConfigurationError(message, advice=_FLAT) from None
        except ValueError:  # of Python, for a number of thousands of digits
            message = f"the configuration file {self._path} has a whole number of more than 64 bits"
            raise ConfigurationError(message, advice="give a smaller number") from None
        self._require_known(found, tuple(_SECTIONS), ())
        self._require_numbers(found, ())
        entries = found.get("tables", [])
        if not isinstance(entries, list):
            self._fail(("tables",), "is not a list of tables", "begin each with [[tables]], in two brackets")
        http, logging = self._section(found, "http"), self._section(found, "logging")
        return DaemonFile(
            sources=tuple(self._source(entry, number) for number, entry in enumerate(entries)),
            config=self._config(self._section(found, "daemon")),
            listen=self._listen(http["listen"]) if "listen" in http else None,
            **{f"log_{name}": value for name, value in logging.items()},
        )

    def _require_flat_keys(self) -> None:
        """Check that no key has many parts: reading one takes a time that grows with their square."""
        for number, line in enumerate(self._text.splitlines(), 1):
            if line.count(".") < _MOST_PARTS:
                continue
            for found in _DOTTED.finditer(line):
                if found["key"]:
                    message = (
                        f"{self._path}, line {number}: {brief_text(found['key'])} has more than {_MOST_PARTS} parts"
                    )
                    raise ConfigurationError(message, advice=_FLAT)

    def _section(self, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        section = found.get(name, {})
        if not isinstance(section, Mapping):
            self._fail((name,), "is not a section", f"write [{name}] on a line, and its keys on the lines below")
        self._require_valid(section, name, (name,))
        return section

    def _config(self, section: Mapping[str, Any]) -> DaemonConfig:
        for name, value in section.items():
            try:
                DaemonConfig(**{name: value})
            except ConfigurationError as error:
                self._fail(("daemon", name), error.message.removeprefix(f"{name} "), error.advice)
        return DaemonConfig(**section)

    def _listen(self, text: str) -> ListenAddress:
        try:
            return ListenAddress.parse(text)
        except ConfigurationError as error:
            self._fail(("http", "listen"), error.message, error.advice)

    def _source(self, entry: Any, number: int) -> TableSource:
        key = ("tables", number)
        if not isinstance(entry, Mapping):
            self._fail(key, "is not a table", 'write [[tables]] on a line, and path = "..." below')
        self._require_valid(entry, "tables", key)
        if "path" not in entry:
            self._fail(key, "has no path", 'add path = "..."')
        path = self._filled((*key, "path"), entry["path"])
        options = self._filled((*key, "storage_options"), entry.get("storage_options"))
        try:
            return TableSource(
                local_path(path, str(Path(self._path).absolute().parent)),
                folder=entry.get("folder", False),
                include=tuple(entry.get("include", ())),
                exclude=tuple(entry.get("exclude", ())),
                storage_options=options,
            )
        except ConfigurationError as error:
            self._fail(key, f"is wrong: {error.message}", error.advice)

    def _filled(self, key: tuple[str | int, ...], value: Any) -> Any:
        """The value with the environment's variables filled in, in nested values as well."""
        if isinstance(value, Mapping):
            return {name: self._filled((*key, name), entry) for name, entry in value.items()}
        if not isinstance(value, str):
            return value
        try:
            return with_environment(value)
        except ConfigurationError as error:
            self._fail(key, error.message, error.advice)

    def _require_numbers(self, value: Any, key: tuple[str | int, ...]) -> None:
        """Check that whole numbers are those of TOML, which have 64 bits; longer ones may not even be shown."""
        if len(key) > _DEEPEST:
            self._fail(key, f"is nested more than {_DEEPEST} deep", _FLAT)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self._fail(key, "is a whole number of more than 64 bits", "give a smaller number")
        nested = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for name, entry in nested:
            self._require_numbers(entry, (*key, name))

    def _require_valid(self, section: Mapping[str, Any], name: str, key: tuple[str | int, ...]) -> None:
        """Check the names and the types of the keys of a section."""
        self._require_known(section, tuple(_SECTIONS[name]), key)
        for entry, value in section.items():
            kind = _SECTIONS[name][entry]
            if not _is(value, kind):
                # A mapping of options can hold secrets, and so can URLs and addresses.
                hidden = name == "tables" or isinstance(value, list | Mapping)
                shown = "is" if hidden else f"is {value!r}, which is"
                choice = " or ".join(map(repr, kind)) if isinstance(kind, tuple) else _words(kind)
                self._fail((*key, entry), f"{shown} not {choice}", f"give {choice}")

    def _require_known(self, section: Mapping[str, Any], known: tuple[str, ...], key: tuple[str | int, ...]) -> None:
        for name in section:
            if name not in known:
                place = f"[{_dotted(key)}]" if key else "the file"
                hint = did_you_mean(name, known)
                self._fail((*key, name), "is not known", f"{hint}{place} takes: {', '.join(sorted(known))}")

    def _fail(self, key: tuple[str | int, ...], problem: str, advice: str) -> NoReturn:
        line = line_of(self._text, key)
        place = f"{self._path}, line {line}" if line else self._path
        raise ConfigurationError(f"{place}: {_dotted(key)} {problem}", advice=advice)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value of TOML is of the kind that a section takes."""
    if isinstance(kind, tuple):
        return value in kind
    if kind == _TEXTS:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if kind == _TABLE:
        return isinstance(value, Mapping)
    kinds = set(_kinds(kind))
    return type(value) in (kinds | {int} if float in kinds else kinds)


def _words(kind: Any) -> str:
    return kind if isinstance(kind, str) else " or ".join(_WORDS[each] for each in _kinds(kind))


def _kinds(kind: Any) -> Iterator[Any]:
    """The types of a value; not that of None, for which a file leaves the key out."""
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return (choice for choice in choices if choice is not type(None))


def _dotted(key: tuple[str | int, ...]) -> str:
    """A key as people write it: `tables[0].path`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{brief_text(part)}" for part in key)
    return "".join(parts).removeprefix(".")


def brief_text(text: str) -> str:
    """A part of a file, or the start of a long one."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _near(text: str) -> str:
    """The line and the key with the most brackets, which a text that is nested too deeply has."""
    lines = text.splitlines()
    number, line = max(enumerate(lines, 1), key=lambda each: each[1].count("[") + each[1].count("{"))
    found = _ENTRY.match(line[:_LONGEST_LINE])
    return f", line {number}: {brief_text(found[1])}" if found else f", line {number}"


def keys_of_a_file() -> Iterator[str]:
    """Every key that a file can have, as `section.key`, for the reference's test."""
    assert {entry.name for entry in fields(DaemonConfig)} == set(_SECTIONS["daemon"])
    return (f"{section}.{name}" for section, keys in _SECTIONS.items() for name in keys)


# --- what its texts stand for


def with_environment(text: str) -> str:
    """The text with `${NAME}` replaced by the environment's variable. `$${NAME}` stands for `${NAME}` itself.

    Raises ConfigurationError, which never shows a value.
    """

    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        if not found[0].endswith("}") or not _NAME.fullmatch(name):
            raise ConfigurationError(
                "has a ${ that no name and } follow", advice="write ${NAME}, or $${ for the characters themselves"
            )
        known = environment(name)
        if known is None:
            raise ConfigurationError(
                f"needs the environment variable {name}, which is not set", advice=f"set {name}, or remove ${{{name}}}"
            )
        return known

    return _VARIABLE.sub(value, text)


def local_path(path: str, folder: str) -> str:
    """The path, or glob, with `folder` in front if it is relative to it."""
    return f"{folder}/{path}" if _RELATIVE.match(path) and path else path


def line_of(text: str, key: tuple[str | int, ...]) -> int | None:
    """The line on which a key of a TOML text stands, or the one that holds it; None if it is not found.

    Lines within a text of several lines are taken for keys if they look like ones, so this is for messages only.
    """
    best: tuple[int, int | None] = (0, None)
    for number, found in _keys(text):
        length = len(found)
        if found == key[:length] and length > best[0]:
            best = (length, number)
    return best[1]


def _keys(text: str) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """The line and the name of each section and key. An entry of a list of sections ends with its number."""
    section: tuple[str | int, ...] = ()
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        header, entry = _HEADER.match(line[:_LONGEST_LINE]), _ENTRY.match(line[:_LONGEST_LINE])
        if header:
            first, *rest = _parts(header[2])
            if header[1] == "[[":
                counts[first] += 1
            section = (first, *([counts[first] - 1] if counts[first] else []), *rest)
            yield number, section
        elif entry:
            yield number, (*section, *_parts(entry[1]))


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]

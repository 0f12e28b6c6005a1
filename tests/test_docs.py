"""The pages say what the code does: names, options, errors, metrics, commands and links, compared with the code."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.main import get_command
from typer.testing import CliRunner

from scripts import where_it_runs
from tests.compaction_daemon.observing.tables import daemon_status, table_status
from tidelog.cli import app
from tidelog.compaction_daemon import Daemon, compact, plan, stage
from tidelog.compaction_daemon.observing.metrics import DaemonCollector
from tidelog.log import Table, errors
from tidelog.log.cleanup import retention
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.refused_properties import REFUSED
from tidelog.streaming import BatchReport, Sink
from tidelog.streaming.datasource import read_options, sink_options, write_options
from tidelog.streaming.prometheus import PrometheusListener

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PACKAGES = ("tidelog.log", "tidelog.streaming", "tidelog.streaming.capture", "tidelog.compaction_daemon")
# Public by its module's name: importing it loads prometheus_client.
FURTHER_NAMES = {"tidelog.streaming.prometheus.PrometheusListener"}
TERMS = {
    *("base version", "candidate", "conflict policy", "consumer", "debt", "deletion vector", "group", "head"),
    *("ID version", "image", "ledger", "lineage", "move", "once", "operation class", "plan", "rebase", "row map"),
    *("scope", "step", "time version", "winner"),
}
FOR_EVERY_COMMAND = {"--help", "--json", "--storage-option"}


def _pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def rows_of(page: str, heading: str = "") -> list[list[str]]:
    """The cells of the tables of a reference page, below a heading if one is given; without the tables' headings.

    An entry of a list, `- names (further names): meaning`, counts as a row of these three cells.
    """
    text = (REFERENCE / page).read_text()
    if heading:
        text = re.split(rf"^## {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
        text = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    lines = text.splitlines()
    rows = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if not after.startswith("|---")]
    found = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in rows if line.startswith("|") and not line.startswith("|---")
    ]
    return [[cell.strip() for cell in row] for row in found] + list(_entries(text))


def _entries(text: str) -> Iterator[list[str]]:
    for item in re.findall(r"^- (.+(?:\n  .+)*)", text, flags=re.MULTILINE):
        line = re.sub(r"\s+", " ", item)
        # Code can contain what separates the cells.
        masked = re.sub(r"`[^`]*`", lambda code: "_" * len(code[0]), line)
        match = re.match(r"(.+?)(?: \(([^()]*)\))?: ", masked)
        if match and line.startswith("`"):
            yield [line[: match.end(1)], line[slice(*match.span(2))] if match[2] else "", line[match.end() :]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- prose -----------------------------------------------------------------------------------------------------------


def test_lines_are_at_most_120_columns() -> None:
    """Except for a link that is alone on its line. A table that needs longer rows is a list instead."""
    for page in _pages():
        for number, line in enumerate(page.read_text().splitlines(), 1):
            link = re.fullmatch(r"\s*[-*]?\s*(\[[^\]]*\]:?\s*)?\(?<?https?://\S+", line)
            assert len(line) <= 120 or link, f"{page.relative_to(ROOT)}:{number}"


def test_the_glossary_has_every_term() -> None:
    terms = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)
    assert set(terms) >= TERMS
    assert terms == sorted(terms, key=str.lower)


# --- links -----------------------------------------------------------------------------------------------------------


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as MkDocs and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()))
    return found


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", without_code(page.read_text()), flags=re.MULTILINE)
    for target in map("".join, targets):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert f"{page.relative_to(DOCS)}\n" in navigation, page


def test_every_decision_is_in_their_index() -> None:
    pages = {page.name for page in (DOCS / "decisions").glob("0*.md")}
    linked = re.findall(r"\]\((0[^)]+)\)", (DOCS / "decisions" / "README.md").read_text())
    assert sorted(linked) == sorted(pages)


_OWN_FILE = re.compile(r"`((?:log|streaming|compaction_daemon|cli|tests|docs|benchmarks|scripts|examples)/[\w./-]*)`")


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_the_files_that_a_decision_names_exist(page: Path) -> None:
    text = page.read_text()
    for name in _OWN_FILE.findall(text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert list((ROOT / "tests").rglob(name)), name


@pytest.mark.parametrize("page", ["contributing", "changelog"])
def test_a_page_from_the_root_defines_the_same_links(page: str) -> None:
    definitions = re.compile(r"^\[(\w+)\]: ", re.MULTILINE)
    source = (ROOT / f"{page.upper()}.md").read_text()
    assert definitions.findall(source) == definitions.findall((DOCS / f"{page}.md").read_text())


def test_the_files_that_contributing_names_exist() -> None:
    named = set(re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert len(named) > 20
    assert not {name for name in named if not (ROOT / name).exists()}


# --- the API reference -----------------------------------------------------------------------------------------------


def directives() -> list[str]:
    pages = (REFERENCE / "api").glob("*.md")
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE)]


def test_every_public_name_is_in_the_api_reference_once() -> None:
    places = defaultdict(set)  # a class that two packages export has two names
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            places[id(getattr(module, name))].add(f"{package}.{name}")
    found = Counter(directives())
    assert set(found.values()) == {1}
    for names in places.values():
        assert len(names & found.keys()) == 1, names


def test_the_root_s_names_are_documented() -> None:
    """Each is a public name of one package, and the root's page links to it."""
    import tidelog  # noqa: PLC0415 - only this test needs it

    documented = {names_in(row[0])[0] for row in rows_of("api/tidelog.md")}
    assert documented == set(tidelog.__all__)
    homes = {f"{home}.{name}" for name, home in tidelog._HOMES.items()}
    linked = set(re.findall(r"\]\[([^\]]+)\]", (REFERENCE / "api" / "tidelog.md").read_text()))
    assert linked == homes <= set(directives())


def test_the_api_reference_has_only_public_names() -> None:
    known = {f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__}
    assert set(directives()) <= known | FURTHER_NAMES | set(PACKAGES)
    for name in FURTHER_NAMES:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


# --- the reference ---------------------------------------------------------------------------------------------------


def test_the_reference_has_every_argument_of_the_sink() -> None:
    documented = [name for row in rows_of("sink.md") for name in names_in(row[0])]
    assert set(inspect.signature(Sink).parameters) <= set(documented)
    signature = re.findall(r"^Sink\($.*?^\)$", (REFERENCE / "sink.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert all(f"{name}=" in signature[0] for name in set(inspect.signature(Sink).parameters) - {"path"})


@pytest.mark.parametrize(
    ("page", "name", "function"),
    [
        ("compaction.md", "compact", compact),
        ("compaction.md", "stage", stage),
        ("compaction.md", "plan", plan),
        ("compaction.md", "Daemon", Daemon),
        *[
            ("table.md", name, method)
            for name in dir(Table)
            if not name.startswith("_") and callable(method := getattr(Table, name))
        ],
    ],
)
def test_the_signatures_in_the_reference_are_those_of_the_code(page: str, name: str, function: Any) -> None:
    """A signature may be cut short with `...`, but its arguments exist, in this order and with these defaults."""
    actual = [entry for entry in inspect.signature(function).parameters.values() if entry.name not in ("self", "cls")]
    codes = names_in((REFERENCE / page).read_text()) if page == "compaction.md" else heads(page)
    found = [match[1] for code in codes if (match := re.fullmatch(rf"{name}\((.*)\)", code))]
    assert found or page == "table.md"
    for text in found:
        shown = [part.strip() for part in text.split(",") if part.strip() not in ("", "*", "...")]
        named = [part.partition("=") for part in shown]
        order = [entry.name for entry in actual]
        places = [order.index(argument) for argument, _, _ in named]
        assert places == sorted(places), text
        for argument, _, default in named:
            assert default in ("", repr(actual[order.index(argument)].default).replace("'", '"')), text
        if page == "compaction.md" and "..." not in text:
            assert [argument for argument, _, _ in named] == order, text


def heads(page: str) -> list[str]:
    """The code in the first cell of each row of a reference page."""
    return [code for row in rows_of(page) for code in names_in(row[0])]


def test_the_extras_of_the_installation_page() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (DOCS / "installation.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", page, flags=re.MULTILINE)
    assert {name: packages.split(", ") for name, packages in table} == extras
    assert set(re.findall(r"^\| `(\w+)` \| \d+ MB \|$", page, flags=re.MULTILINE)) == set(extras)


def test_the_tables_of_what_runs_where_come_from_the_runs() -> None:
    made = where_it_runs.table(map(json.loads, where_it_runs.ANSWERS.read_text().splitlines()))
    for page in where_it_runs.PAGES:
        text = page.read_text()
        assert text == where_it_runs.with_table(text, made), f"run: python -m scripts.where_it_runs --table ({page})"


def test_the_reference_has_every_field_of_a_batch_report() -> None:
    documented = {name for row in rows_of("metrics.md", "The batch's report") for name in names_in(row[0])}
    assert documented == set(BatchReport(0, None, 0, 0, 0, skipped=False).to_dict())


def test_the_reference_has_every_metric() -> None:
    registry = CollectorRegistry()
    listener = PrometheusListener(registry)
    suffix = {"counter": "_total"}
    exported = {f"{metric.name}{suffix.get(metric.type, '')}" for metric in registry.collect()}
    listener.close()
    documented = [name for row in rows_of("metrics.md", "Prometheus") for name in names_in(row[0])]
    assert sorted(documented) == sorted(exported)


def test_the_reference_has_every_event_of_the_daemon() -> None:
    sources = [path for folder in ("compaction_daemon", "cli") for path in (ROOT / folder).rglob("*.py")]
    logged = {name for path in sources for name in re.findall(r'\bevent\(\s*"(\w+)"', path.read_text())}
    section = (REFERENCE / "metrics.md").read_text().partition("## Logs of the daemon")[2].partition("```")[0]
    assert sorted(logged) == sorted({*names_in(section.partition("An error of tidelog")[0])} - {"tidelog daemon"})


def test_the_reference_has_every_metric_of_the_daemon() -> None:
    collector = DaemonCollector(lambda: daemon_status(table_status("/a", epoch=1)), lambda _: {})
    exported = {f"{metric.name}{'_total' if metric.type == 'counter' else ''}" for metric in collector.collect()}
    rows = rows_of("metrics.md", "Prometheus of the daemon")
    documented = [name for row in rows for name in names_in(row[0]) if name.startswith("tidelog_")]
    assert sorted(documented) == sorted(exported)


@pytest.mark.parametrize(
    ("heading", "known"), [("Read options", read_options.READ_OPTIONS), ("Write options", write_options._KNOWN)]
)
def test_the_reference_has_every_option_of_the_format(heading: str, known: dict[str, str]) -> None:
    options = {name for row in rows_of("spark-format.md", heading) if len(row) == 4 for name in names_in(row[0])}
    assert options == {*known.values(), "storageOption.<name>"} - {"path"}


def test_the_reference_has_every_option_of_a_stream_that_writes() -> None:
    rows = rows_of("spark-format.md", "Options of a stream that writes")
    options = {name for row in rows for name in names_in(row[0])}
    known = {*sink_options._KNOWN.values(), "property.<name>", "storageOption.<name>"}
    assert options >= known - {"path", *sink_options._OF_QUERY}
    arguments = {name for row in rows for name in names_in(row[1])}
    assert arguments >= set(inspect.signature(Sink).parameters) - {"path", "checkpoint", "captured"}


def test_the_reference_has_every_property_with_its_default() -> None:
    documented = {names_in(row[0])[0]: row[1] for row in rows_of("properties.md", "What tidelog acts on")}
    assert sorted(documented) == sorted(properties._KNOWN)
    defaults = {**properties._READ_DEFAULTS, properties.ENABLE_EXPIRED_LOG_CLEANUP: "true"}
    assert retention.is_cleanup_enabled({})
    for name, cell in documented.items():
        texts = names_in(cell)
        parse = properties._KNOWN[name]
        if name in defaults:
            assert parse(texts[0]) == parse(defaults[name]), name
        if name in properties.NEW_TABLE_DEFAULTS:
            assert texts[-1] == properties.NEW_TABLE_DEFAULTS[name], name
        else:
            assert "new tables" not in cell, name


def test_the_reference_has_every_property_that_is_kept_or_refused() -> None:
    names = re.findall(
        r"`(delta\.[^`]+)`", (REFERENCE / "properties.md").read_text().split("## Properties for other")[1]
    )
    families = {name[:-1] for name in names if name.endswith("*")} | {"delta.enableIcebergCompatV"}
    # These are explained above.
    families |= {"delta.columnMapping.", "delta.inCommitTimestampEnablement"}
    for key in (*properties._KEPT, *REFUSED):
        assert key in names or key.startswith(tuple(families)), key


# --- errors ----------------------------------------------------------------------------------------------------------

SECTIONS = {
    "Try again later": (errors.RetryableError,),
    "Decide again": (errors.ConflictError,),
    "Change the call or the set-up": (errors.ConfigurationError, errors.PredicateError, errors.SchemaMismatchError),
    "Stop": (errors.FencedError,),
    "Look at the data": (errors.DataError,),
    "Look up the commit": (errors.CommitStateUnknownError,),
}


def tree(root: type[TidelogError]) -> Iterator[type[TidelogError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_reference_has_every_error_with_its_code_and_fields(heading: str) -> None:
    expected = {
        (error.__name__, error.code, *inspect.get_annotations(error))
        for root in SECTIONS[heading]
        for error in tree(root)
    }
    documented = {(*names_in(row[0]), *names_in(row[1])) for row in rows_of("errors.md", heading)}
    assert documented == expected


def test_every_error_is_in_a_section() -> None:
    assert {child for child in TidelogError.__subclasses__() if child.__module__ == errors.__name__} == {
        root for roots in SECTIONS.values() for root in roots
    }


# --- the command line ------------------------------------------------------------------------------------------------


def commands() -> list[str]:
    return sorted(get_command(app).commands)  # type: ignore[attr-defined]


def options_of(command: str) -> set[str]:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    described, _, _ = done.output.partition("Example:")
    return set(re.findall(r"^ {2,}(?:-\w, )?(--[a-z][a-z-]+)", described, flags=re.MULTILINE))


def test_the_reference_has_every_command_with_its_options() -> None:
    sections = ("Create and change tables", "Look at tables", "Maintain tables")
    documented: dict[str, set[str]] = {}
    for section in sections:
        rows = rows_of("command-line.md", section)
        for row in rows:
            if names_in(row[0])[0].startswith("tidelog "):
                documented.setdefault(names_in(row[0])[0].split()[1], set())
        for row in rows:
            if names_in(row[0])[0].startswith("--"):
                for command in names_in(row[1]):
                    documented[command] |= {name.split()[0] for name in names_in(row[0]) if name.startswith("--")}
    assert sorted(documented) == commands()
    for command, options in documented.items():
        assert options == options_of(command) - FOR_EVERY_COMMAND, command


def test_commands_in_the_samples_exist() -> None:
    seen = 0
    for page in _pages():
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                match = re.match(r"tidelog ([a-z][a-z-]*)(.*)", line.partition(" #")[0])
                if match:
                    assert match[1] in commands(), f"{page}: {line}"
                    assert set(re.findall(r"(?<=\s)--[a-z-]+", match[2])) <= options_of(match[1]), f"{page}: {line}"
                    seen += 1
    assert seen > 20

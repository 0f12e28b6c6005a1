"""How the code is laid out: layers, sizes, names and dependencies. What prose in docs/architecture.md says, held."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from scripts import layers_table
from scripts.layers import (
    PACKAGES,
    ROOT,
    Layer,
    imports_of,
    layers,
    modules_of,
    pure_modules,
    python_files,
    real_doors,
    real_imports,
    tree_of,
)

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 700
PUBLIC = ("tidelog", "tidelog.log", "tidelog.streaming", "tidelog.streaming.capture", "tidelog.compaction_daemon")
EVERYTHING = (*PACKAGES, "benchmarks", "examples", "scripts", "tests")
# All that pure code may import from elsewhere: nothing that does I/O or has a clock, randomness or Spark.
PURE_LIBRARIES = {
    *("__future__", "abc", "collections", "dataclasses", "datetime", "decimal", "difflib", "enum", "functools"),
    *("itertools", "math", "re", "struct", "types", "typing", "urllib.parse", "zlib"),
    *("msgspec", "numpy", "pyarrow", "pyarrow.compute", "pyarrow.types", "pyroaring"),
    *("pyarrow.json", "pyarrow.parquet", "uuid"),  # which parse bytes and text in memory here
}


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for file in python_files(*folders):
        yield str(file.relative_to(ROOT)), tree_of(file)


@cache
def graph() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    return real_imports({layer.name for layer in layers()})


# --- layers ----------------------------------------------------------------------------------------------------------


def test_a_layer_imports_only_layers_above_it_in_the_list() -> None:
    above: set[str] = set()
    for layer in layers():
        assert layer.imports <= above, f"{layer.name} may not import {sorted(layer.imports - above)}"
        above.add(layer.name)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_a_layer_imports_what_its_entry_says(layer: Layer) -> None:
    at_once, later = graph()
    assert at_once[layer.name] == layer.imports
    assert later[layer.name] - layer.imports == layer.later


def test_every_module_is_in_a_layer() -> None:
    at_once, later = graph()
    assert set(at_once) | set(later) <= {layer.name for layer in layers()}


@pytest.mark.parametrize("name", [*(layer.name for layer in layers() if layer.pure), *pure_modules()])
def test_pure_code_imports_nothing_that_does_io(name: str) -> None:
    place = ROOT / name
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    assert files
    for file in files:
        found = {entry.module for entry in imports_of(file) if entry.module.split(".")[0] != "tidelog"}
        assert not {name for name in found if name.removesuffix(".abc") not in PURE_LIBRARIES}, file


@pytest.mark.parametrize("layer", [layer for layer in layers() if layer.pure], ids=lambda layer: layer.name)
def test_a_pure_layer_imports_only_pure_layers(layer: Layer) -> None:
    assert layer.imports | layer.later <= {other.name for other in layers() if other.pure}


def test_only_one_method_imports_upwards_and_only_when_it_is_called() -> None:
    """`Table.compact` is where users look for it, and its code is the daemon's."""
    names = [layer.name for layer in layers()]
    up = {
        (layer.name, other)
        for layer in layers()
        for other in layer.later
        if names.index(other) > names.index(layer.name)
    }
    assert up == {("log/upkeep", "compaction_daemon/compaction"), ("log/upkeep", "compaction_daemon/planning")}


def test_what_table_compact_runs_does_not_import_the_table() -> None:
    """So there is no circle: what opens a table, or a whole daemon, builds on it."""
    called = [found for found in imports_of(ROOT / "log" / "upkeep.py") if found.later]
    rest = [module for found in called for module in modules_of(found) if module.startswith("tidelog.compaction")]
    seen: set[str] = set()
    assert rest
    while rest:
        module = rest.pop()
        if module in seen:
            continue
        seen.add(module)
        place = ROOT.joinpath(*module.split(".")[1:])
        for found in imports_of(place / "__init__.py" if place.is_dir() else place.with_suffix(".py")):
            if not found.later and found.module.startswith("tidelog."):
                assert "Table" not in found.names, f"{module} imports Table"
                rest += modules_of(found)
    assert "tidelog.log.table" not in seen


def test_the_table_of_layers_in_the_docs_is_made_from_the_data() -> None:
    page = layers_table.PAGE.read_text()
    assert "<!-- made: layers -->" in page
    assert layers_table.rewritten(page) == page, "run `python -m scripts.layers_table`"


def test_the_lists_of_layers_are_made_from_the_code() -> None:
    text = layers_table.DATA.read_text()
    assert layers_table.brought_up_to_date(text) == text, "run `python -m scripts.layers_table`"


def test_other_packages_enter_the_log_by_its_open_modules() -> None:
    found = real_doors({layer.name for layer in layers()})
    assert {name: doors for name, doors in found.items() if doors} == {
        layer.name: set(layer.doors) for layer in layers() if layer.doors
    }


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_modules_are_short() -> None:
    long = {
        str(file.relative_to(ROOT)): count
        for file in python_files(*EVERYTHING)
        if (count := file.read_text().count("\n")) > MAX_MODULE_LINES
    }
    assert not long, "look for the second idea in them"


def test_functions_are_short() -> None:
    long = {
        f"{name}:{node.lineno} {node.name}": lines
        for name, tree in parsed(*EVERYTHING)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_public_name_is_defined_once() -> None:
    places = defaultdict(list)
    for name, tree in parsed(*PACKAGES):
        for public in _defined(tree):
            places[public].append(name)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def _defined(tree: ast.Module) -> Iterator[str]:
    """The public names that a module defines at its top level."""
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        yield from (name for name in names if not name.startswith("_"))


def test_no_package_uses_private_names_of_another() -> None:
    for file in python_files(*PACKAGES):
        package = file.relative_to(ROOT).parts[0]
        for found in imports_of(file):
            if found.module.startswith("tidelog.") and found.module.split(".")[1] != package:
                private = [name for name in (*found.module.split("."), *found.names) if re.match(r"_[^_]", name)]
                assert not private, f"{file} imports {found.module}: {private}"


@pytest.mark.parametrize(
    "folder", sorted({file.parent for file in python_files(*PACKAGES)}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_docstring_of_a_package_names_its_modules(folder: Path) -> None:
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    if folder.name != "commands":  # whose modules are named as the commands
        assert {name for name in modules if f"`{name}`" not in doc} == set()
    assert set(re.findall(r"^- `(\w+)`", doc, re.MULTILINE)) <= modules | packages


@pytest.mark.parametrize("package", PUBLIC)
def test_a_public_name_is_there_and_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert list(module.__all__) == sorted(
        module.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    ), "sort __all__"
    for name in module.__all__:
        found = getattr(module, name)
        # A dataclass without a docstring gets its signature as one.
        written = found.__doc__ and not found.__doc__.startswith(f"{name}(")
        assert isinstance(found, str) or written, f"{package}.{name} has no docstring"


# --- dependencies ----------------------------------------------------------------------------------------------------


def _declared(*names: str) -> set[str]:
    """The packages that every install has, and those of extras or dependency groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    more = project["project"]["optional-dependencies"] | project["dependency-groups"]
    wanted = [*project["project"]["dependencies"]]
    for name in names:
        wanted += more[name]
    return {re.split(r"[\s<>=\[!~;]", text)[0].lower().replace("_", "-") for text in wanted}


CLOUDS = ("s3", "gcs", "azure")


@pytest.mark.parametrize(
    ("folders", "with_these"),
    [
        (("log",), CLOUDS),
        (("cli", "compaction_daemon"), ()),
        (("streaming",), ("spark", "postgres")),
        (EVERYTHING, ("dev", "spark", "kafka", *CLOUDS)),
    ],
    ids=["log", "cli and daemon", "streaming", "all"],
)
def test_every_imported_package_is_declared(folders: tuple[str, ...], with_these: tuple[str, ...]) -> None:
    """Also what a function imports. Without extras, tidelog brings no Spark and no pandas."""
    own = {*EVERYTHING, "tidelog", "_typeshed"}
    names = {found.module.split(".")[0] for file in python_files(*folders) for found in imports_of(file)}
    providers = packages_distributions()
    declared = _declared(*with_these)
    for name in sorted(names - own - set(sys.stdlib_module_names)):
        distributions = {found.lower().replace("_", "-") for found in providers.get(name, [name])}
        assert distributions & declared, (
            f"{name} comes from {sorted(distributions)}, which pyproject.toml does not name"
        )

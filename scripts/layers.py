"""The layers of the packages from layers.toml, and the actual imports of the code."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("log", "streaming", "compaction_daemon", "cli")


@dataclass(frozen=True)
class Layer:
    name: str
    about: str
    imports: frozenset[str]
    later: frozenset[str] = frozenset()
    pure: bool = False
    doors: frozenset[str] = frozenset()
    """The modules that other packages may import; `.` is the layer itself."""


@dataclass(frozen=True)
class Import:
    """An import of a file. `later` if it is inside a function, or for type checkers only."""

    file: Path
    module: str
    names: tuple[str, ...]
    later: bool


def layers() -> list[Layer]:
    found = tomllib.loads((ROOT / "layers.toml").read_text())["layer"]
    return [
        Layer(
            entry["name"],
            entry["about"],
            frozenset(entry["imports"]),
            frozenset(entry.get("later", ())),
            entry.get("pure", False),
            frozenset(entry.get("open", ())),
        )
        for entry in found
    ]


def pure_modules() -> list[str]:
    """Folders and modules that import nothing that does I/O, though they are in layers that do."""
    found: list[str] = tomllib.loads((ROOT / "layers.toml").read_text())["pure_modules"]
    return found


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(file: Path) -> ast.Module:
    """The syntax tree of a file, which the callers leave as it is."""
    return ast.parse(file.read_text())


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    """The imports of a file. Those for type checkers only count as `later`."""
    return tuple(_imports(tree_of(file), file, later=False))


def _imports(node: ast.AST, file: Path, *, later: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            yield Import(file, child.module, tuple(alias.name for alias in child.names), later)
        elif isinstance(child, ast.Import):
            yield from (Import(file, alias.name, (), later) for alias in child.names)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            )
            yield from _imports(child, file, later=later or inside)


def layer_of(module: str, known: set[str]) -> str:
    """The layer of a module of `tidelog`: the longest name in layers.toml that it begins with; "" for the root."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in known:
            return "/".join(parts[:length])
    return ""


def real_imports(known: set[str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The layers that each layer imports: when it is imported, and when its functions are called."""
    at_once: dict[str, set[str]] = defaultdict(set)
    later: dict[str, set[str]] = defaultdict(set)
    for file in python_files(*PACKAGES):
        module = ".".join(["tidelog", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        here = layer_of(module, known)
        for found in imports_of(file):
            if found.module.split(".")[0] != "tidelog":
                continue
            targets = {layer_of(f"{found.module}.{name}", known) for name in found.names} or {
                layer_of(found.module, known)
            }
            # `__version__` is all that may be taken from the root, which the shipped code otherwise lies below.
            if found.module == "tidelog" and found.names == ("__version__",):
                continue
            (later if found.later else at_once)[here] |= targets - {here}
    return at_once, later


def modules_of(found: Import) -> set[str]:
    """The modules that an import of tidelog's names: `from a.b import c` means `a.b.c` if that is a module."""
    candidates = {f"{found.module}.{name}" for name in found.names}
    modules = {name for name in candidates if _is_module(name)}
    return modules | ({found.module} if len(modules) < len(candidates) or not candidates else set())


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split(".")[1:])
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def real_doors(known: set[str]) -> dict[str, set[str]]:
    """The modules of each layer of the log that other packages import; `.` is the layer itself."""
    doors: dict[str, set[str]] = defaultdict(set)
    for file in python_files(*(package for package in PACKAGES if package != "log")):
        for found in imports_of(file):
            for module in modules_of(found) if found.module.startswith("tidelog.log") else ():
                layer = layer_of(module, known)
                doors[layer].add("/".join(module.split(".")[1:]).removeprefix(layer).removeprefix("/") or ".")
    return doors

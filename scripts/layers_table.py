"""Bring the lists of layers.toml up to date with the imports of the code, and docs/layers.md with layers.toml.

    python -m scripts.layers_table

The order of the layers, and what is said about them, stays as it is. An import that goes up is not taken in: the test
`tests/test_tidy.py` refuses it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from scripts.layers import ROOT, Layer, layers, real_doors, real_imports

PAGE = ROOT / "docs" / "layers.md"
DATA = ROOT / "layers.toml"
_PART = re.compile(r"<!-- made: layers -->\n.*?<!-- end -->", re.DOTALL)
_WIDTH = 120


def rewritten(text: str) -> str:
    """The page with its list made from layers.toml. The text around the list stays the same."""
    entries = "\n".join(_entry(layer) for layer in layers())
    return _PART.sub(lambda _: f"<!-- made: layers -->\n\n{entries}\n\n<!-- end -->", text)


def _entry(layer: Layer) -> str:
    order = [other.name for other in layers()]
    imports = [f"`{name}`" for name in order if name in layer.imports]
    imports += [f"`{name}` (when called)" for name in order if name in layer.later]
    about = layer.about + (" Pure." if layer.pure else "")
    text = f"- `{layer.name}`: {about}" + (f" Imports {', '.join(imports)}." if imports else "")
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def brought_up_to_date(text: str) -> str:
    """The text of layers.toml with the imports and doors that the code has."""
    known = {layer.name for layer in layers()}
    at_once, later = real_imports(known)
    doors = real_doors(known)
    head, *_ = text.partition("[[layer]]")
    entries = []
    for layer in layers():
        name = layer.name
        about = layer.about.replace('"', r"\"")
        lines = ["[[layer]]", f'name = "{name}"', f'about = "{about}"', _list("imports", at_once[name])]
        lines += [_list("later", more)] if (more := later[name] - at_once[name]) else []
        lines += ["pure = true"] if layer.pure else []
        lines += [_list("open", doors[name])] if doors[name] else []
        entries.append("\n".join(lines))
    return head + "\n\n".join(entries) + "\n"


def _list(key: str, values: Iterable[str]) -> str:
    texts = [f'"{value}"' for value in sorted(values)]
    line = f"{key} = [{', '.join(texts)}]"
    if len(line) <= _WIDTH:
        return line
    filled = textwrap.wrap(", ".join(texts) + ",", _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{key} = [", *(f"    {part}" for part in filled), "]"])


if __name__ == "__main__":
    DATA.write_text(brought_up_to_date(DATA.read_text()))
    PAGE.write_text(rewritten(PAGE.read_text()))

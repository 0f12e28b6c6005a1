"""Write the list of layers in docs/architecture.md from layers.toml: `python -m scripts.layers_table`."""

from __future__ import annotations

import re
import textwrap

from scripts.layers import ROOT, Layer, layers

PAGE = ROOT / "docs" / "architecture.md"
_PART = re.compile(r"<!-- made: layers -->\n.*?<!-- end -->", re.DOTALL)


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
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

"""Write the table of layers in docs/architecture.md from layers.toml: `python -m scripts.layers_table`."""

from __future__ import annotations

import re

from scripts.layers import ROOT, Layer, layers

PAGE = ROOT / "docs" / "architecture.md"
_PART = re.compile(r"<!-- made: layers -->\n.*?<!-- end -->", re.DOTALL)


def rewritten(text: str) -> str:
    """The page with its table made from layers.toml. The text around the table stays the same."""
    rows = [_row(layer) for layer in layers()]
    table = "\n".join(["| layer | what is in it | imports |", "| --- | --- | --- |", *rows])
    return _PART.sub(lambda _: f"<!-- made: layers -->\n{table}\n<!-- end -->", text)


def _row(layer: Layer) -> str:
    order = [other.name for other in layers()]
    imports = [f"`{name}`" for name in order if name in layer.imports]
    imports += [f"`{name}` (when called)" for name in order if name in layer.later]
    about = layer.about + (" Pure." if layer.pure else "")
    return f"| `{layer.name}` | {about} | {', '.join(imports)} |"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

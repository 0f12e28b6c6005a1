"""The page: its static files, and the same page as one file with a report in it.

The page gets its data as JSON and puts every value into the document as text, never as markup. Its program is made of
the files in `page/program/`, which share one scope.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tidelog.compaction_daemon.observing.safe_json import json_bytes

_STYLE, _CHARTS, _PROGRAM = "page.css", "vendor/chart.umd.min.js", "page.js"
# In any order but for the last one, which starts the program.
_PROGRAM_PARTS = (
    *("document", "numbers", "charts", "tables", "timeline", "throughput", "consumers", "plan", "conflicts"),
    *("refusals", "sizes", "settings", "work", "table", "main"),
)
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

# What the served page may load: its own files and its own data, and nothing from elsewhere.
SERVED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page as it is served."""

    content: bytes
    content_type: str
    etag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """The files of the served page, by the path of their URL."""
    found = {"/": _static("index.html")}
    for name in (_STYLE, _CHARTS, _PROGRAM, "icon.svg"):
        found[f"/{name}"] = _static(name)
    return found


def report_page(report: Mapping[str, Any]) -> bytes:
    """One HTML file with everything in it: the page and a report (`TableReport.to_dict`). It makes no request."""
    style, charts, program = _read(_STYLE).decode(), _read(_CHARTS).decode(), _read_program().decode()
    for script in (charts, program):
        if "</script" in script.lower() or "<!--" in script:
            raise AssertionError("a script of the page could end its own element")
    policy = (
        f"default-src 'none'; script-src {_hash(charts)} {_hash(program)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json_bytes(dict(report)).decode()
    parts = {
        '<link rel="icon" href="icon.svg">': "",
        '<link rel="stylesheet" href="page.css">': f"<style>{style}</style>",
        '<script src="vendor/chart.umd.min.js" defer></script>': "",
        '<script src="page.js" defer></script>': "",
        "</head>": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n</head>',
        "</body>": (
            f'<script type="application/json" id="report">{data}</script>\n'
            f"<script>{charts}</script>\n<script>{program}</script>\n</body>"
        ),
    }
    page = _read("index.html").decode()
    for old, new in parts.items():
        before, found, after = page.partition(old)
        if not found:
            raise AssertionError(f"index.html has no {old}")
        page = f"{before}{new}{after}"
    return page.encode()


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _static(name: str) -> StaticFile:
    content = _read_program() if name == _PROGRAM else _read(name)
    kind = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    return StaticFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _read_program() -> bytes:
    parts = b"\n".join(_read(f"program/{name}.js") for name in _PROGRAM_PARTS)
    return b'(() => {\n"use strict";\n' + parts + b"})();\n"


def _read(name: str) -> bytes:
    return resources.files(__package__ or "").joinpath("page", *name.split("/")).read_bytes()

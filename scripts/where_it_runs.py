"""Try each capability on each Spark, and make the README's table of the answers.

make where-it-runs                          runs all, and writes docs/reference/where-it-runs.json and the table
python -m scripts.where_it_runs --table     makes the table again from that file

Each Spark has an environment of its own, as `make test-spark` makes it. The cluster is a standalone one on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ANSWERS = ROOT / "docs" / "reference" / "where-it-runs.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "installation.md")
START, END = "<!-- where it runs -->\n", "<!-- end -->"
RELEASES = ("4.0", "4.1", "4.2", "4.3")
TIMEOUT_S = 1800

Answer = dict[str, Any]


def tried(python: Path, session: str, folder: str, master: str = "local[2]") -> Iterator[Answer]:
    """The answers of one run."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(python), "-m", "tests.streaming.where_it_runs", "--session", session, "--master", master, folder]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S
    )
    for line in done.stdout.splitlines():
        yield {**json.loads(line), "master": master.partition(":")[0]}


def all_answers(releases: Sequence[str]) -> Iterator[Answer]:
    for release in releases:
        python = ROOT / ".venvs" / f"spark-{release}" / "bin" / "python"
        for session in ("classic", "connect"):
            with tempfile.TemporaryDirectory() as folder:
                yield from tried(python, session, folder)
    from tests.cluster.standalone import cluster_of_two  # noqa: PLC0415 - it needs PySpark, which the table does not

    with tempfile.TemporaryDirectory() as folder, cluster_of_two(Path(folder)) as cluster:
        yield from tried(ROOT / ".venv" / "bin" / "python", "classic", folder, cluster.url)


def table(answers: Iterable[Answer]) -> str:
    """The answers as a Markdown table: a row for each capability, a column for each Spark."""
    cells: dict[str, dict[str, dict[str, str]]] = {}
    columns: list[str] = []
    for answer in answers:
        column = answer["spark"] if answer["master"].startswith("local") else f"{answer['spark']}, cluster"
        if column not in columns:
            columns.append(column)
        cells.setdefault(answer["what"], {}).setdefault(column, {})[answer["session"]] = answer["outcome"]
    lines = ["| Spark | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for what, found in cells.items():
        lines.append(f"| {what} | " + " | ".join(cell(found.get(column, {})) for column in columns) + " |")
    return "\n".join(lines) + "\n"


def cell(outcomes: dict[str, str]) -> str:
    """`yes` if all kinds of sessions that were tried can do it, else the kinds that can."""
    able = [session for session, outcome in outcomes.items() if outcome == "ok"]
    if outcomes and len(able) == len(outcomes):
        return "yes"
    return " and ".join(able) + " only" if able else "no"


def with_table(page: str, made: str) -> str:
    """The page with this table between its marks."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page lacks the marks {START.strip()} and {END}")
    return before + start + made + end + after


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true", help="only make the table again")
    parser.add_argument("releases", nargs="*", default=RELEASES)
    given = parser.parse_args()
    if not given.table:
        answers = []
        for answer in all_answers(given.releases):
            print(json.dumps(answer)[:300], flush=True)
            answers.append(answer)
        ANSWERS.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    made = table(map(json.loads, ANSWERS.read_text().splitlines()))
    for page in PAGES:
        page.write_text(with_table(page.read_text(), made))
    return 0


if __name__ == "__main__":
    sys.exit(main())

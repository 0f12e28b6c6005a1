"""The check of a table after `benchmarks.conflict`: its rows, and files that no commit names."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from benchmarks import loops
from benchmarks.loops import Tally


@dataclass(frozen=True, slots=True)
class Audit:
    """The rows of a table: how many there are, are missing, are extra, and have a wrong value."""

    rows: int
    lost: int
    too_many: int
    wrong: int

    @property
    def differences(self) -> int:
        """The number of missing, extra and wrong rows."""
        return self.lost + self.too_many + self.wrong


def audit(rows: pa.Table, tallies: Mapping[str, Tally]) -> Audit:
    """Compare the columns k and v of `rows` with the tallies of the loops."""
    expected = expected_values(tallies)
    found = rows["k"].to_numpy()
    unique, first = np.unique(found, return_index=True)
    known = np.array(sorted(expected), dtype=np.int64)
    both = np.isin(unique, known)
    values = rows["v"].to_numpy()[first[both]]
    should = np.array([expected[key] for key in unique[both].tolist()], dtype=np.int64)
    return Audit(
        rows=len(found),
        lost=len(known) - int(both.sum()),
        too_many=len(found) - int(both.sum()),
        wrong=int((values != should).sum()),
    )


def expected_values(tallies: Mapping[str, Tally]) -> dict[int, int]:
    """The expected keys with their values."""
    expected = dict.fromkeys(range(loops.SEED_ROWS), 0)
    for number in tallies["append"].done:
        expected.update(dict.fromkeys(loops.batch_keys(number), 0))
    for key in tallies["update"].done:
        expected[key] += 1
    for key in tallies["delete"].done:
        del expected[key]
    return expected


def newest_version(path: Path) -> int:
    """The version of the newest commit."""
    return max(int(file.stem) for file in _commits(path))


def unnamed_bytes(path: Path) -> int:
    """The size of the parquet files that no commit added: leftovers of failed work."""
    named = _named(path)
    files = (file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts)
    return sum(file.stat().st_size for file in files if str(file.relative_to(path)) not in named)


def _named(path: Path) -> Collection[str]:
    lines = (json.loads(line) for file in _commits(path) for line in file.read_text().splitlines())
    return {unquote(line["add"]["path"]) for line in lines if "add" in line}


def _commits(path: Path) -> list[Path]:
    return [file for file in (path / "_delta_log").glob("*.json") if file.stem.isdigit()]

"""The run as JSON, as a page with its curves in one file, and as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.shared.check import Check
from tests.soak.bounds import Bound
from tests.soak.conductor import Soaked
from tests.soak.flatness import Flatness
from tests.soak.folder import Folder
from tests.soak.settings import Settings

_PAGE = Path(__file__).with_name("report_page.html")
_LIBRARY = Path(__file__).parents[2] / "compaction_daemon/observing/page/vendor/chart.umd.min.js"


@dataclass(frozen=True)
class Report:
    """A run and what was found.

    Attributes:
        settings: What was run.
        soaked: What happened.
        checks: What must be true.
        bounds: The curves with their bounds.
        flatness: The curves that must be flat.
        failure: Why the run ended early; None if it did not.
    """

    settings: Settings
    soaked: Soaked
    checks: Sequence[Check]
    bounds: Sequence[Bound]
    flatness: Sequence[Flatness]
    failure: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the run reached its end, and every check holds."""
        return self.failure is None and all(check.holds for check in self.checks)

    def write(self, folder: Folder) -> None:
        """Write `report.json`, `report.html` and `summary.txt`."""
        content = json.dumps(self.to_dict(), separators=(",", ":"))
        (folder.root / "report.json").write_text(content, encoding="utf-8")
        (folder.root / "summary.txt").write_text(self.summary() + "\n", encoding="utf-8")
        # The data is inside a script element, which any `</script` would end.
        page = _PAGE.read_text(encoding="utf-8").replace("/* DATA */ null", content.replace("<", "\\u003c"))
        page = page.replace("/* LIBRARY */", _LIBRARY.read_text(encoding="utf-8"))
        folder.report.write_text(page, encoding="utf-8")

    def summary(self) -> str:
        """The checks and the most important numbers."""
        commits = self.soaked.sampler.tail.commits
        kinds = Counter(commit.kind or commit.operation for commit in commits)
        verdict = "all checks hold" if self.holds else "FAILED"
        lines = [
            f"soak of {self.settings.minutes:g} minutes, seed {self.settings.seed}: {verdict}",
            f"  {len(commits):,} versions: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}",
            *([f"  FAILED {self.failure}"] if self.failure else []),
            *map(str, self.checks),
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; the curves have a value for each sample."""
        return {
            "settings": asdict(self.settings),
            "properties": {name: str(value) for name, value in self.settings.properties.items()},
            "holds": self.holds,
            "failure": self.failure,
            "seconds": round(self.soaked.seconds, 1),
            "checks": [asdict(check) for check in self.checks],
            "bounds": [asdict(bound) for bound in self.bounds],
            "flatness": [{**asdict(found), "is_flat": found.is_flat} for found in self.flatness],
            "disruptions": [asdict(each) for each in self.soaked.done],
            "commits": Counter(commit.kind or commit.operation for commit in self.soaked.sampler.tail.commits),
            "samples": [sample.to_dict() for sample in self.soaked.sampler.samples],
        }

"""Fetch the page's chart library again: `python -m scripts.vendor_chart`; it needs npm.

To move to another version: change PACKAGES, run this, write the checksums that it prints into PACKAGES and
THIRD-PARTY.md, and look at the page.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.layers import ROOT

FOLDER = ROOT / "compaction_daemon" / "observing" / "page" / "vendor"


@dataclass(frozen=True)
class VendoredFile:
    """A file of an npm package, the name that it gets here, and its SHA-256."""

    package: str
    member: str
    name: str
    sha256: str


PACKAGES = (
    VendoredFile(
        "chart.js@4.6.1",
        "package/dist/chart.umd.min.js",
        "chart.umd.min.js",
        "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2",
    ),
    VendoredFile(
        "chart.js@4.6.1",
        "package/LICENSE.md",
        "chart.js.LICENSE.md",
        "41a84aa2caba645f966a18d9c2056b73e6d3a81d80bc0046bc0011a2634d4cce",
    ),
    # Chart.js's file contains this package; it has no licence of its own inside.
    VendoredFile(
        "@kurkle/color@0.3.2",
        "package/LICENSE.md",
        "kurkle-color.LICENSE.md",
        "2859c50313bad2ba77b081410c477beaf92b60ca13a77a248d89859a6dd6ac81",
    ),
)


def main() -> int:
    """Write the files that have the expected checksums. Returns the number of others."""
    wrong = 0
    for wanted in PACKAGES:
        content = _fetched(wanted)
        found = hashlib.sha256(content).hexdigest()
        if found == wanted.sha256:
            (FOLDER / wanted.name).write_bytes(content)
            print(f"{wanted.name}: written, from {wanted.package}")
        else:
            wrong += 1
            print(f"{wanted.name}: not written; {wanted.package} has the SHA-256 {found}", file=sys.stderr)
    return wrong


def _fetched(wanted: VendoredFile) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, wanted.package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as members:
            member = members.extractfile(wanted.member)
            assert member is not None
            return member.read()


if __name__ == "__main__":
    sys.exit(main())

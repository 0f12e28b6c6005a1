"""The samples of README and guide are run as they stand, in processes of their own, as a newcomer would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def run(sample: str, tmp_path: Path) -> str:
    """What a program prints; it must end well."""
    script = tmp_path / "sample.py"
    script.write_text(sample)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spark
def test_the_sample_of_sink_and_feed_runs(tmp_path: Path) -> None:
    (sample,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert "/tmp/tidelog-readme" in sample
    printed = run(sample.replace("/tmp/tidelog-readme", str(tmp_path / "data")), tmp_path)
    assert "new rows:" in printed
    last = printed.strip().splitlines()[-1]
    assert "'_commit_version', '_commit_timestamp'" in last


@pytest.mark.spark
def test_the_guide_to_writing_a_stream_is_one_program(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "writing-a-stream.md").read_text()
    samples = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert len(samples) >= 10
    printed = run("\n".join(samples).replace("/tmp/tidelog-guide", str(tmp_path / "data")), tmp_path)
    assert "BatchReport(" in printed

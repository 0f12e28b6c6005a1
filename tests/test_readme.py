"""The README's sample is run as it stands, in a process of its own, as a newcomer would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.spark
def test_the_sample_of_sink_and_feed_runs(tmp_path: Path) -> None:
    (sample,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert "/tmp/tidelog-readme" in sample
    script = tmp_path / "sample.py"
    script.write_text(sample.replace("/tmp/tidelog-readme", str(tmp_path / "data")))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "new rows:" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert "'_commit_version', '_commit_timestamp'" in last

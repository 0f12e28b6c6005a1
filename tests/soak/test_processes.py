"""What /proc says about a program and what it started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.shared.child_process import ChildEndedError, ChildProcess
from tests.soak.processes import Processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")


def test_a_program_is_found_below_its_wrapper(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"import time; held = [open('/dev/null') for _ in range(50)]; open({str(ready)!r}, 'w'); time.sleep(60)"
    with ChildProcess("program", [sys.executable, "-c", program], tmp_path) as child:
        assert child.pid is not None
        while not ready.exists():
            child.require_running()
        found = Processes().below(child.pid)
        assert set(found) == {"python"}
        assert len(found["python"].pids) == 1
        assert child.pid not in found["python"].pids
        assert 50 <= found["python"].fds < 100
        assert 2**20 < found["python"].rss_bytes < 2**30
        group = child.pid
    assert not Processes().below(group)


def test_a_program_that_ends_is_waited_for(tmp_path: Path) -> None:
    child = ChildProcess("program", [sys.executable, "-c", "import sys; sys.exit(7)"], tmp_path)
    assert child.exit_code is None
    child.start()
    assert child.wait(30) == 7
    assert child.pid is None


def test_a_program_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    with ChildProcess("program", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path) as child:
        with pytest.raises(ChildEndedError, match="the program did not end within 0 seconds"):
            child.wait(0.05)
        assert child.exit_code is None

"""Shell completion, in bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import PROGRAM
from tidelog import cli

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")


def bash(script: str, home: Path) -> str:
    """What a new bash prints, with `tidelog` in its path."""
    assert BASH
    environment = {**os.environ, "HOME": str(home), "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [BASH, "--norc", "-c", f"{script}\n:"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment,
    )
    assert done.stderr == ""
    return done.stdout


def completions(line: str, home: Path) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    return bash(
        f'eval "$(tidelog --show-completion)"\n'
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        "found=$(complete -p tidelog); function=${found##*-F }; function=${function%% *}\n"
        '$function tidelog; printf "%s\\n" "${COMPREPLY[@]}"',
        home,
    ).split()


def test_commands(tmp_path: Path) -> None:
    assert completions("tidelog com", tmp_path) == ["compact"]
    commands = [name for section in cli.COMMANDS.values() for name in section]
    assert completions("tidelog ", tmp_path) == commands


def test_options_and_their_values(tmp_path: Path) -> None:
    found = completions("tidelog compact --c", tmp_path)
    assert found == ["--cluster-by", "--cluster-order"]
    assert {"--level", "--json", "--help"} <= set(completions("tidelog compact --", tmp_path))
    assert completions("tidelog compact --level m", tmp_path) == ["minor", "major"]
    assert completions("tidelog changes t --mode c", tmp_path) == ["cdc"]
    assert completions("tidelog conflicts --policy s", tmp_path) == ["serializable"]


def test_a_path_is_left_to_the_shell(tmp_path: Path) -> None:
    assert completions("tidelog compact /da", tmp_path) == []
    assert "-o default" in bash("tidelog --show-completion", tmp_path)


def test_install(tmp_path: Path) -> None:
    assert "bash completion installed in" in bash("tidelog --install-completion", tmp_path)
    script = tmp_path / ".bash_completions" / "tidelog.sh"
    assert "complete -o default -F" in script.read_text()
    assert f"source '{script}'" in (tmp_path / ".bashrc").read_text()


def test_completing_a_command_name_loads_no_table(tmp_path: Path) -> None:
    """Loading pyarrow alone takes longer than people wait for a TAB."""
    code = "import sys\nfrom tidelog import cli\ntry:\n cli.main()\nfinally:\n print('pyarrow' in sys.modules)"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "COMP_WORDS": "tidelog com",
        "COMP_CWORD": "1",
        "_TIDELOG_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['tidelog']\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment,
    )
    assert done.stdout.split() == ["compact", "False"]

"""What is installed is what the folders hold."""

import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("log", "streaming", "compaction_daemon")


def modules() -> set[str]:
    return {f"tidelog/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}


def uv() -> str:
    """The uv that set-up found or installed."""
    match = re.search(r"^(?:export )?UV=(\S+)", (ROOT / ".venv" / "env.sh").read_text(), flags=re.MULTILINE)
    assert match
    return match.group(1).strip("'\"")


def test_every_package_is_named() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {str(Path(module).parent).replace("/", ".") for module in modules()}
    assert set(setuptools["packages"]) == packages
    assert set(setuptools["package-dir"]) == packages


def test_the_wheel_holds_every_module(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [uv(), "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert modules() <= names
    assert {f"tidelog/{folder}/py.typed" for folder in FOLDERS} <= names

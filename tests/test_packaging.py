"""What is installed is what the folders hold, under one import root."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "compaction_daemon", "log", "streaming")


def files_of(folder: Path) -> list[Path]:
    """The modules, the Java source that one of them compiles, and the files of the page."""
    page = (path for path in folder.glob("observing/page/**/*") if path.is_file())
    return [*(path for path in folder.rglob("*") if path.suffix in {".py", ".java"}), *page]


def modules() -> set[str]:
    inside = {f"tidelog/{path.relative_to(ROOT)}" for folder in FOLDERS for path in files_of(ROOT / folder)}
    return {"tidelog/__init__.py", *inside}


def uv() -> str:
    """The uv that `make setup` found or installed."""
    match = re.search(r"^(?:export )?UV=(\S+)", (ROOT / ".venv" / "env.sh").read_text(), flags=re.MULTILINE)
    assert match
    return match.group(1).strip("'\"")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    source = tmp_path_factory.mktemp("source")
    for folder in (*FOLDERS, "tidelog"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD-PARTY.md"):
        shutil.copy(ROOT / name, source / name)
    out = source / "dist"
    subprocess.run([uv(), "build", "--quiet", "--out-dir", str(out), str(source)], check=True, timeout=300)
    return out


def test_each_folder_is_linked_under_the_import_root() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "tidelog").iterdir() if path.is_symlink()}
    assert links == {folder: Path("..", folder) for folder in FOLDERS}


def test_the_wheel_holds_every_module_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == modules() | {"tidelog/py.typed"}


def test_the_source_distribution_holds_every_module(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    assert modules() <= names


def test_an_editable_install_is_a_plain_path_that_editors_follow(tmp_path: Path) -> None:
    program = "import tidelog, tidelog.log.table as t; print(tidelog.__file__, t.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    (path,) = (Path(line) for line in (tidelog_path().read_text()).splitlines())
    assert done.stdout.split() == [str(path / "tidelog/__init__.py"), str(path / "tidelog/log/table.py")]


def tidelog_path() -> Path:
    """The file in the environment that names the folder of an editable install."""
    (found,) = Path(sysconfig.get_path("purelib")).glob("__editable__.tidelog-*.pth")
    return found


def test_public_names_come_from_one_root_and_do_not_load_spark(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import tidelog\n"
        "assert tidelog.__file__.startswith(sys.path[0]), tidelog.__file__\n"
        "from tidelog import Daemon, Table\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert set(tidelog.__all__) <= set(dir(tidelog))\n"
        "from tidelog import *\n"
        "assert not [name for name in tidelog.__all__ if name not in globals()]\n"
        "assert capture.debezium and capture is tidelog.streaming.capture\n"
        "print(__version__, Sink.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.1.0", "tidelog.streaming.sink.sink"]

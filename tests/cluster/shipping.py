"""How tidelog gets to a cluster: a Python for the workers that lacks it, and what is shipped to that Python."""

from __future__ import annotations

import re
import shutil
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import tidelog

CHECKOUT = Path(tidelog.__file__).parents[1]


def python_without_tidelog(folder: Path) -> Path:
    """A Python with the third-party packages of this environment, but not with tidelog.

    This environment's packages come in through a `.pth` file. Python does not read further `.pth` files there, so it
    does not find the editable install of tidelog, which is one.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


def zipped(folder: Path) -> Path:
    """The package as `--py-files` takes it, made as the guide says: `python -m zipfile -c tidelog.zip tidelog`."""
    archive = folder / "tidelog.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        for file in package_files():
            content.write(CHECKOUT / file, file)
    return archive


def packed_folder(folder: Path) -> Path:
    """The package as `--archives` takes it: a folder with it, packed with tar and gzip."""
    archive = folder / "tidelog.tar.gz"
    with tarfile.open(archive, "w:gz") as content:
        for file in package_files():
            content.add(CHECKOUT / file, file)
    return archive


def package_files() -> list[str]:
    """The package's files by their place below the import root, which links to the folders of the checkout."""
    root = CHECKOUT / "tidelog"
    own = [path for path in root.iterdir() if path.is_file()]
    linked = [path for entry in root.iterdir() if entry.is_dir() for path in entry.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(CHECKOUT)) for path in own + linked if path.suffix != ".pyc")


def packed_environment(folder: Path) -> Path:
    """An environment with tidelog and what it needs, in `folder`, and packed beside it as venv-pack does.

    Only PySpark is missing, since executors have it from their own Spark. It needs pandas.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in required("tidelog") | {"pandas"} | required("pandas"):
        for file in metadata.files(name) or ():
            source = Path(str(file.locate()))
            if source.is_relative_to(sysconfig.get_path("purelib")) and source.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, packages / file)
    for path in package_files():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / path, packages / path)
    archive = folder.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as content:
        content.add(folder, ".")
    return archive


def required(name: str) -> set[str]:
    """The distributions that one needs without extras, directly and through others, as far as they are installed."""
    installed = {_normal(found.name) for found in metadata.distributions()}
    found: set[str] = set()
    left = [name]
    while left:
        for text in metadata.requires(left.pop()) or ():
            needed = _normal(re.split(r"[^\w.-]", text, maxsplit=1)[0])
            if "extra ==" not in text and needed in installed - found:
                found.add(needed)
                left.append(needed)
    return found


def _normal(name: str) -> str:
    """A distribution's name as its canonical spelling has it."""
    return re.sub(r"[-_.]+", "-", name).lower()

"""Jars that a Spark of the tests needs beyond its own, fetched once a machine by the Ivy that PySpark ships."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

CACHE = Path.home() / ".cache" / "tidelog-tests"
FETCH_TIMEOUT_S = 420

_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidelog" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class Artifact:
    """One artifact of Maven Central; with `alone` none of those that it depends on. A classifier names another jar."""

    organisation: str
    name: str
    version: str
    alone: bool = False
    classifier: str = ""

    def __str__(self) -> str:
        wanted = "master" if self.alone else "runtime,master"
        of = f'org="{self.organisation}" name="{self.name}" rev="{self.version}" conf="default->{wanted}"'
        if not self.classifier:
            return f"<dependency {of}/>"
        jar = f'<artifact name="{self.name}" type="jar" ext="jar" m:classifier="{self.classifier}"/>'
        return f"<dependency {of}>{jar}</dependency>"

    @property
    def jar(self) -> str:
        """The name of its file."""
        parts = [self.name, self.version, self.classifier]
        return "-".join(part for part in parts if part) + ".jar"


def jars(folder: str, artifacts: Sequence[Artifact]) -> list[Path]:
    """The artifacts' jars and those that they need beyond PySpark's own, in this folder of the cache.

    The folder's name must change with the versions. Raises AssertionError with Ivy's own words where they cannot be
    fetched.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / folder
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(target, artifacts)
    known = {_without_version(jar) for jar in spark_jars().glob("*.jar")}
    named = {each.jar for each in artifacts}
    return sorted(jar for jar in target.glob("*.jar") if jar.name in named or _without_version(jar) not in known)


def spark_jars() -> Path:
    """The folder of PySpark's own jars."""
    return Path(pyspark.__file__).parent / "jars"


def java() -> str:
    """The command that starts a JVM."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _fetch(target: Path, artifacts: Sequence[Artifact]) -> None:
    """Retrieve into a folder beside, which takes its name when it is complete."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    module = partial / "ivy.xml"
    module.write_text(_MODULE.format(dependencies="".join(map(str, artifacts))))
    (ivy,) = spark_jars().glob("ivy-*.jar")
    command = [java(), "-jar", str(ivy), "-cache", str(CACHE / "ivy"), "-ivy", str(module), "-confs", "default"]
    done = subprocess.run(
        [*command, "-retrieve", f"{partial}/[artifact]-[revision](-[classifier]).[ext]"],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    wanted = [partial / each.jar for each in artifacts]
    complete = done.returncode == 0 and all(jar.exists() for jar in wanted)
    names = ", ".join(each.name for each in artifacts)
    assert complete, f"{names} cannot be fetched from Maven: {(done.stdout + done.stderr)[-3000:]}"
    partial.rename(target)


def _without_version(jar: Path) -> str:
    return re.sub(r"-\d[\w.+-]*\.jar$", "", jar.name)

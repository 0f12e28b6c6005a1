"""What has to be on the machine before a stream can run: Java and a Spark that is new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from tidelog.log.errors import PrerequisiteError
from tidelog.log.internals import environment

# Python data sources with admission control and Trigger.AvailableNow came with this version.
MINIMUM_SPARK = (4, 2)
MINIMUM_JAVA = 17
_JAVA_TIMEOUT_S = 30


def require_spark(version: str | None = None) -> None:
    """Raise PrerequisiteError where PySpark (or the session's `version` of Spark) is older than 4.2."""
    found = version or pyspark.__version__
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < MINIMUM_SPARK:
        wanted = ".".join(map(str, MINIMUM_SPARK))
        raise PrerequisiteError(f"Spark {found} is too old", advice=f"install pyspark {wanted} or later")


def require_java() -> int:
    """The major version of the Java that Spark would start. Raises PrerequisiteError where there is none from 17 on."""
    java = _find_java()
    if java is None:
        raise PrerequisiteError("no Java was found", advice=_how_to_install())
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, without a shell
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PrerequisiteError(f"{java} does not run: {error}", advice=_how_to_install()) from error
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    # Java 8 and older call themselves 1.8.
    major = int(match.group(2) if match.group(1) == "1" and match.group(2) else match.group(1)) if match else 0
    if major < MINIMUM_JAVA:
        raise PrerequisiteError(f"{java} is Java {major}, which is too old", advice=_how_to_install())
    return major


def _find_java() -> str | None:
    """The program that Spark's launcher takes: JAVA_HOME's, or else the one on PATH."""
    home = environment("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _how_to_install() -> str:
    commands = {
        "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
        "dnf": "sudo dnf install -y java-17-openjdk-headless",
        "brew": "brew install openjdk@17",
    }
    command = next((line for tool, line in commands.items() if shutil.which(tool)), None)
    known = f"run: {command}" if command else "install a Java 17 or later with the system's package manager"
    return f"{known}; or set JAVA_HOME to one that is there"

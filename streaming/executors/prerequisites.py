"""What the machine needs before a stream can run: Java, and a recent Spark."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyspark
from pyspark import SparkContext

from tidelog.log.errors import PrerequisiteError
from tidelog.log.system import environment
from tidelog.streaming import spark_versions

MINIMUM_SPARK = spark_versions.OLDEST
MINIMUM_JAVA = 17
_JAVA_TIMEOUT_S = 30
# spark-submit sets the first: its JVM has started this process. The others mean Spark Connect, whose JVM is remote.
_JVM_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")


def require_spark(version: str | None = None) -> None:
    """Check that Spark is 4.0 or later.

    Args:
        version: The version of a session's Spark, such as `4.2.0`; by default that of the installed PySpark.

    Raises:
        PrerequisiteError: Spark is older.
    """
    found = version or pyspark.__version__
    if spark_versions.version_of(found) < MINIMUM_SPARK:
        wanted = ".".join(map(str, MINIMUM_SPARK))
        raise PrerequisiteError(f"Spark {found} is too old", advice=f"install pyspark {wanted} or later")


def require_java() -> int:
    """Check that Spark can start Java 17 or later: the one in `JAVA_HOME`, or else the one on `PATH`.

    Returns:
        The major version of that Java, such as 17.

    Raises:
        PrerequisiteError: Java is missing, too old, or does not run. The error shows the command that installs it.
    """
    java = _find_java()
    if java is None:
        raise PrerequisiteError("Java was not found", advice=_how_to_install())
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, without a shell
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PrerequisiteError(f"{java} does not run: {error}", advice=_how_to_install()) from error
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        raise PrerequisiteError(f"{java} does not report its version", advice=_how_to_install())
    # Java 8 and older report 1.8 and so on.
    major = int(match.group(2) if match.group(1) == "1" and match.group(2) else match.group(1))
    if major < MINIMUM_JAVA:
        raise PrerequisiteError(f"{java} is Java {major}, which is too old", advice=_how_to_install())
    return major


def require_jvm() -> None:
    """Raise what `require_java` raises, unless Spark's JVM already runs or is elsewhere.

    Without Java, PySpark itself only says that its gateway process exited.
    """
    if SparkContext._gateway is None and not any(map(environment, _JVM_ELSEWHERE)):  # noqa: SLF001 - no public way
        require_java()


def _find_java() -> str | None:
    """The program that Spark's launcher takes."""
    home = environment("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _how_to_install() -> str:
    commands = {
        "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
        "dnf": "sudo dnf install -y java-17-openjdk-headless",
        "brew": 'brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"',
    }
    command = next((line for tool, line in commands.items() if shutil.which(tool)), None)
    install = f"run: {command}" if command else "install Java 17 or later with the system's package manager"
    return f"{install}; or set JAVA_HOME to a Java that is installed"

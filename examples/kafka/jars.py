"""The jars that PySpark lacks: a Kafka broker, and Spark's Kafka connector. Downloaded from Maven once per machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tidelog.streaming import require_java

_FETCH_TIMEOUT_S = 600
_JARS = "[artifact]-[revision].[ext]"


class FetchError(Exception):
    """A download failed; the text says of what and why."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Maven artifact with its dependencies, or `alone`; `without` names one dependency to leave out."""

    organisation: str
    name: str
    revision: str
    alone: bool = False
    without: str | None = None

    def to_xml(self) -> str:
        """The dependency in Ivy's format."""
        exclude = "" if self.without is None else f'<exclude module="{self.without}"/>'
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.revision}" conf="default->default" '
            f'transitive="{str(not self.alone).lower()}">{exclude}</dependency>'
        )


_TOKENS = "spark-token-provider-kafka-0-10_2.13"
BROKER = (
    Artifact("org.apache.kafka", "kafka_2.13", "4.1.0"),
    # Without it a broker logs nothing, not even why it does not start.
    Artifact("org.slf4j", "slf4j-simple", "1.7.36", alone=True),
)
CONNECTOR = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__, without=_TOKENS),
    # The connector depends on its own version of it, which Maven lacks for some Spark versions; this one works as well.
    Artifact("org.apache.spark", _TOKENS, "4.0.0", alone=True),
)


def broker_jars() -> list[Path]:
    """The jars of Apache Kafka. Raises FetchError."""
    return jars(BROKER)


def connector_jars() -> list[Path]:
    """The jars that Spark needs for `format("kafka")` besides its own. Raises FetchError."""
    own = {_artifact(jar) for jar in _spark_jars().glob("*.jar")}
    return [jar for jar in jars(CONNECTOR) if _artifact(jar) not in own]


def java() -> str:
    """The `java` program that Spark would start. Raises PrerequisiteError if there is none that is new enough."""
    require_java()
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def cache() -> Path:
    """The folder of downloaded jars."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog"


def jars(artifacts: Sequence[Artifact]) -> list[Path]:
    """The jars of the artifacts. A folder with its final name is complete; only one process at a time downloads."""
    first = artifacts[0]
    folder = cache() / f"{first.name}-{first.revision}"
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(artifacts, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Download into a `.partial` folder and rename it when it is complete."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    wanted = partial / "ivy.xml"
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="tidelog" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(artifact.to_xml() for artifact in artifacts)}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    (ivy,) = _spark_jars().glob("ivy-*.jar")
    command = [java(), "-jar", str(ivy), "-cache", str(cache() / "ivy"), "-ivy", str(wanted), "-confs", "default"]
    name = f"{artifacts[0].name} {artifacts[0].revision}"
    try:
        done = subprocess.run(
            [*command, "-retrieve", str(partial / _JARS)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"could not download {name} from Maven within {_FETCH_TIMEOUT_S} seconds") from error
    missing = [each for each in artifacts if not (partial / f"{each.name}-{each.revision}.jar").exists()]
    if done.returncode or missing:
        raise FetchError(f"could not download {name} from Maven: {(done.stdout + done.stderr).strip()[-2000:]}")
    wanted.unlink()
    partial.rename(folder)


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _artifact(jar: Path) -> str:
    """The name of a jar without its version: `kafka-clients` for `kafka-clients-3.9.2.jar`."""
    words = jar.stem.split("-")
    first_number = next((n for n, word in enumerate(words) if n and word[:1].isdigit() and "." in word), len(words))
    return "-".join(words[:first_number])

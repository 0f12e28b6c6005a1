"""The Java classes of this folder: compiled in Spark's JVM once, and kept for the next process.

To compile them takes seconds, more than Spark's own start. The classes are kept in a jar below `$XDG_CACHE_HOME`, or
`~/.cache`, whose name says what they were compiled from and for: the sources, the Spark and the Java. A jar that is
damaged, missing or not this user's own costs only the time to compile, and so does a folder that cannot be written.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidelog.log.system import environment, logger

_LOGGER = logger(__name__)

# Jars of other versions of Spark, Java and tidelog; those used last are kept.
_KEPT_JARS = 8
_OFFERS = "tidelog-service-"
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class JvmClasses:
    """The classes of tidelog in one JVM.

    Args:
        jvm: The JVM, as py4j shows it.
        loader: Its loader of classes, which takes further places. By default the one that `spark-submit`, which starts
            PySpark's JVM, gives to all threads.
        jar: Where compiled classes are kept, or None.
    """

    def __init__(self, jvm: Any, loader: Any = None, jar: Path | None = None) -> None:
        self._jvm = jvm
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader() if loader is None else loader
        self._jar = jar
        self._asked_jar = False
        self._compiled: dict[str, bytes] = {}

    def load(self, name: str, text: str | None = None) -> Any:
        """A class. It is compiled from a text, or from the file of its name, unless the JVM or the jar has it."""
        with suppress(Py4JError):
            return self._loader.loadClass(name)
        if not self._asked_jar:
            self._asked_jar = True
            self._take_kept()
            with suppress(Py4JError):
                return self._loader.loadClass(name)
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._loader)
        compiler.cook(_source(name) if text is None else text)
        made = {str(each): bytes(content) for each, content in dict(compiler.getBytecodes()).items()}
        folder = Path(tempfile.mkdtemp(prefix="tidelog-"))
        try:
            for each, content in made.items():
                place = folder / _entry(each)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            self._add(folder)
            # All of them now: the folder is removed.
            for each in made:
                self._loader.loadClass(each)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._compiled.update(made)
        return self._loader.loadClass(name)

    def offer(self, service: str, name: str) -> None:
        """Let Java's ServiceLoader find a class. The file that says so stays for as long as this process."""
        if any(_OFFERS in url.toString() for url in self._loader.getURLs()):
            return
        folder = Path(tempfile.mkdtemp(prefix=_OFFERS))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        place = folder / "META-INF" / "services" / service
        place.parent.mkdir(parents=True)
        place.write_text(f"{name}\n", encoding="utf-8")
        self._add(folder)

    def keep(self) -> None:
        """Keep what was compiled, beside what the jar has. The jar is written whole or not at all."""
        if self._jar is None or not self._compiled:
            return
        classes = (_kept(self._jar) or {}) | {_entry(name): content for name, content in self._compiled.items()}
        self._compiled = {}
        try:
            self._jar.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_own(self._jar.parent):
                return
            handle, partial = tempfile.mkstemp(dir=self._jar.parent)
            with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as jar:
                for entry, content in sorted(classes.items()):
                    jar.writestr(entry, content)
            Path(partial).replace(self._jar)
            for old in sorted(self._jar.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT_JARS]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _LOGGER.debug("the compiled classes are not kept: %s", error)

    def _take_kept(self) -> None:
        """Let the JVM load the classes that another process kept. Those used last are the last to be removed."""
        if self._jar is None or _kept(self._jar) is None:
            return
        self._add(self._jar)
        with suppress(OSError):
            self._jar.touch()

    def _add(self, place: Path) -> None:
        self._loader.addURL(self._jvm.java.io.File(str(place)).toURI().toURL())


def classes_of(spark: SparkSession) -> JvmClasses:
    """The classes in the JVM of a session, with the jar that fits its Spark, its Java and this tidelog."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    jar = None
    with suppress(Py4JError, TypeError, AttributeError, OSError, RuntimeError):
        java: Any = spark._jsparkSession  # noqa: SLF001 - as above
        place = Path(java.getClass().getProtectionDomain().getCodeSource().getLocation().getPath())
        spark_jar = (str(place), place.stat().st_size, place.stat().st_mtime_ns)
        built_for = (spark.version, spark_jar, jvm.java.lang.System.getProperty("java.version"), _all_sources())
        jar = _cache() / f"{hashlib.sha256(repr(built_for).encode()).hexdigest()[:32]}.jar"
    return JvmClasses(jvm, jar=jar)


def _cache() -> Path:
    return Path(environment("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog" / "classes"


def _entry(name: str) -> str:
    return f"{name.replace('.', '/')}.class"


def _source(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name.rpartition('.')[2]}.java").read_text(encoding="utf-8")


@cache
def _all_sources() -> tuple[tuple[str, str], ...]:
    """All that may be compiled: the files, and the texts in the module that installs them."""
    found = sorted(
        (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in resources.files(__package__).iterdir()
        if file.name.endswith(".java") or file.name == "jvm_source.py"
    )
    return tuple(found)


def _is_own(folder: Path) -> bool:
    """Whether only this user can put code into a folder."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & _FOR_OTHERS


def _kept(jar: Path) -> dict[str, bytes] | None:
    """The classes of a jar by their entries. None if it cannot be trusted: it is another user's, or damaged."""
    try:
        if not _is_own(jar.parent) or not _is_own(jar):
            return None
        with zipfile.ZipFile(jar) as found:
            return {entry: found.read(entry) for entry in found.namelist()}
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - damaged bytes raise errors of many kinds
        _LOGGER.debug("the kept classes are not used: %s", error)
        return None

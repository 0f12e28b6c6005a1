"""Compiled classes are kept in a jar for the next process. A jar counts only if it is whole and this user's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.streaming.datasource.jvm_classes import JvmClasses, classes_of

_TEXT = """
    package tidelog.kept;
    public class {name} {{
        public static class Inner {{}}
        public static final String SAYS = "{says}";
    }}
"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    return tmp_path / "classes" / "kept.jar"


def classes(spark: SparkSession, jar: Path | None) -> JvmClasses:
    """Those of a JVM that has none yet."""
    jvm: Any = spark._jvm
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    none = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 0)  # type: ignore[union-attr]
    return JvmClasses(jvm, jvm.org.apache.spark.util.MutableURLClassLoader(none, parent), jar)


def said(of: JvmClasses, name: str, says: str) -> str:
    """What the class says: what it was compiled with, if it was not compiled now."""
    made = of.load(f"tidelog.kept.{name}", _TEXT.format(name=name, says=says))
    return str(made.getField("SAYS").get(None))


def test_a_class_is_compiled_once(spark: SparkSession, jar: Path) -> None:
    first = classes(spark, jar)
    assert said(first, "A", "first") == "first"
    first.keep()
    second = classes(spark, jar)
    assert said(second, "A", "second") == "first"
    assert said(second, "B", "second") == "second"
    second.keep()
    third = classes(spark, jar)
    assert [said(third, name, "third") for name in "AB"] == ["first", "second"]
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "of others", "folder of others"])
def test_a_jar_that_is_damaged_or_of_others_is_not_used(spark: SparkSession, jar: Path, harm: str) -> None:
    first = classes(spark, jar)
    said(first, "A", "first")
    first.keep()
    content = bytearray(jar.read_bytes())
    if harm == "cut":
        jar.write_bytes(content[: len(content) // 2])
    elif harm == "flipped":
        content[80] ^= 0xFF
        jar.write_bytes(content)
    elif harm == "empty":
        jar.write_bytes(b"")
    else:
        (jar if harm == "of others" else jar.parent).chmod(0o777)
    second = classes(spark, jar)
    assert said(second, "A", "second") == "second"
    second.keep()
    kept = said(classes(spark, jar), "A", "third")
    assert kept == ("third" if harm == "folder of others" else "second")


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for jar in (None, tmp_path / "file" / "classes" / "kept.jar"):
        found = classes(spark, jar)
        assert said(found, "A", "first") == "first"
        found.keep()


def test_jars_of_other_versions_do_not_pile_up(spark: SparkSession, jar: Path) -> None:
    jar.parent.mkdir(mode=0o700)
    for number in range(20):
        other = jar.with_name(f"{number}.jar")
        other.touch()
        os.utime(other, (number, number))
    found = classes(spark, jar)
    said(found, "A", "first")
    found.keep()
    assert {path.stem for path in jar.parent.iterdir()} == {"kept", *map(str, range(13, 20))}


def test_the_jar_is_that_of_the_sources_and_the_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = classes_of(spark)._jar
    assert before is not None
    assert before.is_relative_to(tmp_path)
    assert classes_of(spark)._jar == before
    monkeypatch.setattr("tidelog.streaming.datasource.jvm_classes._all_sources", tuple)
    assert classes_of(spark)._jar != before

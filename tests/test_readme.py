"""The Python samples of README and the pages run as they stand, in processes, as a newcomer would run them.

All `python` blocks of a page are one program. A block that cannot run here is marked `py` in its page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "```python\n" in page.read_text())
# Short programs gain nothing from Spark's web page, many partitions, compiled plans and the second compiler.
SPARK_DEFAULTS = """
spark.ui.enabled false
spark.sql.shuffle.partitions 2
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def samples(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


def marked(page: Path) -> object:
    marks = []
    if "SparkSession" in samples(page):
        marks = [pytest.mark.spark, pytest.mark.full]
    if page.stem == "other-engines":
        marks.append(pytest.mark.interop)
    return pytest.param(page, marks=marks, id=page.stem)


def run(program: str, tmp_path: Path, traces: str | None = None) -> str:
    """What a program prints, with its folder in /tmp moved. It must end well, and print none of the `traces`."""
    (base,) = set(re.findall(r"/tmp/tidelog-[a-z-]+", program))
    script = tmp_path / "sample.py"
    script.write_text(program.replace(base, str(tmp_path / "data")))
    (tmp_path / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert traces is None or not re.search(traces, done.stderr), done.stderr
    return done.stdout


@pytest.mark.spark
def test_the_sample_of_the_readme_runs(tmp_path: Path) -> None:
    assert README.read_text().count("```python\n") == 1
    # Hadoop may still say that a call was interrupted, if the machine is so slow that a batch runs when it is stopped.
    printed = run(samples(README), tmp_path, "Traceback|Py4J|PythonException|StreamingQueryException|tidelog")
    assert "new rows:" in printed
    last = printed.strip().splitlines()[-1]
    assert "'_commit_version', '_commit_timestamp'" in last


def test_without_java_the_readme_ends_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """PySpark would only say that its gateway exited."""
    (tmp_path / "sample.py").write_text(samples(README))
    tool = tmp_path / "apt-get"
    tool.touch()
    tool.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "sample.py"], capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path, env=env
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "TIDELOG_PREREQUISITE: Java was not found; run: sudo apt-get install -y openjdk-17-jre-headless" in last


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_the_samples_of_a_page_are_one_program(tmp_path: Path, page: Path) -> None:
    run(samples(page), tmp_path)


def packages(program: str) -> set[str]:
    """The packages that a program imports and that installing tidelog alone does not bring."""
    found = set(re.findall(r"^(?:from|import) (\w+)", program, flags=re.MULTILINE))
    return found - sys.stdlib_module_names - {"tidelog", "pyarrow"}


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "guides"], ids=lambda page: page.stem)
def test_a_guide_says_what_its_samples_need(page: Path) -> None:
    text = page.read_text()
    needed = packages(samples(page))
    if "to_pandas" in samples(page):
        needed.add("pandas")
    said = " ".join(text.split())
    assert ("the extra `spark`" in said) == ("pyspark" in needed)
    installed = re.findall(r"`pip install ([^`]+)`", said)
    assert needed - {"pyspark"} <= {
        re.split("[<>=]", word.strip('"'))[0] for words in installed for word in words.split()
    }
    assert needed or "They need tidelog alone." in said


def test_no_two_pages_use_the_same_folder() -> None:
    folders = [set(re.findall(r"/tmp/tidelog-[a-z-]+", samples(page))) for page in [README, *PAGES]]
    assert all(len(found) == 1 for found in folders)
    assert len(set.union(*folders)) == len(folders)


def test_every_guide_has_samples() -> None:
    guides = {page.stem for page in (ROOT / "docs" / "guides").glob("*.md")}
    without = {"clusters", "demos", "object-stores", "spark-connect"}
    assert guides - {page.stem for page in PAGES} == without, "their samples need a cluster, a store or minutes"

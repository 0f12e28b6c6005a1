"""What `import tidelog.streaming` says where PySpark is missing, too old or not whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
try:
    import tidelog.streaming
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("pyspark", "said"),
    [
        (
            "raise ModuleNotFoundError(\"No module named 'pyspark'\")",
            "tidelog.streaming needs PySpark: No module named 'pyspark'; run in a copy of tidelog's repository: pip",
        ),
        # Its modules cannot be imported on a Python as new as this one.
        ("__version__ = '3.2.4'", "PySpark 3.2.4 is too old for tidelog.streaming; run in a copy"),
        ("__version__ = '3.5.6.dev1'", "PySpark 3.5.6.dev1 is too old for tidelog.streaming"),
        # As the package pyspark-client, which has no classic sessions.
        ("__version__ = '4.1.1'", "tidelog.streaming needs the whole of PySpark: cannot import name 'SparkContext'"),
    ],
    ids=["missing", "old", "a vendor's", "client"],
)
def test_the_import_says_what_to_install(pyspark: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(pyspark)
    path = f"sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
    command = [sys.executable, "-c", PROGRAM.replace("import sys\n", f"import sys\n{path}")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(f"TIDELOG_PREREQUISITE: {said}"), done.stdout

"""One delta-spark for all tests of this folder, because it takes many seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import delta_spark
from tests.interop.delta_spark import DeltaSpark


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with delta_spark.session(tmp_path_factory.mktemp("delta-spark") / "errors") as session:
        yield session


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")

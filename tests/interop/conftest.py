"""One delta-spark for all tests of this folder: starting one costs many seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import delta_spark
from tests.interop.delta_spark import DeltaSpark


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with delta_spark.session(tmp_path_factory.mktemp("delta-spark") / "errors") as session:
        yield session

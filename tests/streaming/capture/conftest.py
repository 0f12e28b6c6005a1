"""A PostgreSQL server for the tests of this folder, started when the first of them needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.cdc.postgres import Postgres, postgres, programs
from examples.shared.working_folder import WrongUseError


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A real server; a test that stops it must start it again."""
    try:
        programs()
    except WrongUseError as error:
        pytest.skip(f"POSTGRESQL IS NOT TESTED: {error}")
    with postgres(tmp_path_factory.mktemp("postgres") / "server") as server:
        yield server

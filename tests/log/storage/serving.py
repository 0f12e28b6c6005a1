"""Start the object stores' servers once per test run; the summary lists those that ran, and why the rest did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.log.storage.servers import SERVERS, Server, UnavailableError

_OUTCOMES = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def server_of(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Server]]:
    """Starts a server by name on first use. Skips the test if it is unavailable; the summary gives the reason."""
    running: dict[str, Server] = {}
    outcomes = pytestconfig.stash.setdefault(_OUTCOMES, {})
    with ExitStack() as stack:

        def start(name: str) -> Server:
            if name not in running and name not in outcomes:
                try:
                    running[name] = stack.enter_context(SERVERS[name](tmp_path_factory.mktemp(name)))
                except UnavailableError as error:
                    outcomes[name] = str(error)
                else:
                    outcomes[name] = ""
            if name not in running:
                pytest.skip(f"{name}: {outcomes[name]}")
            return running[name]

        yield start


@pytest.fixture(scope="session")
def s3(server_of: Callable[[str], Server]) -> Server:
    """An S3 server: a real gateway, or moto if that is unavailable. The summary names the one used."""
    try:
        return server_of("versitygw")
    except pytest.skip.Exception:
        return server_of("moto")


@pytest.hookimpl(trylast=True)  # after the fixtures are torn down
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist sends its outcomes to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["stores"] = session.config.stash.get(_OUTCOMES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """That process takes the outcomes of a worker that has ended; one that crashed sent none."""
    sent = getattr(node, "workeroutput", {}).get("stores", {})
    node.config.stash.setdefault(_OUTCOMES, {}).update(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash.get(_OUTCOMES, None)
    if outcomes is None:
        return
    ran = ", ".join(name for name, reason in outcomes.items() if not reason) or "none"
    terminalreporter.section("stores")
    terminalreporter.line(f"stores: ran: local, memory; on servers: {ran}")
    for name, reason in outcomes.items():
        if reason:
            terminalreporter.line(f"stores: did not run: {name}, because {reason}")
    for name in SERVERS.keys() - outcomes.keys():
        terminalreporter.line(f"stores: did not run: {name}, because no selected test needs it")

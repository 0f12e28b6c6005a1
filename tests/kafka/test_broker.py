"""The broker: Docker or a process, and that it keeps its records when it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.kafka import topics
from examples.kafka.broker import Broker, docker_engine
from tests.kafka.support import Topic


@pytest.mark.parametrize(
    ("answer", "engine"),
    [
        ("echo 29.0", True),
        ("echo; echo 'Cannot connect to the Docker daemon' >&2; exit 1", False),
        ("echo", False),
    ],
)
def test_a_docker_client_without_an_engine_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, engine: bool
) -> None:
    client = tmp_path / "docker"
    client.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert docker_engine() == engine


def test_without_a_docker_client_there_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not docker_engine()


@pytest.mark.nightly
def test_after_a_crash_the_broker_has_its_records_and_its_address(kafka: Broker, topic: Topic) -> None:
    first = topic.good(5)
    kafka.crash()
    kafka.start()
    then = topic.good(5)
    found = topics.read(kafka.address, topic.name, partitions=2)
    assert sorted(record.key.decode() for record in found) == first + then

"""One broker for all tests of this folder, and a Spark session with the Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from examples.kafka import topics
from examples.kafka.broker import Broker, broker
from examples.kafka.jars import connector_jars
from tests.kafka.support import Topic


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker; a test that kills it must restart it."""
    with broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def plain_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The Spark session without code generation, which takes seconds per query and is useless for a few records."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    """Add the connector's jars to the running JVM, for which `spark.jars` is too late."""
    jvm: Any = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    for jar in connector_jars():
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


@pytest.fixture
def kafka_spark(plain_spark: SparkSession, connector: None) -> SparkSession:
    """The Spark session with `format("kafka")`."""
    del connector
    return plain_spark


@pytest.fixture
def topic(kafka: Broker) -> Iterator[Topic]:
    """A new topic with two partitions."""
    name = f"events-{uuid4()}"
    topics.create(kafka.address, [name], partitions=2)
    with Topic(kafka.address, name) as made:
        yield made

"""One broker for all tests of this folder, and the tests' Spark with the Kafka connector."""

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
    """A real broker; a test that crashes it starts it again."""
    with broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def plain_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The tests' Spark, without code generation: for a few records it costs seconds a query and gives nothing back."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    """Puts the connector into the JVM of the tests' Spark, which runs already: `spark.jars` would come too late."""
    jvm: Any = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    for jar in connector_jars():
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


@pytest.fixture
def kafka_spark(plain_spark: SparkSession, connector: None) -> SparkSession:
    """The tests' Spark, which knows `format("kafka")`."""
    del connector
    return plain_spark


@pytest.fixture
def topic(kafka: Broker) -> Iterator[Topic]:
    """A topic of its own, with two partitions."""
    name = f"events-{uuid4()}"
    topics.create(kafka.address, [name], partitions=2)
    with Topic(kafka.address, name) as made:
        yield made

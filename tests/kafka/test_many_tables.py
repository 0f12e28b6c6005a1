"""Tables into a real broker as Debezium's envelopes, and from there into as many tables by one stream."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from examples.kafka import topics
from examples.kafka.broker import Broker
from tests.streaming.support import drain, forget_last_commit
from tidelog.log import Table
from tidelog.streaming import Feed, Sink, Sinks, capture, read, wait_for

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))])

AT = datetime(2024, 3, 10, 2, 30, 0, 1, UTC)


class Shop:
    """Tables that are published, one topic each, and their copies."""

    def __init__(self, folder: Path, kafka: Broker) -> None:
        self.folder, self.kafka = folder, kafka
        self.prefix = f"shop-{uuid4()}"
        self.tables: dict[str, Table] = {}

    def create(self, name: str) -> Table:
        path = str(self.folder / "source" / name)
        self.tables[name] = Table.create(path, SCHEMA, properties={"tidelog.primaryKey": "id"})
        topics.create(self.kafka.address, [f"{self.prefix}.{name}"], partitions=1)
        return self.tables[name]

    def publish(self, spark: SparkSession) -> None:
        for name, table in self.tables.items():
            topic = f"{self.prefix}.{name}"

            def send(batch: DataFrame, number: int, topic: str = topic) -> None:
                del number
                records = capture.to_debezium(batch, table=topic, keys=["id"]).withColumn("topic", F.lit(topic))
                records.write.format("kafka").option("kafka.bootstrap.servers", self.kafka.address).save()

            writer = Feed(spark, table.path, changes="cdc").foreachBatch(send)
            place = str(self.folder / "out" / name)
            writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

    def follow(self, spark: SparkSession) -> Sinks:
        def make(topic: str) -> Sink:
            return capture.sink(str(self.folder / topic), keys=["id"], dead_letters=str(self.folder / "dead" / topic))

        def rows(records: DataFrame, _: str) -> DataFrame:
            return capture.debezium(records, schema=SCHEMA, keys=["id"])

        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.address)
            .option("subscribePattern", f"{self.prefix}\\..*")
            .option("startingOffsets", "earliest")
            .option("kafka.metadata.max.age.ms", "500")
            .load()
        )
        sinks = Sinks(make, parked=str(self.folder / "parked"), rows=rows)
        drain(stream, sinks, self.folder / "cp")
        assert sinks.failed == {}
        return sinks

    def require_equal(self, spark: SparkSession) -> None:
        for name, table in self.tables.items():
            copy = read(spark, str(self.folder / f"{self.prefix}.{name}"), columns=SCHEMA.names)
            assert sorted(copy.collect()) == sorted(read(spark, table.path).collect()), name

    def ends(self) -> dict[str, dict[int, int]]:
        consumer = KafkaConsumer(bootstrap_servers=self.kafka.address)
        try:
            places = [TopicPartition(f"{self.prefix}.{name}", 0) for name in self.tables]
            return {place.topic: {0: end} for place, end in consumer.end_offsets(places).items()}
        finally:
            consumer.close()


@pytest.mark.full
def test_a_round_trip_of_several_tables_by_one_stream(kafka_spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    spark, shop = kafka_spark, Shop(tmp_path, kafka)
    orders, lines = shop.create("orders"), shop.create("lines")
    orders.insert([{"id": n, "price": Decimal(f"{n}.50"), "at": AT} for n in range(5)])
    lines.insert([{"id": n, "price": None, "at": None} for n in range(3)])
    shop.publish(spark)
    assert len(shop.follow(spark).last) == 2
    shop.require_equal(spark)
    # A new topic, updates, deletions, and only one table in the batch that is run again.
    people = shop.create("people")
    people.insert([{"id": 1, "price": Decimal("-0.01"), "at": None}])
    orders.upsert([{"id": 1, "price": Decimal("9.99"), "at": None}, {"id": 70, "price": Decimal("0.00"), "at": None}])
    orders.delete("id = 0")
    shop.publish(spark)
    checkpoint, parked, ends = str(tmp_path / "cp"), str(tmp_path / "parked"), shop.ends()
    assert not wait_for(checkpoint, offsets=ends, parked=parked, timeout_s=0)
    assert len(shop.follow(spark).last) == 2
    assert wait_for(checkpoint, offsets=ends, parked=parked, timeout_s=0)
    forget_last_commit(tmp_path / "cp")
    assert all(report.skipped for report in shop.follow(spark).last.values())
    shop.require_equal(spark)

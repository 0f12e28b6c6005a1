"""A board of departures: what was announced, and how each flight stands now."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

COLUMNS = (
    "id BIGINT, day DATE, carrier STRING, flight INT, origin STRING, dest STRING, scheduled INT, status STRING, "
    "delay INT, announced INT"
)


@dp.table(comment="every announcement, as it came", partition_cols=["day"])
def announcements() -> DataFrame:
    return spark.readStream.schema(COLUMNS).parquet("/data/incoming")


dp.create_streaming_table("flights", comment="the newest announcement of each flight that is not cancelled")
dp.create_auto_cdc_flow(
    target="flights",
    source="announcements",
    keys=["id"],
    sequence_by="announced",
    apply_as_deletes="status = 'cancelled'",
    except_column_list=["announced"],
    stored_as_scd_type=1,
)

"""URLs and settings for Hadoop's connectors, and the error that names the missing one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.hadoop import hadoop_url, require_connector, write_options

ACCOUNT = {"account_name": "mine"}


@pytest.mark.parametrize(
    ("url", "options", "wanted"),
    [
        ("s3://bucket/a/b c", {}, "s3a://bucket/a/b c"),
        ("s3a://bucket", {}, "s3a://bucket"),
        ("gcs://bucket/a", {}, "gs://bucket/a"),
        ("/a b/c%20", {}, "file:///a b/c%20"),
        ("file:///a", {}, "file:///a"),
        ("abfss://c@mine.dfs.core.windows.net/a", {}, "abfss://c@mine.dfs.core.windows.net/a"),
        ("abfs://c@mine.blob.core.chinacloudapi.cn/a", {}, "abfss://c@mine.dfs.core.chinacloudapi.cn/a"),
        ("az://c/a", ACCOUNT, "abfss://c@mine.dfs.core.windows.net/a"),
    ],
)
def test_the_url_of_a_store(url: str, options: dict[str, Any], wanted: str) -> None:
    assert hadoop_url(url, options) == wanted


@pytest.mark.parametrize("url", ["abfs://container/a", "memory://a"])
def test_a_store_that_hadoop_cannot_reach(url: str) -> None:
    with pytest.raises(ConfigurationError, match="use writer='driver'"):
        hadoop_url(url)


KEYS = {"access.key": "k", "secret.key": "s", "aws.credentials.provider": hadoop._SIMPLE}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        (None, {}),
        ({"key": "k"}, {}),
        ({"key": "k", "secret": "s"}, KEYS),
        ({"username": "k", "password": "s"}, KEYS),
        ({"client_kwargs": {"aws_access_key_id": "k", "aws_secret_access_key": "s"}}, KEYS),
        (
            {"key": "k", "secret": "s", "token": "t"},
            {**KEYS, "session.token": "t", "aws.credentials.provider": hadoop._TEMPORARY},
        ),
        ({"anon": "true"}, {"aws.credentials.provider": hadoop._ANONYMOUS}),
        ({"profile": "p"}, {"auth.profile.name": "p", "aws.credentials.provider": hadoop._PROFILE}),
        ({"client_kwargs": '{"region_name": "eu-west-1"}'}, {"endpoint.region": "eu-west-1"}),
        ({"use_ssl": "false"}, {"connection.ssl.enabled": "false"}),
        ({"requester_pays": True}, {"requester.pays.enabled": "true"}),
        (
            {"endpoint_url": "http://host:1"},
            {
                "endpoint": "http://host:1",
                "connection.ssl.enabled": "false",
                "path.style.access": "true",
                "endpoint.region": "us-east-1",
            },
        ),
        (
            {
                "client_kwargs": json.dumps({"endpoint_url": "https://host", "region_name": "r"}),
                "config_kwargs": json.dumps({"s3": {"addressing_style": "virtual"}}),
            },
            {
                "endpoint": "https://host",
                "connection.ssl.enabled": "true",
                "path.style.access": "false",
                "endpoint.region": "r",
            },
        ),
    ],
)
@pytest.mark.parametrize("url", ["s3://my.bucket/t", "s3a://my.bucket"])
def test_storage_options_become_settings_of_one_bucket(
    url: str, options: dict[str, Any] | None, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert write_options(options, url) == {f"fs.s3a.bucket.my.bucket.{name}": value for name, value in settings.items()}


def test_the_region_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert write_options({"endpoint_url": "http://a"}, "s3://b")["fs.s3a.bucket.b.endpoint.region"] == "eu-west-1"


@pytest.mark.parametrize("url", ["gs://bucket/t", "abfss://c@mine.dfs.core.windows.net", "/t", "file:///t"])
def test_only_s3_takes_credentials_from_storage_options(url: str) -> None:
    assert write_options({"token": "secret", "account_key": "secret"}, url) == {}


@pytest.mark.parametrize(
    ("url", "version", "wanted"),
    [
        ("s3a", "3.5.0", "org.apache.hadoop:hadoop-aws:3.5.0"),
        ("abfs", "3.4.1", "org.apache.hadoop:hadoop-azure:3.4.1"),
        ("abfss", "3.5.0", "org.apache.hadoop:hadoop-azure:3.5.0"),
        ("gs", "3.10.0", "org.apache.hadoop:hadoop-gcp:3.10.0"),
        ("gs", "3.4.2", hadoop._GOOGLES_GCS),
    ],
)
def test_the_connector_for_a_version_of_hadoop(url: str, version: str, wanted: str) -> None:
    assert hadoop._coordinates(url, version) == wanted


@pytest.mark.spark
@pytest.mark.parametrize(
    ("url", "jar"),
    [
        ("s3a://bucket/t", "org.apache.hadoop:hadoop-aws:"),
        ("gs://bucket/t", ""),
        ("abfss://c@mine.dfs.core.windows.net/t", "org.apache.hadoop:hadoop-azure:"),
    ],
)
def test_the_error_names_a_missing_connector(spark: SparkSession, url: str, jar: str) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        require_connector(spark, url, write_options({"key": "key-of-mine", "secret": "secret-of-mine"}, url))
    text = str(raised.value)
    assert "has no connector for " in text
    jvm: Any = spark.sparkContext._jvm
    hadoop_version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    wanted = jar + hadoop_version if jar else hadoop._coordinates("gs", hadoop_version)
    assert f"start the session with spark.jars.packages={wanted}" in text
    assert "secret-of-mine" not in text


@pytest.mark.spark
def test_a_local_path_needs_no_connector(spark: SparkSession) -> None:
    require_connector(spark, hadoop_url("/some/where"))


@pytest.mark.spark
def test_a_wrong_setting_is_an_error_without_the_value(spark: SparkSession) -> None:
    options = {"fs.s3a.impl": "java.lang.String", "fs.s3a.secret.key": "java.lang.String"}
    with pytest.raises(ConfigurationError, match="Spark cannot connect to s3a://other/") as raised:
        require_connector(spark, "s3a://other/t", options)
    assert not isinstance(raised.value, PrerequisiteError)
    assert "java.lang.String" not in str(raised.value)

"""A table's store as Spark's JVM sees it: through Hadoop's connectors, whose jars are not part of PySpark.

Only a JVM that reads or writes data files needs a connector. The log always goes through fsspec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.log.storage import Store
from tidelog.log.storage.location import parse_location
from tidelog.log.storage.options import Redactor, parse_option_texts
from tidelog.log.system import environment, logger

_LOGGER = logger(__name__)

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

_S3A = "org.apache.hadoop.fs.s3a"
_SIMPLE = f"{_S3A}.SimpleAWSCredentialsProvider"
_TEMPORARY = f"{_S3A}.TemporaryAWSCredentialsProvider"
_ANONYMOUS = f"{_S3A}.AnonymousAWSCredentialsProvider"
_PROFILE = f"{_S3A}.auth.ProfileAWSCredentialsProvider"

# Hadoop includes hadoop-gcp since this version. Before, Google published its own connector.
_OWN_GCS_SINCE = (3, 5)
_GOOGLES_GCS = "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.34"
_MISSING = (
    "java.lang.ClassNotFoundException",
    "java.lang.NoClassDefFoundError",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
)
# A chain of causes has only a few links. The limit guards against a loop.
_MAX_CAUSES = 20


def hadoop_url(store_url: str, storage_options: Mapping[str, Any] | None = None) -> str:
    """Hadoop's URL for the store at `store_url`, such as `s3a://bucket/folder`.

    A local path becomes a `file:` URL, since Hadoop would look a bare path up in the cluster's default file system.
    Raises ConfigurationError for a store in memory, and for Azure if neither the URL nor `storage_options` name the
    account.
    """
    found = parse_location(store_url)
    if found is None:
        return _local_url(store_url)
    key = f"/{found.key}" if found.key else ""
    if found.kind == "s3":
        return f"s3a://{found.bucket}{key}"
    if found.kind == "gs":
        return f"gs://{found.bucket}{key}"
    options = {**found.options, **parse_option_texts(storage_options or {})}
    account = options.get("account_name")
    if not account:
        raise ConfigurationError(
            f"{store_url} does not name the storage account, which Hadoop's URL needs",
            advice="write abfss://container@account.dfs.core.windows.net/folder, or use writer='driver'",
            path=store_url,
        )
    host = str(options.get("account_host") or f"{account}.blob.core.windows.net").replace(".blob.", ".dfs.", 1)
    return f"abfss://{found.bucket}@{host}{key}"


def write_options(storage_options: Mapping[str, Any] | None, url: str) -> dict[str, str]:
    """The `storage_options` as Hadoop settings of one bucket, for the options of a DataFrameWriter or DataFrameReader.

    Each setting names the bucket, so it overrides the session's settings and leaves other buckets alone. Spark redacts
    the secrets among them in plans, in its web pages and in event logs. Only options of S3 have a counterpart: Google
    Cloud Storage and Azure take credentials from the session's settings.
    """
    found = parse_location(url)
    if found is None or found.kind != "s3":
        return {}
    settings = _s3a_settings(parse_option_texts(storage_options or {}))
    return {f"fs.s3a.bucket.{found.bucket}.{name}": value for name, value in settings.items()}


def can_write(spark: SparkSession, store: Store, *, required: bool) -> bool:
    """Whether the session's JVM can write to `store`, checked before any task runs.

    If it cannot and `required` is set, raises what `require_connector` and `hadoop_url` raise.
    """
    try:
        _require_reached(spark, store)
    except ConfigurationError as error:
        if required:
            raise
        _LOGGER.info("not using Spark's own writer: %s", error)
        return False
    return True


def can_read(spark: SparkSession, store: Store) -> bool:
    """Whether the session's JVM can read from `store`, checked before any task runs."""
    try:
        _require_reached(spark, store)
    except ConfigurationError as error:
        _LOGGER.info("not using Spark's own reader: %s", error)
        return False
    return True


def _require_reached(spark: SparkSession, store: Store) -> None:
    url = hadoop_url(store.url, store.storage_options)
    require_connector(spark, url, write_options(store.storage_options, url))


def require_connector(spark: SparkSession, url: str, options: Mapping[str, str] = NO_OPTIONS) -> None:
    """Raise PrerequisiteError, which names the jar, if the session cannot load the file system of `url`.

    `url` comes from `hadoop_url`, `options` from `write_options`. The JVM keeps one connection per bucket, with the
    settings of its first use: ConfigurationError if `options` differ from those. Creates the connection, but sends no
    request to the store.
    """
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    configuration = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
    for name, value in options.items():
        configuration.set(name, value)
    try:
        connected = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(_root(url)), configuration)
    except Py4JError as error:
        raise _not_connected(error, url, jvm.org.apache.hadoop.util.VersionInfo.getVersion(), options) from None
    prefix = f"fs.s3a.bucket.{urlsplit(url).netloc}."
    kept = connected.getConf()
    differing = [name for name, value in options.items() if kept.get(f"fs.s3a.{name[len(prefix) :]}") != value]
    if differing:
        raise ConfigurationError(
            f"Spark is already connected to {_root(url)} with other settings: {', '.join(differing)}",
            advice="use the same storage_options everywhere in one Spark application, or start a new application",
            path=url,
        )


def _local_url(store_url: str) -> str:
    if re.match(r"memory:", store_url):
        raise ConfigurationError(
            f"{store_url} is in this process's memory, which Spark's executors cannot reach",
            advice="use writer='driver', or a table on a disk or in an object store",
        )
    return store_url if store_url.startswith("file:") else f"file://{store_url}"


def _root(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"


# --- storage options of s3fs, as settings of Hadoop's S3A ---


def _s3a_settings(options: Mapping[str, Any]) -> dict[str, str]:
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    region = client.get("region_name") or options.get("region_name")
    settings = _credentials(options, client)
    if endpoint:
        settings |= {
            "endpoint": str(endpoint),
            "connection.ssl.enabled": _text(not str(endpoint).startswith("http://")),
            "path.style.access": _text(_path_style(options)),
        }
        # A self-hosted server has no region, but a request's signature must name one. This is botocore's choice.
        region = region or environment("AWS_DEFAULT_REGION") or "us-east-1"
    elif options.get("use_ssl") is False:
        settings["connection.ssl.enabled"] = "false"
    if region:
        settings["endpoint.region"] = str(region)
    if options.get("requester_pays"):
        settings["requester.pays.enabled"] = "true"
    return settings


def _credentials(options: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, str]:
    """The credentials, and the provider that reads them, since the session can be set to other providers."""
    if options.get("anon"):
        return {"aws.credentials.provider": _ANONYMOUS}
    key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
    secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
    token = options.get("token") or client.get("aws_session_token")
    if key and secret:
        settings = {"access.key": str(key), "secret.key": str(secret)}
        if token:
            return {**settings, "session.token": str(token), "aws.credentials.provider": _TEMPORARY}
        return {**settings, "aws.credentials.provider": _SIMPLE}
    if options.get("profile"):
        return {"auth.profile.name": str(options["profile"]), "aws.credentials.provider": _PROFILE}
    return {}


def _path_style(options: Mapping[str, Any]) -> bool:
    """Whether the bucket is part of a request's path, which most self-hosted servers need."""
    addressing = ((options.get("config_kwargs") or {}).get("s3") or {}).get("addressing_style")
    return addressing != "virtual"


def _text(value: bool) -> str:  # noqa: FBT001 - it is the value
    return "true" if value else "false"


# --- errors ---


def _not_connected(error: Py4JError, url: str, version: str, options: Mapping[str, str]) -> ConfigurationError:
    """The error for a missing jar or wrong settings. Java's own text is redacted, as it can contain a secret."""
    causes = _causes(error)
    if any(name in _MISSING for name, _ in causes):
        jar = _coordinates(urlsplit(url).scheme, version)
        return PrerequisiteError(
            f"Spark has no connector for {_root(url)}: {causes[-1][1] or causes[-1][0]}",
            advice=f"start the session with spark.jars.packages={jar}, or use writer='driver'",
            path=url,
        )
    reason = Redactor(options)("; ".join(f"{name}: {text}" for name, text in causes) or str(error))
    return ConfigurationError(
        f"Spark cannot connect to {_root(url)}: {reason}",
        advice="check the storage options and the session's spark.hadoop.fs.* settings",
        path=url,
    )


def _causes(error: Py4JError) -> list[tuple[str, str]]:
    """The class and message of the Java exception and of its causes."""
    found: list[tuple[str, str]] = []
    exception = error.java_exception if isinstance(error, Py4JJavaError) else None
    while exception is not None and len(found) < _MAX_CAUSES:
        found.append((str(exception.getClass().getName()), str(exception.getMessage() or "")))
        exception = exception.getCause()
    return found


def _coordinates(scheme: str, version: str) -> str:
    """The Maven coordinates of the connector for this version of Hadoop."""
    if scheme == "s3a":
        return f"org.apache.hadoop:hadoop-aws:{version}"
    if scheme.startswith("abfs"):
        return f"org.apache.hadoop:hadoop-azure:{version}"
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return f"org.apache.hadoop:hadoop-gcp:{version}" if numbers >= _OWN_GCS_SINCE else _GOOGLES_GCS

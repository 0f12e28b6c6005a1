"""A table's store as Spark's JVM sees it: through Hadoop's connectors, whose jars are not part of PySpark.

The log is written through fsspec in any case; only a JVM that writes or reads data files needs a connector.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.log.internals import Redactor, Store, environment, parse_location, parse_option_texts

_LOGGER = logging.getLogger(__name__)

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

_S3A = "org.apache.hadoop.fs.s3a"
_SIMPLE = f"{_S3A}.SimpleAWSCredentialsProvider"
_TEMPORARY = f"{_S3A}.TemporaryAWSCredentialsProvider"
_ANONYMOUS = f"{_S3A}.AnonymousAWSCredentialsProvider"
_PROFILE = f"{_S3A}.auth.ProfileAWSCredentialsProvider"

# hadoop-gcp is part of Hadoop since this version; before, Google published its connector itself.
_OWN_GCS_SINCE = (3, 5)
_GOOGLES_GCS = "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.34"
_MISSING = (
    "java.lang.ClassNotFoundException",
    "java.lang.NoClassDefFoundError",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
)
# A chain of causes is a few long; a loop in it must not be followed for ever.
_MAX_CAUSES = 20


def hadoop_url(store_url: str, storage_options: Mapping[str, Any] | None = None) -> str:
    """The URL under which Hadoop finds what the store at `store_url` holds, such as `s3a://bucket/folder`.

    A path of a disk becomes a `file:` URL, so that a cluster's default file system does not take it for its own.
    Raises ConfigurationError for memory, and for Azure where neither URL nor `storage_options` name the account.
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
            f"{store_url} does not name the storage account, which Spark's path needs",
            advice="write abfss://container@account.dfs.core.windows.net/folder, or use writer='driver'",
            path=store_url,
        )
    host = str(options.get("account_host") or f"{account}.blob.core.windows.net").replace(".blob.", ".dfs.", 1)
    return f"abfss://{found.bucket}@{host}{key}"


def write_options(storage_options: Mapping[str, Any] | None, url: str) -> dict[str, str]:
    """Hadoop's settings for one bucket that say what `storage_options` say; for DataFrameWriter and DataFrameReader.

    What is not among them stays as the session has it. They name the bucket, so they win over the session's own and
    leave other buckets alone; Spark blanks out the secrets among them in plans, its pages and event logs. Only S3's
    options have a counterpart: Google Cloud Storage and Azure take credentials from the session's settings.
    """
    found = parse_location(url)
    if found is None or found.kind != "s3":
        return {}
    settings = _s3a_settings(parse_option_texts(storage_options or {}))
    return {f"fs.s3a.bucket.{found.bucket}.{name}": value for name, value in settings.items()}


def can_write(spark: SparkSession, store: Store, *, required: bool) -> bool:
    """Whether the session's JVM can write below `store`, found out before any task runs.

    Where it cannot, `required` raises what `require_connector` and `hadoop_url` raise.
    """
    try:
        url = hadoop_url(store.url, store.storage_options)
        require_connector(spark, url, write_options(store.storage_options, url))
    except ConfigurationError as error:
        if required:
            raise
        _LOGGER.info("Spark's own writer is not used: %s", error)
        return False
    return True


def require_connector(spark: SparkSession, url: str, options: Mapping[str, str] = NO_OPTIONS) -> None:
    """Raise PrerequisiteError where the session cannot load the file system of `url` (hadoop_url's), naming the jar.

    `options` are write_options'. The JVM keeps one connection to a bucket, made with the settings that came first:
    ConfigurationError where those differ from `options`. Makes the connection, without a request to the store.
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
            f"this Spark already connects to {_root(url)} with other settings: {', '.join(differing)}",
            advice="give the same storage_options everywhere in one Spark application, or start a new one",
            path=url,
        )


def _local_url(store_url: str) -> str:
    if re.match(r"memory:", store_url):
        raise ConfigurationError(
            f"{store_url} lies in this process's memory, which no executor reaches",
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
        # A server of one's own has no region, but a signature names one; this is what botocore takes.
        region = region or environment("AWS_DEFAULT_REGION") or "us-east-1"
    elif options.get("use_ssl") is False:
        settings["connection.ssl.enabled"] = "false"
    if region:
        settings["endpoint.region"] = str(region)
    if options.get("requester_pays"):
        settings["requester.pays.enabled"] = "true"
    return settings


def _credentials(options: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, str]:
    """The settings of the credentials, and of the one provider that reads them: the session may name others."""
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
    """Whether the bucket stands in the path of a request, as most servers of one's own want it."""
    addressing = ((options.get("config_kwargs") or {}).get("s3") or {}).get("addressing_style")
    return addressing != "virtual"


def _text(value: bool) -> str:  # noqa: FBT001 - it is the value
    return "true" if value else "false"


# --- what is missing ---


def _not_connected(error: Py4JError, url: str, version: str, options: Mapping[str, str]) -> ConfigurationError:
    """Java's error in our words: a missing jar, or settings that are wrong. Its own text may hold a secret."""
    causes = _causes(error)
    if any(name in _MISSING for name, _ in causes):
        jar = _coordinates(urlsplit(url).scheme, version)
        return PrerequisiteError(
            f"this Spark has no connector for {_root(url)}: {causes[-1][1] or causes[-1][0]}",
            advice=f"start the session with spark.jars.packages={jar}, or use writer='driver'",
            path=url,
        )
    words = Redactor(options)("; ".join(f"{name}: {text}" for name, text in causes) or str(error))
    return ConfigurationError(
        f"Spark cannot connect to {_root(url)}: {words}",
        advice="check the storage options and the session's spark.hadoop.fs.* settings",
        path=url,
    )


def _causes(error: Py4JError) -> list[tuple[str, str]]:
    """Class and text of the Java exception and of what caused it."""
    found: list[tuple[str, str]] = []
    exception = error.java_exception if isinstance(error, Py4JJavaError) else None
    while exception is not None and len(found) < _MAX_CAUSES:
        found.append((str(exception.getClass().getName()), str(exception.getMessage() or "")))
        exception = exception.getCause()
    return found


def _coordinates(scheme: str, version: str) -> str:
    """The Maven coordinates of the connector that fits this version of Hadoop."""
    if scheme == "s3a":
        return f"org.apache.hadoop:hadoop-aws:{version}"
    if scheme.startswith("abfs"):
        return f"org.apache.hadoop:hadoop-azure:{version}"
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return f"org.apache.hadoop:hadoop-gcp:{version}" if numbers >= _OWN_GCS_SINCE else _GOOGLES_GCS

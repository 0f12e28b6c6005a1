"""Hadoop's connector for S3, reduced to the few megabytes that a test needs.

hadoop-aws depends on the AWS SDK as one `bundle` of 686 MB with every AWS service. Its S3A file system only calls the
SDK's S3 and STS, two HTTP clients and the transfer manager: 12 MB more than Spark itself has.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests import ivy
from tests.ivy import Artifact

# The versions that hadoop-project, the parent of this hadoop-aws, names.
_SDK = "2.35.4"
_ANALYTICS_ACCELERATOR = "1.3.1"


def jars() -> list[Path]:
    """The jars for `s3a://`, to be set as `spark.jars`. Raises AssertionError if they cannot be fetched."""
    (client,) = ivy.spark_jars().glob("hadoop-client-api-*.jar")
    hadoop = re.sub(r"^hadoop-client-api-|\.jar$", "", client.name)
    sdk = ("s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    return ivy.jars(
        f"hadoop-aws-{hadoop}-{_SDK}",
        [
            Artifact("org.apache.hadoop", "hadoop-aws", hadoop, alone=True),
            Artifact(
                "software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", _ANALYTICS_ACCELERATOR, alone=True
            ),
            *(Artifact("software.amazon.awssdk", name, _SDK) for name in sdk),
        ],
    )

"""The requests of each operation on S3. The tests assert them, and docs/reference/stores.md shows them."""

from __future__ import annotations

from collections import Counter

COUNTS = {
    "open": Counter(GET=3),
    "refresh without news": Counter(GET=1),
    "refresh with one new version": Counter(GET=3, HEAD=1),
    "insert of one file": Counter(GET=2, PUT=3),
    "delete of one row, file list in memory": Counter(GET=4, PUT=3),
    "update of one row, file list in memory": Counter(GET=4, PUT=4),
    "checkpoint, file list in memory": Counter(GET=3, PUT=2, HEAD=1),
    "batch of a sink, one file": Counter(GET=3, PUT=3),
    "poll of an idle feed": Counter(GET=1),
    "look of an idle daemon, for each table": Counter(GET=1),
}
# What is added to a refresh without news when the look at the loaded version is older than this.
OWN_VERSION = Counter(GET=1, HEAD=1)
OWN_VERSION_EVERY_S = 300

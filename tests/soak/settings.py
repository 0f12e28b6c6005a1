"""How long the soak runs, how fast and how often things happen: all that follows from the minutes and the seed."""

from __future__ import annotations

from dataclasses import dataclass

STREAMS = ("a", "b")
DAEMONS = ("daemon-1", "daemon-2")
CONSUMERS = ("fast", "slow")
SAMPLE_S = 2.0
# Spark takes half a minute until all streams are at work, and clean-up begins after the retentions.
LEAST_MINUTES = 2.0
TARGET_BYTES = 64 * 1024
CHECKPOINT_INTERVAL = 50


@dataclass(frozen=True, slots=True)
class Settings:
    """A run of `minutes`, whose kills and values are drawn by `seed`. Times are in seconds."""

    minutes: float
    seed: int

    @property
    def seconds(self) -> float:
        """How long the streams run."""
        return self.minutes * 60

    @property
    def batch_rows(self) -> int:
        """Rows in each micro-batch of each stream."""
        return 150

    @property
    def batch_s(self) -> float:
        """The time between two micro-batches of a stream."""
        return 1.0

    @property
    def part_rows(self) -> int:
        """Rows of each stream in a partition: so that some twenty partitions come and become quiet in a run."""
        return self.batch_rows * int(max(10, min(60, self.seconds / 30)))

    @property
    def part_s(self) -> float:
        """How long a stream writes a partition."""
        return self.part_rows / self.batch_rows * self.batch_s

    @property
    def has_majors(self) -> bool:
        """Whether partitions stay long enough to become quiet before they are dropped, so that MAJOR rewrites them."""
        return self.minutes >= 10

    @property
    def kept_parts(self) -> int:
        """How many partitions stay, besides the newest, when the updater drops the oldest ones."""
        return self._share(300, least=2, most=6)

    @property
    def max_transaction_s(self) -> int:
        """`tidelog.maxTransactionTime`: longer than a stream is away between a stage and its commit."""
        return self._share(15, least=15, most=90)

    @property
    def file_retention_s(self) -> int:
        """`delta.deletedFileRetentionDuration`."""
        return self._share(12, least=15, most=120)

    @property
    def log_retention_s(self) -> int:
        """`delta.logRetentionDuration`."""
        return self._share(10, least=20, most=150)

    @property
    def slow_s(self) -> int:
        """The time between two reads of the slow consumer: longer than the retentions, so that clean-up waits."""
        return self._share(6, least=35, most=200)

    @property
    def properties(self) -> dict[str, object]:
        """The properties of the table."""
        return {
            "tidelog.targetFileSize": TARGET_BYTES,
            "tidelog.maxTransactionTime": f"{self.max_transaction_s} seconds",
            # A consumer that is killed while it waits for its next read must not be given up.
            "tidelog.consumerTimeToLive": f"{max(600, 4 * self.slow_s)} seconds",
            "delta.deletedFileRetentionDuration": f"{self.file_retention_s} seconds",
            "delta.logRetentionDuration": f"{self.log_retention_s} seconds",
            "delta.checkpointInterval": CHECKPOINT_INTERVAL,
            "delta.enableDeletionVectors": True,
            "delta.enableChangeDataFeed": False,
        }

    def _share(self, of: float, *, least: int, most: int) -> int:
        return int(min(most, max(least, self.seconds / of)))

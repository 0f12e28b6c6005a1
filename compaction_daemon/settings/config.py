"""How a daemon runs, as one checked value, and where it listens for HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from tidelog.compaction_daemon.planning.request import GREATEST_GROWTH, GROWTH
from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import address_without_credentials

# A daemon looks at a table at most this often, even if asked for more: each look is a request to the store.
_LEAST_INTERVAL_S = 0.01
_DAY_S = timedelta(days=1).total_seconds()
# Nobody has more bytes, and Arrow and NumPy count in 64 bits.
_MOST_BYTES = 2**60
# Python refuses to spell numbers of thousands of digits.
_SHOWN_BITS = 256
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """How a daemon runs. Times are in seconds, sizes in bytes.

    Args:
        interval_s: How long to wait before the next look at a table that had nothing to do. Each look that finds
            nothing doubles the wait, up to `idle_interval_s`; a new version starts again at `interval_s`.
        idle_interval_s: The longest wait between two looks at a table that does not change; `interval_s` if
            that is longer.
        discovery_interval_s: How often globs and folders are searched for new tables, and missing tables are looked
            for.
        growth: For minor compactions, about how many times its largest file a group must be before it is rewritten; at
            least 1. A larger value means fewer and larger rewrites.
        major: Whether to run major compactions, in partitions that have been quiet for a while.
        clean_up: Whether to expire history and vacuum, with the retentions of each table. A table turns it off by a
            property of its own.
        lease_ttl_s: How long another daemon waits for a heartbeat before it takes over a table.
        compaction_bytes: The most that one compaction reads before it looks at the other tables again.
        bytes_per_hour: The most that the daemon reads in an hour for all tables together; None for no limit.
        core_share: The share of this machine's cores that the daemon may use on average, above 0 up to 1.
        heartbeat_s: On a table without new commits, commit a version without rows this often, so that `complete_until`
            of the change feed moves on; None for never.

    Raises:
        ConfigurationError: A value is out of range.
    """

    interval_s: float = 1.0
    idle_interval_s: float = 60.0
    discovery_interval_s: float = 60.0
    growth: float = GROWTH
    major: bool = True
    clean_up: bool = True
    lease_ttl_s: float = 15.0
    compaction_bytes: int = 512 * 2**20
    bytes_per_hour: int | None = None
    core_share: float = 0.5
    heartbeat_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("interval_s", "idle_interval_s", "discovery_interval_s"):
            _require(name, getattr(self, name), at_least=_LEAST_INTERVAL_S, at_most=_DAY_S)
        _require("growth", self.growth, at_least=1, at_most=GREATEST_GROWTH)
        _require("lease_ttl_s", self.lease_ttl_s, at_least=0.05, at_most=timedelta(hours=1).total_seconds())
        _require("compaction_bytes", self.compaction_bytes, at_least=2**20, at_most=_MOST_BYTES)
        _require("core_share", self.core_share, at_least=0.01, at_most=1)
        if self.bytes_per_hour is not None:
            _require("bytes_per_hour", self.bytes_per_hour, at_least=2**20, at_most=_MOST_BYTES)
        if self.heartbeat_s is not None:
            _require("heartbeat_s", self.heartbeat_s, at_least=1, at_most=30 * _DAY_S)


def _require(name: str, value: object, *, at_least: float, at_most: float) -> None:
    """Raise ConfigurationError unless `value` is a number in the range."""
    advice = f"give a number from {at_least:.12g} up to {at_most:.12g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name} is {value!r}", advice=advice)
    if not at_least <= value <= at_most:
        is_long = isinstance(value, int) and value.bit_length() > _SHOWN_BITS
        raise ConfigurationError(f"{name} is {'a whole number of many digits' if is_long else value}", advice=advice)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a daemon listens: a host, as a name or an IP address, and a port; port 0 takes any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """The address in a text such as `127.0.0.1:8080` or `[::1]:8080`. Raises ConfigurationError."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) > _LAST_PORT:
            raise ConfigurationError(
                f"{address_without_credentials(text)!r} is not an address to listen on",
                advice="write HOST:PORT, such as 127.0.0.1:8080 for this machine only, or 0.0.0.0:8080 for all",
            )
        return cls(found["six"] or found["host"], int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

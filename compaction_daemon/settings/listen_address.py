"""Where a daemon listens for HTTP: `HOST:PORT`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.log.errors import ConfigurationError

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host, as a name or an IP address, and a port; port 0 takes any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """The address in a text such as `127.0.0.1:8080` or `[::1]:8080`. Raises ConfigurationError."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) > _LAST_PORT:
            raise ConfigurationError(
                f"{text!r} is not an address to listen on",
                advice="write HOST:PORT, such as 127.0.0.1:8080 for this machine only, or 0.0.0.0:8080 for all",
            )
        return cls(found["six"] or found["host"], int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

"""Free ports for the servers of a demo."""

from __future__ import annotations

import socket
from contextlib import ExitStack

_LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Different ports that no process listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]

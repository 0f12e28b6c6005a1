"""Stop aiohttp from repeating a request by itself.

All clouds' libraries use aiohttp, which sends an idempotent request (so also a conditional put) again if its connection
breaks. Whatever the second try is told proves nothing about the first: that may be stored, and the second one may be
throttled, refused or unable to connect.
"""

from __future__ import annotations

import aiohttp

from tidelog.log.errors import ConfigurationError


def sent_once(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """The session, which from now on sends each request once. Raises ConfigurationError if aiohttp has no such switch.

    aiohttp has no public option for this; its own test client sets the same attribute.
    """
    if not hasattr(session, "_retry_connection"):
        raise ConfigurationError(
            f"aiohttp {aiohttp.__version__} cannot be kept from repeating requests, so a stored commit could be "
            "reported as failed",
            advice="install aiohttp 3.14",
        )
    session._retry_connection = False  # noqa: SLF001
    return session

"""Idempotency keys: how far each application has come, as `txn` actions record it."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.log.conflict.horizon import FLOOR, HORIZON
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.format.text import is_unicode


def progress(known: Mapping[str, int], key: tuple[str, int], now_ms: int) -> SetTransaction | None:
    """The action that records `key`, an application id and its version. None if `known` has it or a newer one.

    Raises ConfigurationError if the log cannot hold the key.
    """
    match key:
        case (app_id, _) if app_id in (HORIZON, FLOOR):
            raise ConfigurationError(f"{app_id!r} is tidelog's own application id", advice="choose another one")
        case (str(app_id), int(version)) if (
            app_id and is_unicode(app_id) and not isinstance(version, bool) and abs(version) < 2**63
        ):
            if known.get(app_id, version - 1) >= version:
                return None
            return SetTransaction(app_id=app_id, version=version, last_updated=now_ms)
        case _:
            raise ConfigurationError(
                f"{key!r} is not an idempotency key",
                advice="give (application id, version), such as ('daily-load', 7)",
            )

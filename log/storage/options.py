"""Parse storage options, which are text on a command line and in Spark's options but values in Python.

File systems need typed arguments: `anon` is a bool, `client_kwargs` a mapping. So `"true"` and `"false"` become bools,
the sizes and timeouts below become numbers, and text that begins with `{` or `[` is parsed as JSON. Credentials stay
text, since a key can look like a number; the exception is a GCS `token` with the JSON of a service account.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import HIDDEN, without_credentials

_CREDENTIALS = frozenset(
    {
        "key",
        "secret",
        "token",
        "username",
        "password",
        "account_name",
        "account_key",
        "sas_token",
        "connection_string",
        "client_id",
        "client_secret",
        "tenant_id",
        "credential",
    }
)
_NUMBERS = frozenset(
    {
        "blocksize",
        "block_size",
        "default_block_size",
        "max_concurrency",
        "timeout",
        "requests_timeout",
        "connection_timeout",
        "read_timeout",
        "cache_timeout",
    }
)
_SECRET = re.compile(r"secret|password|token|credential|connection_string|(^|_)key($|_)|signature", re.IGNORECASE)
# An access key id is public, and it helps to see which credentials were used.
_PUBLIC = frozenset({"key", "aws_access_key_id"})
# Redacting shorter values would blank out ordinary words in a message.
_SHORTEST_SECRET = 4


def parse_option_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the types that file systems expect. Raises ConfigurationError, which never shows a value."""
    return {name: _value(name, value) for name, value in options.items()}


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _CREDENTIALS and not (name == "token" and value.lstrip().startswith("{")):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    try:
        if name in _NUMBERS:
            return float(value) if "." in value else int(value)
        if value.lstrip()[:1] in {"{", "["}:
            return json.loads(value)
    except (ValueError, RecursionError):
        # `from None`, because the cause's text would show the value.
        raise ConfigurationError(
            f"the storage option {name!r} is not {'a number' if name in _NUMBERS else 'valid JSON'}",
            advice="write a number such as 30"
            if name in _NUMBERS
            else 'write nested options as JSON, for example client_kwargs={"region_name": "eu-central-1"}',
            option=name,
        ) from None
    return value


class Redactor:
    """Replaces secrets from the storage options in texts."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        found = (value for value in _secrets(options) if len(value) >= _SHORTEST_SECRET)
        self._secrets = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return without_credentials(text)


def _secrets(options: Mapping[str, Any]) -> Iterable[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and name not in _PUBLIC and _SECRET.search(name):
            yield value

"""Storage options as people write them: text on a command line or in Spark's options, values in Python.

A file system's arguments are not text: `anon` is a bool, `client_kwargs` a mapping. `"true"` and `"false"` become
bools, the named sizes and timeouts numbers, and text that begins with `{` or `[` is read as JSON. Credentials stay as
they are, since a key may well look like a number; only a GCS `token` may be the JSON of a service account.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.log.errors import ConfigurationError

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
# A public access key id is no secret and helps to see which credentials were taken.
_PUBLIC = frozenset({"key", "aws_access_key_id"})
_IN_TEXT = re.compile(r"((?:AccountKey|SharedAccessSignature|sig|X-Amz-Signature)=)[^;&\s'\"]+", re.IGNORECASE)
# Shorter values would blank out words of a message that are no secrets.
_SHORTEST_SECRET = 4


def parse_option_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a file system takes them. Raises ConfigurationError, which never shows a value."""
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
    except ValueError:
        # No cause: its text would show the value.
        raise ConfigurationError(
            f"the storage option {name!r} is neither plain text, a number nor JSON that can be read",
            advice='write nested options as JSON, such as client_kwargs={"region_name": "eu-central-1"}',
            option=name,
        ) from None
    return value


class Redactor:
    """Takes the secrets among the options out of any text."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        found = (value for value in _secrets(options) if len(value) >= _SHORTEST_SECRET)
        self._secrets = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _IN_TEXT.sub(r"\1***", text)


def _secrets(options: Mapping[str, Any]) -> Iterable[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and name not in _PUBLIC and _SECRET.search(name):
            yield value

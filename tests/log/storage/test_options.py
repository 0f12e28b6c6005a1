"""Parsing storage options and redacting their secrets."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.log.errors import ConfigurationError
from tidelog.log.storage.options import Redactor, parse_option_texts


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("anon", "true", True),
        ("use_ssl", "False", False),
        ("endpoint_url", "http://localhost:9000", "http://localhost:9000"),
        (
            "client_kwargs",
            '{"region_name": "eu-central-1", "verify": false}',
            {"region_name": "eu-central-1", "verify": False},
        ),
        ("max_concurrency", "4", 4),
        ("requests_timeout", "2.5", 2.5),
        ("key", "123456789012", "123456789012"),
        ("secret", "true", "true"),
        ("secret", "{not json", "{not json"),
        ("account_name", "42", "42"),
        ("token", "anon", "anon"),
        ("token", '{"type": "service_account"}', {"type": "service_account"}),
        ("anon", True, True),
        ("client_kwargs", {"verify": False}, {"verify": False}),
    ],
)
def test_texts_are_converted_to_the_types_of_file_systems(name: str, text: Any, value: Any) -> None:
    assert parse_option_texts({name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text"), [("client_kwargs", '{"secret-value'), ("token", '{"secret-value'), ("timeout", "secret-value")]
)
def test_the_error_for_an_invalid_text_does_not_show_it(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as raised:
        parse_option_texts({name: text})
    assert "secret-value" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_secrets_are_redacted() -> None:
    redacted = Redactor(
        {
            "key": "AKIAPUBLIC",
            "secret": "s3cr3t",
            "sas_token": "sv=1&sig=abcdef",
            "client_kwargs": {"aws_secret_access_key": "nested", "region_name": "eu"},
            "endpoint_url": "http://localhost",
            "password": "",
        }
    )
    text = redacted("AKIAPUBLIC s3cr3t nested eu http://localhost ?sv=1&sig=abcdef AccountKey=x/y==;sig=zz&a=1")
    assert text == "AKIAPUBLIC *** *** eu http://localhost ?*** AccountKey=***;sig=***&a=1"

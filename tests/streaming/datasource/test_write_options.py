from __future__ import annotations

import pytest

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.datasource.write_options import parse_write

PATH = {"path": "/data/t"}


def test_defaults() -> None:
    options = parse_write(PATH, overwrite=False)
    assert (options.path, options.overwrite, options.partition_by) == ("/data/t", False, ())
    assert (options.where, options.dynamic, options.idempotency_key) == (None, False, None)
    assert options.storage_options == {}


def test_all_options() -> None:
    raw = {"partitionBy": " a,b ", "WHERE": "a = 1", "partitionOverwriteMode": "STATIC", "storageOption.key": "secret"}
    options = parse_write(PATH | raw | {"txnAppId": "job", "txnVersion": " -3 "}, overwrite=True)
    assert (options.overwrite, options.partition_by) == (True, ("a", "b"))
    assert (options.where, options.dynamic, options.idempotency_key) == ("a = 1", False, ("job", -3))
    assert options.storage_options == {"key": "secret"}
    assert parse_write(PATH | {"partitionOverwriteMode": "Dynamic"}, overwrite=True).dynamic


@pytest.mark.parametrize(
    ("raw", "overwrite", "message"),
    [
        ({}, False, r"Spark did not pass a table path; use \.save\("),
        ({"path": ""}, False, "Spark did not pass a table path"),
        (
            PATH | {"nonsense": "1"},
            False,
            "unknown option 'nonsense'; use one of path, partitionBy, where.*, storageOption.<name>$",
        ),
        (PATH | {"versionAsOf": "1"}, False, "the option 'versionAsOf' is for reads only; leave it out"),
        (PATH | {"columns": "a"}, True, "the option 'columns' is for reads only; leave it out"),
        (PATH | {"mergeSchema": "yes"}, False, "'mergeSchema' cannot be 'yes'; give true or false"),
        (
            PATH | {"overwriteSchema": "true", "where": "a = 1"},
            True,
            "'overwriteSchema' does not go with 'where': rows",
        ),
        (PATH | {"where": "a = 1"}, False, "'where' is for overwriting only; leave it out"),
        (PATH | {"partitionOverwriteMode": "dynamic"}, False, "'partitionOverwriteMode' is for overwriting only"),
        (PATH | {"partitionOverwriteMode": "x"}, True, "'partitionOverwriteMode' cannot be 'x'; use static or dynamic"),
        (PATH | {"txnAppId": "a"}, False, "the option 'txnVersion' is missing: .*; give both, or leave both out"),
        (PATH | {"txnVersion": "1"}, False, "the option 'txnAppId' is missing: .*; give both, or leave both out"),
        (PATH | {"txnAppId": "", "txnVersion": "1"}, False, "the option 'txnAppId' is missing"),
        (PATH | {"txnAppId": "a", "txnVersion": "1.5"}, False, "'txnVersion' cannot be '1.5'; give a whole number"),
        (PATH | {"txnAppId": "a", "txnVersion": str(2**63)}, False, "'txnVersion' cannot be '9223372036854775808'"),
    ],
)
def test_an_error_names_the_wrong_option(raw: dict[str, str], overwrite: bool, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_write(raw, overwrite=overwrite)
    assert caught.value.advice

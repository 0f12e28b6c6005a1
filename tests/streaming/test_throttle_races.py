"""What others commit while a throttle holds a batch back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import Input, drain, numbers_in, refused
from tidelog.log.errors import ConcurrentTransactionException
from tidelog.streaming import Sink, Throttle
from tidelog.streaming.throttle import Brake

pytestmark = pytest.mark.spark


def test_a_second_copy_that_commits_the_batch_during_the_wait_does_not_double_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, source = str(tmp_path / "t"), Input(tmp_path / "input").put()
    drain(source.stream(spark), Sink(path), tmp_path / "cp")
    source.put()
    sink, copy = Sink(path, throttle=Throttle()), Sink(path)

    def function(batch: DataFrame, number: int) -> None:
        def hold(*_: object) -> Brake:
            copy(batch, number)
            return Brake(delayed_s=1.0)

        monkeypatch.setattr(sink._back_pressure, "hold", hold)
        sink(batch, number)

    refused(source.stream(spark), function, tmp_path / "cp", ConcurrentTransactionException)
    assert numbers_in(path) == source.numbers

"""How errors leave the data source: Spark shows tidelog's own line first, without the frames of tidelog's internals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from tidelog.log.errors import TidelogError
from tidelog.log.system import logger

_LOGGER = logger("tidelog.streaming")

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def error_first(method: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Raise a TidelogError of `method`, or of the iterator that it returns, so that its line comes first.

    Spark shows the traceback of an exception, and a traceback starts with the cause. The frames that this leaves out
    are logged at the level DEBUG.
    """

    @wraps(method)
    def called(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            result = method(*args, **kwargs)
        except TidelogError as error:
            raise _shortened(error) from _first_lines(error)
        return cast("_Result", _read(result)) if isinstance(result, Iterator) else result

    return called


def _read(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except TidelogError as error:
        raise _shortened(error) from _first_lines(error)


def _shortened(error: TidelogError) -> TidelogError:
    _LOGGER.debug('format("tidelog") failed', exc_info=error)
    return error.with_traceback(None)


def _first_lines(error: TidelogError) -> Exception:
    return Exception(f'format("tidelog") failed\n{error}')

"""`TidelogError`, the root of the tree in `errors`: what every error carries, and how its text is made."""

from __future__ import annotations

from typing import Any, ClassVar

from tidelog.log.presentable import printable, without_credentials


class TidelogError(Exception):
    """The base class of all tidelog errors. They can be pickled.

    Attributes:
        code: The stable code that the text of the error starts with.
        message: What is wrong.
        advice: What to do about it; empty if there is nothing to say.
        fields: Further facts by name, such as `path` or `version`. Each one is an attribute of the error as well. The
            text shows those that are text, numbers, flags, or lists of these, and leaves out empty ones.
    """

    code: ClassVar[str] = "TIDELOG"

    def __init__(self, message: str, *, advice: str = "", **fields: Any) -> None:
        self.message = without_credentials(message)
        super().__init__(self.message)
        self.advice = without_credentials(advice)
        self.fields = {
            name: without_credentials(field) if isinstance(field, str) else field for name, field in fields.items()
        }
        for name, field in self.fields.items():
            setattr(self, name, field)

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.advice:
            text += f"; {self.advice}"
        shown = [f"{name}={value}" for name, field in self.fields.items() if (value := _shown(field))]
        if shown:
            text += f" [{', '.join(shown)}]"
        return printable(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.advice, self.fields)


def _shown(value: object) -> str:
    """A field as text; empty for one that is empty or that is not made for people, such as a syntax tree."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str | int | float) for item in value):
        return f"[{', '.join(map(str, value))}]"
    return ""


def _rebuild(cls: type[TidelogError], message: str, advice: str, fields: dict[str, Any]) -> TidelogError:
    return cls(message, advice=advice, **fields)

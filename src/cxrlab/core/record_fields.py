"""Base class of JSON records, and checks of their fields: each takes a value and its key, and returns or raises."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self

from cxrlab.core.errors import DataError, VocabularyError, did_you_mean, short_repr

Check = Callable[[Any, str], Any]


class Record:
    """Base of the frozen dataclasses that are stored as JSON objects.

    A subclass declares `what` it is, with its article, for messages, and `checks`, one for every field except `extra`.
    A field `extra` holds unknown keys; without it they are refused.
    """

    what: ClassVar[str]
    checks: ClassVar[Mapping[str, Check]]

    def __post_init__(self) -> None:
        shape = _shape(type(self))
        # A word given as plain text becomes a member of its enum, so that `is` and `.value` hold everywhere.
        for key, check in shape.words:
            if (value := getattr(self, key)) is not None:
                object.__setattr__(self, key, check(value, key))
        if lost := self.checks.keys() & getattr(self, "extra", {}).keys():
            raise DataError(f"'extra' of {self.what} holds '{min(lost)}', which is a field of its own; give it there.")

    def to_json(self) -> dict[str, Any]:
        """Plain values in the order of the fields, foreign keys last; what is None or an empty mapping is left out."""
        values = {key: getattr(self, key) for key in self.checks}
        kept = {key: value for key, value in values.items() if value is not None and value != {}}
        return {**{key: _plain(value) for key, value in kept.items()}, **getattr(self, "extra", {})}

    @classmethod
    def from_json(cls, source: Any) -> Self:
        """Read the JSON form and check every field; null stands for the default."""
        if not isinstance(source, Mapping):
            first = next(iter(cls.checks))
            raise DataError(f'{cls.what} must be an object such as {{"{first}": …}}, not {short_repr(source)}.')
        shape = _shape(cls)
        foreign = {key: value for key, value in source.items() if key not in cls.checks}
        if foreign and not shape.keeps_foreign:
            key, known = str(next(iter(foreign))), ", ".join(cls.checks)
            raise DataError(
                f"{cls.what} has an unknown key {short_repr(key)}.{did_you_mean(key, cls.checks)} Known keys: {known}."
            )
        if missing := [f"'{key}'" for key in cls.checks if key in shape.needed and key not in source]:
            raise DataError(f"{cls.what} needs {' and '.join(missing)}; add what is missing.")
        values: dict[str, Any] = {"extra": foreign} if shape.keeps_foreign else {}
        for key, check in cls.checks.items():
            if key in source and (source[key] is not None or key in shape.needed):
                values[key] = check(source[key], key)
        return cls(**values)


def _check(test: Callable[[Any], bool], wanted: str) -> Check:
    """Returns values that pass `test`; others must be what is `wanted`."""

    def check(value: Any, key: str) -> Any:
        if not test(value):
            raise _wrong(value, key, wanted)
        return value

    return check


text = _check(lambda value: isinstance(value, str), "text")
non_empty_text = _check(lambda value: isinstance(value, str) and value != "", "text that is not empty")
path = _check(
    lambda value: isinstance(value, str) and value != "" and "\0" not in value,
    "a path: text that is not empty and holds no null character",
)
boolean = _check(lambda value: isinstance(value, bool), "true or false")


def integer(low: int = 0) -> Check:
    """A whole number of at least `low`."""
    whole = f"a whole number of at least {low}"
    return _check(lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low, whole)


def number(low: float = -math.inf, high: float = math.inf, *, or_undefined: bool = False) -> Check:
    """A finite number in [low, high]; 71 stays an integer.

    Args:
        or_undefined: Also accept null and NaN, as NaN, which JSON writes as null.
    """
    limits = f" from {low:g} to {high:g}" if high < math.inf else f" of at least {low:g}" if low > -math.inf else ""

    def check(value: Any, key: str) -> float:
        if or_undefined and (value is None or value != value):
            return math.nan
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        # Not `isfinite`: a whole number may be too large to become a float at all.
        if not real or not abs(value) <= sys.float_info.max or not low <= value <= high:
            raise _wrong(value, key, f"a number{limits}")
        return value  # type: ignore[no-any-return]

    return check


def one_of(*options: str) -> Check:
    """One of a few texts."""

    def check(value: Any, key: str) -> str:
        if value not in options:
            raise _wrong(value, key, f"one of {', '.join(options)}", did_you_mean(str(value), options))
        return str(value)

    return check


class Word:
    """A member of an enum of the vocabulary; any other text is a `VocabularyError`."""

    def __init__(self, kind: type[StrEnum]) -> None:
        self.kind = kind

    def __call__(self, value: Any, key: str) -> StrEnum:
        """The member that `value` is or spells."""
        try:
            return self.kind(value)
        except ValueError:
            words = [member.value for member in self.kind]
            error = _wrong(value, key, f"one of {', '.join(words)}", did_you_mean(str(value), words))
            raise VocabularyError(str(error)) if isinstance(value, str) else error from None


def span(value: Any, key: str) -> tuple[int, int]:
    """Two whole numbers [start, end) with 0 ≤ start ≤ end."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(item) is int for item in value):
        start, end = value
        if 0 <= start <= end:
            return (start, end)
    raise _wrong(value, key, "two whole numbers [start, end] with 0 <= start <= end")


def list_of(check: Check) -> Callable[[Any, str], tuple[Any, ...]]:
    """A list whose items pass `check`, as a tuple."""

    def check_all(value: Any, key: str) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, key, "a list")
        return tuple(check(item, f"{key}[{index}]") for index, item in enumerate(value))

    return check_all


def mapping_of(check: Check, names: Check = text) -> Callable[[Any, str], dict[str, Any]]:
    """An object whose keys pass `names` and whose values pass `check`."""

    def check_all(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(value, key, "an object")
        return {names(name, f"a key of {key}"): check(item, f"{key}.{name}") for name, item in value.items()}

    return check_all


def parsed_by(read: Callable[[Any], Any]) -> Check:
    """What `read` returns for the value; its errors are reported under the key."""

    def check(value: Any, key: str) -> Any:
        try:
            return read(value)
        except DataError as error:
            raise type(error)(f"'{key}': {error}") from None

    return check


def _wrong(value: Any, key: str, wanted: str, hint: str = "") -> DataError:
    return DataError(f"'{key}' is {short_repr(value)}; it must be {wanted}.{hint}")


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


class _Shape(NamedTuple):
    """The fields of a record class."""

    needed: frozenset[str]  # Fields without a default
    words: tuple[tuple[str, Word], ...]  # Fields that hold a word of the vocabulary, with their check
    keeps_foreign: bool  # Whether there is a field `extra`


def _uncached_shape(cls: Any) -> _Shape:
    fields, missing = dataclasses.fields(cls), dataclasses.MISSING
    return _Shape(
        needed=frozenset(f.name for f in fields if f.default is missing and f.default_factory is missing),
        words=tuple((key, check) for key, check in cls.checks.items() if isinstance(check, Word)),
        keeps_foreign=any(f.name == "extra" for f in fields),
    )


_shape: Callable[[Any], _Shape] = functools.cache(_uncached_shape)

"""Loads the package's JSON data files and checks every entry against the dataclass it becomes."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

from cxrlab.core.errors import DataError, did_you_mean, short_repr

T = TypeVar("T")


def load_data(path: Path, cls: type[T]) -> T:
    """The content of a JSON file as a dataclass.

    Raises:
        DataError: Names the file and the entry that is missing, unknown or of a wrong type.
    """
    result: T = converted(cls, read_json(path), path.name)
    return result


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file without its comment (the key `about`); a key that occurs twice is refused."""
    try:
        data = json.loads(path.read_text("utf-8"), object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise DataError(f"{path.name} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise DataError(f"{path.name} holds {short_repr(data)}; it must hold an object.")
    return {key: value for key, value in data.items() if key != "about"}


def converted(hint: Any, value: Any, place: str) -> Any:
    """A JSON value as the type `hint`; `place` says in messages where the value stands."""
    if hint == tuple[str, ...] and isinstance(value, list) and all(type(item) is str for item in value):
        return tuple(value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        return None if value is None else converted(next(a for a in arguments if a is not NoneType), value, place)
    if origin is tuple and isinstance(value, list):
        hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(hints) == len(value):
            pairs = enumerate(zip(hints, value, strict=True), start=1)
            return tuple(converted(inner, item, f"{place}, entry {number}") for number, (inner, item) in pairs)
    if origin is Mapping and isinstance(value, dict):
        of_key, of_value = arguments
        return {
            converted(of_key, k, f"{place}, '{k}'"): converted(of_value, v, f"{place}, '{k}'") for k, v in value.items()
        }
    if is_dataclass(hint) and isinstance(value, dict):
        record: Any = hint
        types, required = _fields(record)
        for key in value:
            if key not in types:
                keys = ", ".join(types)
                raise DataError(f"{place} has the unknown key '{key}'.{did_you_mean(key, types)} Keys: {keys}.")
        if missing := [key for key in required if key not in value]:
            raise DataError(f"{place} lacks {', '.join(missing)}.")
        values = {key: converted(types[key], item, f"{place}, '{key}'") for key, item in value.items()}
        try:
            return record(**values)
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            known = [str(member.value) for member in hint]
            message = f"{place}: {short_repr(value)} is none of {', '.join(known)}.{did_you_mean(str(value), known)}"
        raise DataError(message)
    plain = isinstance(hint, type) and (isinstance(value, hint) or (hint is float and isinstance(value, int)))
    if plain and (hint is bool or not isinstance(value, bool)):
        return value
    raise DataError(f"{place} is {short_repr(value)}, which is not of the type {getattr(hint, '__name__', hint)}.")


@cache
def _fields(cls: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a dataclass with their types, and those without a default."""
    hints = typing.get_type_hints(cls)
    own = [field for field in fields(cls) if field.init]
    required = [field.name for field in own if field.default is MISSING and field.default_factory is MISSING]
    return {field.name: hints[field.name] for field in own}, tuple(required)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"the key '{repeated[0]}' occurs twice in one object")
    return dict(pairs)

"""Conversion of any value to plain JSON values and back, equally strict in both directions.

NaN becomes null, since it means "undefined" here and JSON has no word for it; infinities are refused as defects.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, NoReturn

from cxrlab.core.errors import DataError


def plain(value: Any, where: str = "value") -> Any:
    """A record, dataclass, mapping, sequence, set, enum, path, numpy value or plain value as plain JSON values.

    `where` names the value in an error message; key and index are appended on the way down.
    """
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, Enum):
        return value
    if isinstance(value, Enum):
        return plain(value.value, where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(f"{where} is infinite, which JSON cannot represent.")
        return None if math.isnan(value) else float(value)
    if isinstance(value, PurePath):
        return value.as_posix()
    if hasattr(value, "to_json"):
        return plain(value.to_json(), where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(item, where) for item in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy scalar or array, without importing numpy here
        return plain(value.tolist(), where)
    raise DataError(f"{where} is a {type(value).__name__}, which has no JSON form; use plain values.")


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON text of `value` (see `plain`), readable characters kept as they are, keys in given order."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


class InvalidJson(ValueError):
    """Text that is not JSON as this project reads it; `line` counts from 1."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def loads(text: str, *, undefined: bool = False) -> Any:
    """The value in JSON text, or `InvalidJson`.

    Beyond the grammar it refuses what would be lost or fail later: repeated keys, NaN and infinities (also numbers too
    large for a float), lone surrogates, integers of thousands of digits, and endless nesting. `undefined` allows `NaN`,
    which other programs write for a missing value.
    """
    try:
        value = (_LENIENT if undefined else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg.lower().removesuffix(' at')} at column {error.colno}", error.lineno) from None
    except InvalidJson:
        raise
    except ValueError:
        raise InvalidJson("a whole number of thousands of digits") from None
    except RecursionError:
        raise InvalidJson("nested too deeply") from None
    if lone := _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidJson(f"a lone surrogate, such as {lone[0]}") from None
    return value


def nan_if_none(value: float | None) -> float:
    """A measurement from its JSON form, in which NaN is null."""
    return math.nan if value is None else float(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [key for key, _ in pairs]
        raise InvalidJson(f"the key '{next(key for key in names if names.count(key) > 1)}' twice in one object")
    return out


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJson(f"the number {text[:40]} is too large")
    return value


def _not_a_number(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not valid in JSON; write null or leave it out")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_not_a_number)
_LENIENT = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_finite,
    parse_constant=lambda name: math.nan if name == "NaN" else _not_a_number(name),
)


def _key(key: Any, where: str) -> str:
    text = plain(key, where)
    if isinstance(text, str):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        return str(text)
    raise DataError(f"{where} has the key {key!r}; keys of a JSON object must be text or whole numbers.")

"""The JSON form of any value that the project writes down.

Records speak for themselves (`to_json`); other dataclasses, enums, paths and numpy values are
turned into plain ones. Not-a-number becomes null, since JSON has no word for it and "undefined"
is what it means here; an infinity is refused, since it is a defect of whatever computed it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from cxrlab.core.errors import DataError


def plain(value: Any, where: str = "value") -> Any:
    """`value` as dict, list, str, int, float, bool or None, all the way down.

    Args:
        value: A record, dataclass, mapping, sequence, set, enum, path, numpy scalar or array, or plain value.
        where: Name of the value in an error message; grows by key and index on the way down.
    """
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, Enum):
        return value
    if isinstance(value, Enum):
        return plain(value.value, where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(float(value), where)
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
    raise DataError(f"{where} is a {type(value).__name__}, which has no JSON form; write plain values.")


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON text of `value` (see `plain`), readable characters kept as they are, keys in given order."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _number(value: float, where: str) -> float | None:
    if math.isinf(value):
        raise DataError(f"{where} is infinite, which JSON cannot hold and no measurement should be.")
    return None if math.isnan(value) else value


def _key(key: Any, where: str) -> str:
    text = plain(key, where)
    if isinstance(text, str):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        return str(text)
    raise DataError(f"{where} has the key {key!r}; keys of a JSON object must be text or whole numbers.")

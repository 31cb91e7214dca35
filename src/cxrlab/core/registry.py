"""Lazy registries: names, and the `"module:attribute"` of each.

A package lists what it offers in one greppable dictionary. Listing the names imports nothing; the module of a row is
imported when the row is loaded.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import UnknownName, did_you_mean

_ROW = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Registry:
    """Names with their `"module:attribute"`, in order; `what` is one row, for messages.

    A malformed row, or two names that differ only in case or in `-` and `_`, raises `ValueError` at import.
    """

    def __init__(self, what: str, rows: Mapping[str, str]) -> None:
        seen: dict[str, str] = {}
        for name, target in rows.items():
            if not name or name != name.strip():
                raise ValueError(f"the registry of {what} has a row with the unusable name {name!r}.")
            if not _ROW.fullmatch(target):
                raise ValueError(f"{what} '{name}' points at {target!r}; write it as 'package.module:attribute'.")
            twin = seen.setdefault(name.lower().replace("_", "-"), name)
            if twin != name:
                raise ValueError(f"the registry of {what} lists '{twin}' and '{name}', which read alike; rename one.")
        self.what = what
        self.rows: Mapping[str, str] = MappingProxyType(dict(rows))

    def names(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def load(self, name: str) -> Any:
        """Import and return what `name` points at; an unknown name is an `UnknownName` with the nearest."""
        if name not in self.rows:
            known = ", ".join(self.rows) or "none yet"
            raise UnknownName(f"there is no {self.what} '{name}'.{did_you_mean(name, self.rows)} Known: {known}.")
        return load_reference(self.rows[name])

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Registry({self.what!r}, {', '.join(self.rows)})"


def load_reference(reference: str) -> Any:
    """The object behind `"package.module:attribute"`."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)

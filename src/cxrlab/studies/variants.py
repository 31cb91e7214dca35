"""Variants of a study: rows by name, each telling what it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
Row = TypeVar("Row")


def check_names(what: str, names: Iterable[Any]) -> None:
    """Refuse a name that could not be that of a folder.

    Args:
        what: The setting that has the names.
        names: All of them.
    """
    if wrong := [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]:
        raise ConfigError(f"{what} has the name {wrong[0]!r}; use letters, digits, - and _ alone.")


def checked_variants(cls: type[Row], variants: Mapping[str, Any]) -> dict[str, Row]:
    """The variants by name, every setting checked; all problems are told at once.

    Args:
        cls: What a row is.
        variants: Name → settings, as YAML gives them.
    """
    found: dict[str, Row] = {}
    problems: list[str] = []
    for name, values in variants.items():
        variant, wrong = parse_group(cls, values, f"variants, '{name}'")
        problems += wrong
        if variant is not None:
            found[name] = variant
    raise_problems(problems)
    return found

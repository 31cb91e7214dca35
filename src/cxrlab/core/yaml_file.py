"""YAML files with the line of every key, so that a message can point at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import yaml

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_text


def read_yaml(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping in a YAML file, and dotted key → line number from 1.

    An empty file is an empty mapping. A key that stands twice is refused: the first value would be
    lost without a word. An alias (`*name`) is refused: settings need none, and a few of them can
    stand for endless values.
    """
    name, text = os.fspath(path), read_text(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        data: dict[str, Any] = {} if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error).partition(":")[0]
        raise ConfigError(f"{place} is not valid YAML ({problem}); correct it.") from None
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{name} holds no 'key: value' lines; write one setting a line.")
    lines: dict[str, int] = {}
    for key, line in _keys(node, ""):
        if key in lines:
            raise ConfigError(f"{name}:{line} sets '{key}' again (first on line {lines[key]}); keep one of them.")
        lines[key] = line
    return data, lines


class _Loader(yaml.SafeLoader):
    """Plain values written out in full."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"'*{event.anchor}' stands for a value elsewhere; write the value out",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)


def _keys(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in node.value:
        dotted = f"{prefix}{key.value}" if isinstance(key, yaml.ScalarNode) else f"{prefix}?"
        yield dotted, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, f"{dotted}.")

"""One setting: its name, type, default and help, read off a dataclass or a function.

The command line, the YAML reader and the help text all work from this list. Values are checked
against the type hint by jsonargparse.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, shown

REQUIRED = dataclasses.MISSING
_LISTS = (tuple, list, collections.abc.Sequence)
_MOST = 2**62  # databases and generators of random numbers take no more


@dataclass(frozen=True)
class Setting:
    """One value that a user may give.

    Args:
        key: Dotted name (`train.lr`).
        hint: Its type hint.
        default: Its default, or `REQUIRED`.
        help: One sentence from the docstring, empty when there is none.
    """

    key: str
    hint: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED


def settings(target: Callable[..., Any], prefix: str = "", example: Any = None) -> list[Setting]:
    """The settings of a dataclass or function, nested dataclasses opened into dotted keys.

    Args:
        target: A dataclass, or a function with annotated parameters.
        prefix: Put before every key, with its dot.
        example: An instance of the dataclass whose values stand in for the defaults of its class.
    """
    hints = parameter_hints(target)
    described = _described(target)
    found: list[Setting] = []
    for name, default in defaults(target).items():
        value = default if example is None else getattr(example, name)
        if is_config(hints.get(name)):
            found += settings(hints[name], f"{prefix}{name}.", None if value is REQUIRED else value)
        else:
            found.append(Setting(prefix + name, hints.get(name, Any), value, described.get(name, "")))
    return found


def parameter_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Field or parameter name → type hint; a return type, which may be known to type checkers alone, is left out."""
    if isinstance(target, type):
        return typing.get_type_hints(target)
    function = inspect.unwrap(target)
    wanted = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=wanted), globalns=function.__globals__)


def is_config(hint: Any) -> bool:
    """Whether a type hint is a dataclass, that is a group of settings."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def defaults(target: Callable[..., Any]) -> dict[str, Any]:
    """Field or parameter name → default, `REQUIRED` where there is none."""
    if is_config(target):
        return {f.name: _field_default(f) for f in dataclasses.fields(target) if f.init}  # type: ignore[arg-type]
    parameters = inspect.signature(target).parameters.values()
    return {p.name: REQUIRED if p.default is p.empty else p.default for p in parameters}


def checked(setting: Setting, value: Any, *, typed: bool = False) -> Any:
    """`value` as the type of the setting, or a `ConfigError` naming key, value and expected type.

    Args:
        setting: What is asked for.
        value: A plain value from YAML or, when `typed`, the text that a person typed.
        typed: Read text as a person means it: `a,b` is a list, `null` is nothing.
    """
    from jsonargparse import ArgumentError, ArgumentParser

    given = _spoken(setting.hint, value) if typed and isinstance(value, str) else value
    wanted = [option for option in _options(setting.hint) if option is not type(None)]
    if isinstance(given, str) and wanted in ([str], [Path]):
        return wanted[0](given)  # as it is: jsonargparse would read "null" as nothing although the file quotes it
    if typing.get_args(setting.hint) == (str, Any) and _plain_mapping(given):
        return dict(given)  # likewise: it would read a quoted "off" inside as false
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=setting.hint)
    try:
        if given is None and not _optional(setting.hint):
            raise ValueError  # jsonargparse takes null for any type
        found = parser.parse_object({"value": _enum_name(setting.hint, given)}).value
    except (ArgumentError, TypeError, ValueError, OverflowError):
        quotes = " Put it in quotes." if setting.hint is str and isinstance(value, (bool, int, float)) else ""
        raise ConfigError(f"{setting.key} is {shown(value)}; it must be {type_words(setting.hint)}.{quotes}") from None
    if not _finite(found):
        raise ConfigError(f"{setting.key} is {shown(value)}; it must be finite, that is at most about 1e308.")
    if isinstance(found, int) and abs(found) >= _MOST:
        raise ConfigError(f"{setting.key} is {shown(value)}; a whole number here has less than 63 bits.")
    return found


def _plain_mapping(value: Any) -> bool:
    return isinstance(value, collections.abc.Mapping) and all(isinstance(key, str) for key in value)


def type_words(hint: Any) -> str:
    """A type hint in plain words: 'a whole number', 'one of a, b', 'a list of text'."""
    simple = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    if hint in simple:
        return simple[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(part) for part in parts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if part is type(None) else type_words(part) for part in parts)
    if origin in _LISTS and parts:
        count = f"{len(parts)} " if origin is tuple and ... not in parts else ""
        item = type_words(parts[0]).removeprefix("a ")
        return f"a list of {count}{item}" + ("s" if item.endswith(("number", "path")) else "")
    if origin in (dict, collections.abc.Mapping):
        return "a group of 'name: value' lines"
    return f"a {getattr(hint, '__name__', hint)}"


def _field_default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is REQUIRED else field.default_factory()


def _described(target: Any) -> dict[str, str]:
    from docstring_parser import DocstringStyle, parse

    params = parse(inspect.getdoc(target) or "", style=DocstringStyle.GOOGLE).params
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the hint alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _optional(hint: Any) -> bool:
    return hint is Any or type(None) in _options(hint)


def _spoken(hint: Any, text: str) -> Any:
    """Typed text for lists and null; anything else stays text for jsonargparse to read."""
    if _optional(hint) and text.strip().lower() in ("null", "none"):
        return None
    if any(typing.get_origin(option) in _LISTS for option in _options(hint)):
        return [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",") if part.strip()]
    return text


def _finite(value: Any) -> bool:
    """Whether every float in a value is a number that can be computed with."""
    if isinstance(value, (tuple, list)):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _enum_name(hint: Any, value: Any) -> Any:
    """An enum member's name for its value: jsonargparse reads names, people write values."""
    for option in _options(hint):
        if isinstance(option, type) and issubclass(option, Enum):
            return next((member.name for member in option if member.value == value), value)
    return value

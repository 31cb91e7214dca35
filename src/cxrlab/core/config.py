"""Configs: frozen dataclasses that are read from YAML files and `key=value` overrides.

A stage declares one frozen dataclass and documents its fields under `Args:` of the docstring. From it come the keys of
its YAML file, the flags of its command with their help, and the resolved config in the run folder. All problems of a
file and its overrides are reported at once.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.core.files import read_text
from cxrlab.core.json_values import plain

C = TypeVar("C")


def config_from(cls: type[C], file: str | os.PathLike[str] | None = None, overrides: Iterable[str] = ()) -> C:
    """A config from its defaults, a YAML file and overrides such as `"train.lr=1e-4"` or `"names=a,b"`; later ones win.

    One `ConfigError` names every unknown key, with the nearest ones, and every value of a wrong type.
    """
    values, problems = collect(cls, file, overrides)
    raise_problems(problems)
    return build(cls, values)


def collect(
    cls: type[Any],
    file: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    missing: Callable[[str], str] = "'{}' has no default; give it a value.".format,
) -> tuple[dict[str, Any], list[str]]:
    """The given values by dotted key, checked, and a sentence for each problem.

    Args:
        missing: Key → the sentence for a setting without a value.
    """
    data, lines = ({}, {}) if file is None else read_yaml(file)
    reader = _SettingsReader(cls)
    for key, value in reader.items(data):
        reader.add(key, value, f"{os.fspath(file or '')}:{lines.get(key, 1)}: ")
    for override in overrides:
        key, equals, text = override.partition("=")
        if equals:
            reader.add(key.strip(), text, typed=True)
        else:
            reader.problems.append(f"'{override}' is not an override; write it as key=value.")
    return reader.values, reader.problems + list(map(missing, reader.missing()))


def parse_group(cls: type[C], data: Any, place: str) -> tuple[C | None, list[str]]:
    """A config from a mapping inside a file, or None and a sentence for each problem, which names the `place`."""
    reader = _SettingsReader(cls)
    if not isinstance(data, Mapping):
        return None, [f"{place}: it is {short_repr(data)}; it must be a group of settings ({', '.join(reader.known)})."]
    for key, value in reader.items(data):
        reader.add(key, value, f"{place}: ")
    problems = reader.problems + [f"{place}: '{key}' has no default; give it a value." for key in reader.missing()]
    if problems:
        return None, problems
    try:
        return build(cls, reader.values), []
    except ConfigError as error:
        return None, [f"{place}: {error}"]


def raise_problems(problems: list[str]) -> None:
    """Raise one `ConfigError` that lists every problem; return when there is none."""
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError(f"{len(problems)} problems with the settings:\n  " + "\n  ".join(problems))


def to_dict(config: Any) -> dict[str, Any]:
    """The config as nested plain values, every field present."""
    values: dict[str, Any] = plain(config, type(config).__name__)
    return values


def to_yaml(config: Any) -> str:
    """YAML that `config_from` reads back to an equal config, fields in declared order."""
    text: str = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    return text


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one level of dotted keys; an empty mapping stays a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class _SettingsReader:
    """Checks given values against the settings of a config; collects values and problems."""

    def __init__(self, cls: type[Any]) -> None:
        self.known = {setting.key: setting for setting in settings(cls)}
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()
        self.problems: list[str] = []

    def items(self, data: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Dotted key and value; a mapping is flattened where it is a group of settings."""
        for name, value in data.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping) and self._below(key):
                yield from self.items(value, f"{key}.")
            else:
                yield key, value

    def add(self, key: str, value: Any, place: str = "", typed: bool = False) -> None:
        """Check one value and store it or the problem with it."""
        below = self._below(key)
        self.given.add(key)
        if key in self.known:
            try:
                self.values[key] = parse_value(self.known[key], value, typed=typed)
            except ConfigError as error:
                self.problems.append(f"{place}{error}")
        elif not below:
            # First the same name in another group, then similar names.
            end = key.rpartition(".")[2]
            close = [n for n in self.known if difflib.SequenceMatcher(None, end, n.rpartition(".")[2]).ratio() >= 0.75]
            names = " or ".join(f"'{name}'" for name in close[:3])
            hint = f" Did you mean {names}?" if close else did_you_mean(key, self.known)
            known = ", ".join(self.known) or "none"
            self.problems.append(f"{place}there is no setting '{key}'.{hint} Settings: {known}.")
        elif value is not None:  # an empty group in YAML means all its defaults
            self.problems.append(f"{place}'{key}' is a group of settings, not a value; set {', '.join(below)}.")

    def missing(self) -> list[str]:
        """The settings without a default that were not given."""
        return [key for key, setting in self.known.items() if setting.required and key not in self.given]

    def _below(self, key: str) -> list[str]:
        return [name for name in self.known if name.startswith(f"{key}.")]


def build(cls: type[C], values: Mapping[str, Any], base: C | None = None, prefix: str = "") -> C:
    """An instance from dotted values; missing ones come from `base`, else from the class."""
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for name, default in defaults(cls).items():
        key = f"{prefix}{name}"
        if is_config(hints[name]):
            inner = getattr(base, name) if base is not None else (None if default is REQUIRED else default)
            arguments[name] = build(hints[name], values, inner, f"{key}.")
        elif key in values:
            arguments[name] = values[key]
        elif base is not None:
            arguments[name] = getattr(base, name)
    try:
        return cls(**arguments)
    except ConfigError as error:
        if not prefix:
            raise
        raise ConfigError(f"in '{prefix[:-1]}': {error}") from None


REQUIRED = dataclasses.MISSING
_LISTS = (tuple, list, collections.abc.Sequence)
_MAX_INTEGER = 2**62  # databases and random generators take no more


@dataclass(frozen=True)
class Setting:
    """One value that a user may give: dotted name (`train.lr`), type hint, default and one sentence of help."""

    key: str
    hint: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def settings(target: Callable[..., Any], prefix: str = "", example: Any = None) -> list[Setting]:
    """The settings of a dataclass or function; groups come last, with dotted keys.

    Of a dataclass the required fields come first, and those of base classes after its own.

    Args:
        prefix: Put before every key, with its dot.
        example: An instance of the dataclass whose values replace the defaults of its class.
    """
    from docstring_parser import DocstringStyle, parse

    hints, values = parameter_hints(target), defaults(target)
    described: dict[str, str] = {}
    level: dict[str, int] = {}  # of the class that a field is from, 0 for the class itself
    classes: list[Any] = [base for base in getattr(target, "__mro__", ()) if is_config(base)]
    # The docstring of a derived dataclass describes only its own fields.
    for number, documented in reversed(list(enumerate(classes or [target]))):
        level |= dict.fromkeys(vars(documented).get("__annotations__", ()), number)
        for param in parse(inspect.getdoc(documented) or "", style=DocstringStyle.GOOGLE).params:
            described[param.arg_name] = " ".join((param.description or "").split())
    names = list(values)
    if classes:
        names.sort(key=lambda name: (values[name] is not REQUIRED, is_config(hints.get(name)), level.get(name, 0)))
    found: list[Setting] = []
    for name in names:
        default = values[name]
        value = default if example is None else getattr(example, name)
        if is_config(hints.get(name)):
            found += settings(hints[name], f"{prefix}{name}.", None if value is REQUIRED else value)
        else:
            found.append(Setting(prefix + name, hints.get(name, Any), value, described.get(name, "")))
    return found


def parameter_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Field or parameter name → type hint, without the return type, which only type checkers may know."""
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
        fields = [field for field in dataclasses.fields(target) if field.init]  # type: ignore[arg-type]
        return {f.name: f.default if f.default_factory is REQUIRED else f.default_factory() for f in fields}
    parameters = inspect.signature(target).parameters.values()
    return {p.name: REQUIRED if p.default is p.empty else p.default for p in parameters}


def check_at_least(config: object, most: Mapping[str, int] = types.MappingProxyType({}), /, **least: int) -> None:
    """Refuse fields that are not whole numbers of at least `least` and, where given, at most `most`; None passes."""
    for name, low in least.items():
        value, high = getattr(config, name), most.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not whole or value < low or (high is not None and value > high)):
            limit = f"of at least {low}" if high is None else f"from {low} to {high:,}"
            raise ConfigError(f"{name}={value!r} is not usable; give a whole number {limit}.")


def check_choice(name: str, value: str, known: Collection[str], more: str = "") -> None:
    """Refuse a value that is not among the known ones; `more` is put behind their list."""
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise ConfigError(f"{name}={value!r} is unknown.{hint} Choose one of {', '.join(known)}{more}.")


def parse_value(setting: Setting, value: Any, *, typed: bool = False) -> Any:
    """`value` as the type of the setting, or a `ConfigError` that names key, value and expected type.

    A value is plain, from YAML, or `typed` on a command line: then `a,b` is a list and `null` is None.
    """
    # jsonargparse checks one value against any type hint (unions, literals, lists, enums, nested dictionaries). Its own
    # reading of files and command lines is not used: it stops at the first problem and names neither line nor near key.
    from jsonargparse import ArgumentError, ArgumentParser

    hint, given = setting.hint, value
    if typed and isinstance(value, str):  # lists and null, where the type allows them
        if _optional(hint) and value.strip().lower() in ("null", "none"):
            given = None
        elif any(typing.get_origin(option) in _LISTS for option in _options(hint)):
            items = value.strip().removeprefix("[").removesuffix("]").split(",")
            given = [item.strip() for item in items if item.strip()]
    wanted = [option for option in _options(hint) if option is not type(None)]
    if isinstance(given, str) and wanted in ([str], [Path]):
        return wanted[0](given)  # as it is: jsonargparse would read "null" as nothing although the file quotes it
    names = given if isinstance(given, collections.abc.Mapping) else (None,)
    if typing.get_args(hint) == (str, Any) and all(isinstance(name, str) for name in names):
        return dict(given)  # likewise: it would read a quoted "off" inside as false
    for option in wanted:  # jsonargparse reads the names of an enum, people write its values
        if isinstance(option, type) and issubclass(option, Enum):
            given = next((member.name for member in option if member.value == given), given)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    try:
        if given is None and not _optional(hint):
            raise ValueError  # jsonargparse takes null for any type
        found = parser.parse_object({"value": given}).value
    except (ArgumentError, TypeError, ValueError, OverflowError):
        quotes = " Put it in quotes." if hint is str and isinstance(value, (bool, int, float)) else ""
        raise ConfigError(f"{setting.key} is {short_repr(value)}; it must be {type_words(hint)}.{quotes}") from None
    if not _finite(found):
        raise ConfigError(f"{setting.key} is {short_repr(value)}; it must be finite, at most about 1e308.")
    if isinstance(found, int) and abs(found) >= _MAX_INTEGER:
        raise ConfigError(f"{setting.key} is {short_repr(value)}; it must be a whole number of less than 63 bits.")
    return found


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


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the hint alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _optional(hint: Any) -> bool:
    return hint is Any or type(None) in _options(hint)


def _finite(value: Any) -> bool:
    """Whether every float in a value is a number that can be computed with."""
    if isinstance(value, (tuple, list)):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def read_yaml(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping in a YAML file (empty for an empty file), and dotted key → line number from 1.

    Repeated keys are refused, since YAML would silently drop the first value, and so are aliases (`*name`), since a few
    of them can expand to endless values.
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
        raise ConfigError(f"{name} holds no 'key: value' lines; write one setting per line.")
    lines: dict[str, int] = {}
    for key, line in _keys(node, ""):
        if key in lines:
            raise ConfigError(f"{name}:{line} sets '{key}' again (first on line {lines[key]}); keep one of them.")
        lines[key] = line
    return data, lines


class _Loader(yaml.SafeLoader):
    """Refuses aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"'*{event.anchor}' is an alias; write out the value", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


def _keys(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in node.value:
        dotted = f"{prefix}{key.value}" if isinstance(key, yaml.ScalarNode) else f"{prefix}?"
        yield dotted, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, f"{dotted}.")

"""Configs: frozen dataclass ⇄ YAML ⇄ `key=value` overrides.

A stage declares one frozen dataclass, its fields documented under `Args:` of the docstring. From
it come the keys of its YAML file, the flags of its command with their help, and the resolved
config in the run folder. Every problem of a file and its overrides is reported at once.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from cxrlab.core.errors import ConfigError, nearest, shown
from cxrlab.core.json_form import plain
from cxrlab.core.settings import REQUIRED, Setting, checked, defaults, is_config, settings

C = TypeVar("C")


def config_from(cls: type[C], file: str | os.PathLike[str] | None = None, overrides: Iterable[str] = ()) -> C:
    """A config from defaults, then a YAML file, then overrides, the last word winning.

    Args:
        cls: A frozen dataclass.
        file: YAML with the same keys, nested as the dataclass is.
        overrides: `"train.lr=1e-4"` each, as typed on a command line; a list may be given as `a,b,c`.

    Raises:
        ConfigError: Naming every unknown key (with the nearest ones) and every value of a wrong type.
    """
    values, problems = gather(cls, file, overrides)
    raise_problems(problems)
    return build(cls, values)


def gather(
    cls: type[Any],
    file: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    missing: Callable[[str], str] = "'{}' has no default; give it a value.".format,
) -> tuple[dict[str, Any], list[str]]:
    """Dotted key → checked value of everything that was given, and a sentence for everything that is wrong.

    Args:
        cls: A frozen dataclass.
        file: YAML with the same keys.
        overrides: `key=value` each.
        missing: Key → the sentence for a setting that nobody gave.
    """
    from cxrlab.core.yaml_file import read_yaml

    data, lines = ({}, {}) if file is None else read_yaml(file)
    desk = _Desk({setting.key: setting for setting in settings(cls)})
    for key, value in desk.leaves(data):
        desk.take(key, value, f"{os.fspath(file or '')}:{lines.get(key, 1)}: ")
    for override in overrides:
        key, equals, text = override.partition("=")
        if equals:
            desk.take(key.strip(), text, typed=True)
        else:
            desk.problems.append(f"'{override}' is not an override; write it as key=value.")
    desk.problems += [missing(key) for key, setting in desk.known.items() if setting.required and key not in desk.given]
    return desk.values, desk.problems


def nested(cls: type[C], data: Any, place: str) -> tuple[C | None, list[str]]:
    """A config from a mapping that stands inside a file, or None and a sentence for everything that is wrong.

    Args:
        cls: A frozen dataclass.
        data: Its values, as YAML gives them.
        place: What the mapping is, for the sentences ("members, 'brax'").
    """
    if not isinstance(data, Mapping):
        names = ", ".join(setting.key for setting in settings(cls))
        return None, [f"{place}: it is {shown(data)}; it must be a group of settings ({names})."]
    desk = _Desk({setting.key: setting for setting in settings(cls)})
    for key, value in desk.leaves(data):
        desk.take(key, value, f"{place}: ")
    needed = [key for key, setting in desk.known.items() if setting.required and key not in desk.given]
    problems = desk.problems + [f"{place}: '{key}' has no default; give it a value." for key in needed]
    if problems:
        return None, problems
    try:
        return build(cls, desk.values), []
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
    import yaml

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


class _Desk:
    """Collects values that passed and problems that did not, against the known settings."""

    def __init__(self, known: Mapping[str, Setting]) -> None:
        self.known = known
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()
        self.problems: list[str] = []

    def leaves(self, data: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Dotted key and value; a mapping is opened where settings stand below it."""
        for name, value in data.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping) and self._below(key):
                yield from self.leaves(value, f"{key}.")
            else:
                yield key, value

    def take(self, key: str, value: Any, place: str = "", typed: bool = False) -> None:
        """Check one value and keep it, or note what is wrong with it."""
        below = self._below(key)
        self.given.add(key)
        if key in self.known:
            try:
                self.values[key] = checked(self.known[key], value, typed=typed)
            except ConfigError as error:
                self.problems.append(f"{place}{error}")
        elif not below:
            names = ", ".join(self.known) or "none"
            self.problems.append(f"{place}there is no setting '{key}'.{_closest(key, self.known)} Settings: {names}.")
        elif value is not None:  # an empty group in YAML means all its defaults
            self.problems.append(f"{place}'{key}' is a group of settings, not a value; set {', '.join(below)}.")

    def _below(self, key: str) -> list[str]:
        return [name for name in self.known if name.startswith(f"{key}.")]


def _closest(key: str, known: Iterable[str]) -> str:
    """Did-you-mean over last parts first, for a good key in the wrong group, then over whole keys."""
    names, last = list(known), key.rpartition(".")[2]
    tails = [name for name in names if difflib.SequenceMatcher(None, last, name.rpartition(".")[2]).ratio() >= 0.75]
    return " Did you mean " + " or ".join(f"'{n}'" for n in tails[:3]) + "?" if tails else nearest(key, names)


def build(cls: type[C], values: Mapping[str, Any], base: C | None = None, prefix: str = "") -> C:
    """An instance with the given dotted values; what was not given comes from `base`, else from the class."""
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

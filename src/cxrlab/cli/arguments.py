"""From a typed function to flags, and from argv to its arguments.

A parameter whose type is a dataclass is a config: its fields become flags of their own
(`config: PhantomConfig` gives `--n`, `--size`, …) and `--config FILE.yaml` may set them. Words
are only sorted here; `core.settings` and `core.config` check what they mean, so that a file, an
override and a flag are refused in the same words.
"""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from cxrlab.cli.commands import Command
from cxrlab.core.config import (
    Setting,
    build,
    collect,
    is_config,
    parameter_hints,
    parse_value,
    raise_problems,
    settings,
)
from cxrlab.core.errors import ConfigError, did_you_mean

_COMMON = {
    "--json": "print the result as JSON",
    "--quiet": "show no progress",
    "--debug": "show the traceback of an error",
}
_AHEAD = "."  # no setting begins so
_TRUTH = {"true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True)
class Invocation:
    """One parsed command line.

    Args:
        arguments: For the function, by name.
        json: Whether the result is wanted as JSON.
        quiet: Whether progress is unwanted.
    """

    arguments: dict[str, Any]
    json: bool
    quiet: bool


class _Parser(argparse.ArgumentParser):
    """Reports a mistake as a `ConfigError` instead of leaving the program."""

    def error(self, message: str) -> NoReturn:
        kind, colon, words = message.partition("unrecognized arguments: ")
        if colon and not kind:
            message = (
                f"'{words}' belongs to no flag; text of several words goes in quotes, and several values of a flag are "
                "joined with commas"
            )
        raise ConfigError(f"{message[:1].lower()}{message[1:]}; see '{self.prog} --help'.")


class _Switch(argparse.Action):
    """`--name` is true, `--no-name` is false; kept as text, like every other flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=None, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, "true" if option_string == self.option_strings[0] else "false")


class _Gather(argparse.Action):
    """A list flag that is given twice adds to the list; kept as text, like every other flag."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if not str(values).strip(" ,[]"):
            parser.error(f"{option_string} is empty; name something, or leave the flag out")
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{values}" if before is None else f"{before},{values}")


class CommandLine:
    """The flags of one command.

    Args:
        name: What the user types after `cxrlab`.
        command: Its row in the table.
        function: The loaded target.
    """

    def __init__(self, name: str, command: Command, function: Callable[..., Any]) -> None:
        self.name, self.command, self.function = name, command, function
        configs = {name: hint for name, hint in parameter_hints(function).items() if is_config(hint)}
        if len(configs) > 1:
            raise TypeError(f"{command.target} takes more than one config: {', '.join(configs)}")
        self.config_name: str | None = next(iter(configs), None)
        self.config_type: Any = next(iter(configs.values()), None)
        self.own: dict[str, Setting] = {}
        self.of_config: dict[str, Setting] = {}
        for setting in settings(function):
            group, dot, rest = setting.key.partition(".")
            if dot and group == self.config_name:
                self.of_config[rest] = replace(setting, key=rest)
            else:
                self.own[setting.key] = setting
        if clash := self.own.keys() & self.of_config.keys():
            raise TypeError(f"{command.target} and its config share the names {', '.join(sorted(clash))}")
        self.parser = self._build()
        actions = self.parser._actions
        self.flags = [flag for action in actions for flag in action.option_strings if flag != "-h"]
        self.switches = {flag for action in actions if action.nargs == 0 for flag in action.option_strings}

    def parse(self, argv: Sequence[str]) -> Invocation:
        """Sort and check the words; every problem is reported at once."""
        given = vars(self.parser.parse_args(self._tidy(argv)))
        problems: list[str] = []
        arguments: dict[str, Any] = {}
        for key in (key for key in self.command.positional if key in self.of_config):
            word = given.pop(_ahead(key))
            if word is not None and given[key] is not None:
                problems.append(
                    f"'{word}' stands in the place of {_flag(key)}, which is given too; give one of them (several "
                    "values of a flag are joined with commas)."
                )
            given[key] = word if given[key] is None else given[key]
        for key, setting in self.own.items():
            if given.get(key) not in (None, []):
                try:
                    arguments[key] = parse_value(_as_flag(setting), given[key], typed=True)
                except ConfigError as error:
                    problems.append(str(error))
            elif setting.required:
                problems.append(self._missing(_shown(setting, self.command)))
        values: dict[str, Any] = {}
        if self.config_name is not None:
            overrides = [f"{key}={given[key]}" for key in self.of_config if given.get(key) is not None]
            values, more = collect(self.config_type, given["--config"], overrides, self._missing_setting)
            problems += map(self.with_flags, more)
        raise_problems(problems)
        if self.config_name is not None:
            try:
                arguments[self.config_name] = build(self.config_type, values)
            except ConfigError as error:
                raise type(error)(self.with_flags(str(error))) from None
        return Invocation(arguments, json=given["--json"], quiet=given["--quiet"])

    def _missing(self, what: str) -> str:
        return f"{what} is missing; for example: {self.command.example}."

    def _missing_setting(self, key: str) -> str:
        if _in_file_alone(self.of_config[key]):
            return self._missing(f"'{key}', a group of settings that stands in the file of --config,")
        return self._missing(_flag(key))

    def with_flags(self, message: str, *, of_settings: bool = True) -> str:
        """A message in which each setting of this command is written as its flag.

        Messages name settings as Python does (`image_bound=2`, `detector.image_bound`), since callers of the functions
        read them too. A sentence about a line of a file keeps the keys of that file.

        Args:
            message: The message of an error.
            of_settings: Whether its first word may be the name of a setting.
        """
        return "\n".join(self._line_with_flags(line, of_settings) for line in message.split("\n"))

    def _line_with_flags(self, line: str, of_settings: bool) -> str:
        if re.match(r"\s*\S+:\d+: ", line):
            return line
        told = re.match(r"in '([\w.]+)': ", line)
        group = f"{told[1]}." if told else ""
        rest = line[told.end() :] if told else line
        keys = [*self.own, *self.of_config]

        def flag(match: re.Match[str]) -> str:
            word = match[0]
            after = rest[match.end() : match.end() + 1]
            begins = of_settings and after == " " and not rest[: match.start()].strip()
            if not (begins or "_" in word or "." in word or after == "="):
                return word
            tails = [key for key in keys if key.endswith(f".{word}")]
            key = next((key for key in (group + word, word) if key in keys), tails[0] if len(tails) == 1 else "")
            return _flag(key) if _flag(key) in self.flags else word

        found = re.sub(r"(?<![\w'\"./-])[a-z]\w*(?:\.[a-z]\w*)*(?!['\w/])", flag, rest)
        return line if found == rest else found

    def help(self) -> str:
        """The page that `--help` prints."""
        return self.parser.format_help()

    def _build(self) -> _Parser:
        parser = _Parser(
            prog=f"cxrlab {self.name}",
            usage=self._usage(),
            description=_description(self.function) or self.command.help,
            epilog=f"example:\n  {self.command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name in self.command.positional:
            # Of a config, a word without a flag stands for the flag of that name, which stays.
            own = name in self.own
            _add_positional(parser, self.own[name] if own else replace(self.of_config[name], key=_ahead(name)))
        for setting in (*self.own.values(), *self.of_config.values()):
            by_place = setting.key in self.command.positional and setting.key in self.own
            if not by_place and not _in_file_alone(setting):
                _add_flag(parser, setting)
        if self.config_type is not None:
            parser.add_argument(
                "--config", dest="--config", metavar="FILE", type=Path, help="YAML file with these settings"
            )
        if "seed" not in self.own and "seed" not in self.of_config:
            parser.add_argument("--seed", metavar="N", help="accepted by every command; without effect on this one")
        for flag, text in _COMMON.items():
            parser.add_argument(flag, dest=flag, action="store_true", help=text)
        return parser

    def _usage(self) -> str:
        words = [f"cxrlab {self.name}"]
        for name in self.command.positional:
            word = _positional_name(self.own.get(name) or self.of_config[name])
            words.append(word if name in self.own and self.own[name].required else f"[{word}]")
        needed = [s for s in (*self.own.values(), *self.of_config.values()) if s.required]
        needed = [s for s in needed if s.key not in self.command.positional]
        words += [f"{_flag(s.key)} {_metavar(s.hint)}" for s in needed if not _in_file_alone(s)]
        words += ["--config FILE"] if any(map(_in_file_alone, needed)) else []
        return " ".join([*words, "[flags]"])

    def _tidy(self, argv: Sequence[str]) -> list[str]:
        """Underscores in flags become dashes, `--flag=false` becomes `--no-flag`; an unknown flag is refused here."""
        known = self.flags
        tidy: list[str] = []
        for index, word in enumerate(argv):
            if word == "--":
                return [*tidy, *argv[index:]]
            if not word.startswith("--"):
                tidy.append(word)
                continue
            name, equals, value = word.partition("=")
            flag = name.replace("_", "-")
            if flag not in known:
                raise ConfigError(
                    f"'cxrlab {self.name}' has no flag {name}.{did_you_mean(flag, known)} See 'cxrlab {self.name} --help'."
                )
            tidy.append(self._switched(flag, value) if equals and flag in self.switches else flag + equals + value)
        return tidy

    def _switched(self, flag: str, value: str) -> str:
        """`--masks=false` as `--no-masks`; a flag without an opposite takes no value."""
        opposite = f"--no-{flag[2:]}"
        if opposite not in self.switches:
            raise ConfigError(f"{flag} takes no value, not '{value}'; write {flag} alone.")
        if value.lower() not in _TRUTH:
            raise ConfigError(
                f"{flag} is '{value}'; it must be one of {', '.join(_TRUTH)}, or write {flag} or {opposite} alone."
            )
        return flag if _TRUTH[value.lower()] else opposite


def _add_positional(parser: argparse.ArgumentParser, setting: Setting) -> None:
    several = _is_list(setting.hint)
    parser.add_argument(
        setting.key,
        metavar=_positional_name(setting),
        # The count is left open so that a missing one is reported in our words, with an example.
        nargs="*" if several else "?",
        default=None,
        help=setting.help.replace("%", "%%"),
    )


def _positional_name(setting: Setting) -> str:
    key = setting.key.lstrip(_AHEAD)
    return f"{key.upper().removesuffix('S')}…" if _is_list(setting.hint) else key.upper()


def _ahead(key: str) -> str:
    """Where the parser keeps the word without a flag that stands for a setting of a config."""
    return _AHEAD + key


def _add_flag(parser: argparse.ArgumentParser, setting: Setting) -> None:
    flag, note = _flag(setting.key), ""
    if setting.required:
        note = " (required)"
    elif setting.default is not None and setting.default not in ((), ""):
        note = f" (default: {_default_words(setting.default)})"
    text = (setting.help + note).strip().replace("%", "%%")
    if setting.hint is bool:
        parser.add_argument(flag, f"--no-{flag[2:]}", dest=setting.key, action=_Switch, help=text)
    else:
        action: Any = _Gather if _is_list(setting.hint) else "store"
        parser.add_argument(flag, dest=setting.key, action=action, metavar=_metavar(setting.hint), help=text)


def _default_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _as_flag(setting: Setting) -> Setting:
    return replace(setting, key=_flag(setting.key))


def _shown(setting: Setting, command: Command) -> str:
    return _positional_name(setting) if setting.key in command.positional else _flag(setting.key)


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) in (list, tuple, Sequence)


def _in_file_alone(setting: Setting) -> bool:
    """Whether a setting is a group of names and values, which nobody can type on one line."""
    return typing.get_origin(setting.hint) in (dict, Mapping)


def _metavar(hint: Any) -> str:
    names = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
    options = [part for part in typing.get_args(hint) if part is not type(None)] or [hint]
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(map(str, options))
    if _is_list(hint):
        return "A,B,…"
    return names.get(options[0], "VALUE")


def _description(function: Callable[..., Any]) -> str:
    from docstring_parser import DocstringStyle, parse

    found = parse(inspect.getdoc(function) or "", style=DocstringStyle.GOOGLE)
    return "\n\n".join(part for part in (found.short_description, found.long_description) if part)

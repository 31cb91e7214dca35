"""Flags of a command from the signature of its function, and the function's arguments from a command line.

A parameter whose type is a dataclass is a config: its fields become flags of their own (`config: PhantomConfig` gives
`--n`, `--size`, …) and `--config FILE.yaml` may set them. `core.config` checks the values, so that a file and a flag are
refused with the same message.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from cxrlab.cli.commands import Command
from cxrlab.cli.output import FORMATS
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
    "--json": "print the result as JSON, with everything that is known",
    "--quiet": "show no progress",
    "--debug": "show the traceback of an error",
}
_DEFAULT_HELP = {  # of parameters that the docstring of a function does not describe
    "out": "Folder to write; made if it does not exist.",
    "engine": "Where the work is done: local is this process (with 'accelerate launch -m cxrlab …' all launched "
    "processes); ray is workers of Ray, which needs the extra 'scale'. The files are the same.",
    "workers": "Workers of --engine ray; 0 for one per GPU, or one per two cores.",
    "gpus_per_worker": "GPUs of each worker of Ray, such as 0.5; one by default where there are any.",
    "ray_address": "A running cluster of Ray, such as auto or HOST:6379; by default Ray is started on this machine.",
    "seed": "Seed of the training, instead of --optimisation.seed: order of samples, initial weights, dropout, draws.",
}
_POSITIONAL = "."  # before the key under which the parser keeps a positional word for a setting of a config
_TRUTH = {"true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True)
class Invocation:
    """One parsed command line: arguments of the function by name, the format of the output, and --quiet."""

    arguments: dict[str, Any]
    format: str
    quiet: bool


class _Parser(argparse.ArgumentParser):
    """Raises a `ConfigError` for a mistake instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        kind, colon, words = message.partition("unrecognized arguments: ")
        if colon and not kind:
            message = (
                f"unexpected argument '{words}': put text with spaces in quotes, and join several values of a flag with "
                "commas"
            )
        raise ConfigError(f"{message[:1].lower()}{message[1:]}; see '{self.prog} --help'.")


class _Switch(argparse.Action):
    """`--name` is true, `--no-name` is false; kept as text, like every other flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=None, help=help)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, "true" if option_string == self.option_strings[0] else "false")


class _Gather(argparse.Action):
    """A list flag that is given twice adds to the list; kept as text, like every other flag."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if not str(values).strip(" ,[]"):
            parser.error(f"{option_string} is empty; give a value, or leave the flag out")
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{values}" if before is None else f"{before},{values}")


class CommandLine:
    """The flags of one command: its name after `cxrlab`, its row in the table, and its function."""

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
            if not setting.help:
                setting = replace(setting, help=_DEFAULT_HELP.get(setting.key, ""))
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
        """Check the words and build the function's arguments; all problems are reported at once."""
        given = vars(self.parser.parse_args(self._tidy(argv)))
        problems: list[str] = []
        if given["--json"]:
            if given.get("--format") not in (None, "json"):
                problems.append(f"--json and --format {given['--format']} contradict each other; give one of them.")
            given["--format"] = "json"
        arguments: dict[str, Any] = {}
        for key in (key for key in self.command.positional if key in self.of_config):
            word = given.pop(_POSITIONAL + key)
            if word is not None and given[key] is not None:
                problems.append(
                    f"'{word}' and {_flag(key)} set the same value; give one of them (join several values with commas)."
                )
            given[key] = word if given[key] is None else given[key]
        for key, setting in self.own.items():
            if given.get(key) not in (None, []):
                try:
                    arguments[key] = parse_value(replace(setting, key=_flag(key)), given[key], typed=True)
                except ConfigError as error:
                    problems.append(str(error))
            elif setting.required:
                positional = key in self.command.positional
                problems.append(self._missing(_positional_name(setting) if positional else _flag(key)))
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
        return Invocation(arguments, format=given.get("--format") or "table", quiet=given["--quiet"])

    def _missing(self, what: str) -> str:
        return f"{what} is missing; for example: {self.command.example}."

    def _missing_setting(self, key: str) -> str:
        if _only_in_file(self.of_config[key]):
            return self._missing(f"'{key}', a group of settings that only the file of --config can hold,")
        return self._missing(_flag(key))

    def with_flags(self, message: str, *, of_settings: bool = True) -> str:
        """The message of an error in which each setting of this command is written as its flag.

        Messages name settings as Python does (`image_bound=2`, `detector.image_bound`), since callers of the functions
        read them too. A sentence about a line of a file keeps the keys of that file. `of_settings` states whether the
        first word may be the name of a setting.
        """
        return "\n".join(self._line_with_flags(line, of_settings) for line in message.split("\n"))

    def _line_with_flags(self, line: str, of_settings: bool) -> str:
        if re.match(r"\s*\S+:\d+: ", line):
            return line
        within = re.match(r"in '([\w.]+)': ", line)
        group = f"{within[1]}." if within else ""
        rest = line[within.end() :] if within else line
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
        return self.parser.format_help()

    def _build(self) -> _Parser:
        from docstring_parser import DocstringStyle, parse

        doc = parse(inspect.getdoc(self.function) or "", style=DocstringStyle.GOOGLE)
        description = "\n\n".join(part for part in (doc.short_description, doc.long_description) if part)
        description = _fitted(description)
        parser = _Parser(
            prog=f"cxrlab {self.name}",
            usage=self._usage(),
            description=description or self.command.help,
            epilog=f"example:\n  {self.command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name in self.command.positional:
            setting = self.own.get(name) or self.of_config[name]
            parser.add_argument(
                name if name in self.own else _POSITIONAL + name,
                metavar=_positional_name(setting),
                # Any number is accepted here, so that a missing word is reported by `parse`, with an example.
                nargs="*" if _is_list(setting.hint) else "?",
                default=None,
                help=self._help(setting),
            )
        for setting in (*self.own.values(), *self.of_config.values()):
            positional = setting.key in self.command.positional and setting.key in self.own
            if positional or _only_in_file(setting):
                continue
            flag, note, default = _flag(setting.key), "", setting.default
            if setting.required:
                note = " (required)"
            elif default is not None and default not in ((), ""):
                words = {"True": "yes", "False": "no"}.get(str(default), str(default))
                note = f" (default: {','.join(map(str, default)) if isinstance(default, (tuple, list)) else words})"
            more: dict[str, Any] = {"dest": setting.key, "help": (self._help(setting) + note).strip()}
            if setting.hint is bool:
                parser.add_argument(flag, f"--no-{flag[2:]}", action=_Switch, **more)
            else:
                action: Any = _Gather if _is_list(setting.hint) else "store"
                parser.add_argument(flag, action=action, metavar=_metavar(setting.hint), **more)
        if self.config_type is not None:
            parser.add_argument(
                "--config", dest="--config", metavar="FILE", type=Path, help="YAML file with these settings"
            )
        if "seed" not in self.own and "seed" not in self.of_config:
            parser.add_argument("--seed", metavar="N", help="accepted by every command; has no effect on this one")
        if self.command.tables:
            parser.add_argument(
                "--format",
                dest="--format",
                choices=tuple(FORMATS),
                metavar="|".join(FORMATS),
                help="how to print the tables (default: table): csv with full precision and intervals in columns of "
                "their own, md for Markdown, latex for a tabular with booktabs, json for everything",
            )
        for flag, text in _COMMON.items():
            parser.add_argument(flag, dest=flag, action="store_true", help=text)
        return parser

    def _help(self, setting: Setting) -> str:
        """The help of a setting, in which `setting_name` is written as the flag of that setting."""
        group, known = setting.key.rpartition(".")[0], {*self.own, *self.of_config}

        def flag(match: re.Match[str]) -> str:
            keys = (key for key in (f"{group}.{match[1]}", match[1]) if key in known)
            return next(map(_flag, keys), match[0])

        return re.sub(r"`([a-z][\w.]*)`", flag, setting.help).replace("%", "%%")

    def _usage(self) -> str:
        words = [f"cxrlab {self.name}"]
        for name in self.command.positional:
            word = _positional_name(self.own.get(name) or self.of_config[name])
            words.append(word if name in self.own and self.own[name].required else f"[{word}]")
        needed = [s for s in (*self.own.values(), *self.of_config.values()) if s.required]
        needed = [s for s in needed if s.key not in self.command.positional]
        words += [f"{_flag(s.key)} {_metavar(s.hint)}" for s in needed if not _only_in_file(s)]
        words += ["--config FILE"] if any(map(_only_in_file, needed)) else []
        return " ".join([*words, "[flags]"])

    def _tidy(self, argv: Sequence[str]) -> list[str]:
        """Underscores in flags become dashes, `--flag=false` becomes `--no-flag`; an unknown flag is refused."""
        tidy: list[str] = []
        for index, word in enumerate(argv):
            if word == "--":
                return [*tidy, *argv[index:]]
            if not word.startswith("--"):
                tidy.append(word)
                continue
            name, equals, value = word.partition("=")
            flag = name.replace("_", "-")
            if flag not in self.flags:
                raise ConfigError(
                    f"'cxrlab {self.name}' has no flag {name}.{did_you_mean(flag, self.flags)} See 'cxrlab {self.name} "
                    "--help'."
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


def _fitted(text: str) -> str:
    """Paragraphs filled to the width that argparse gives the flags; one with indented lines stays as it is."""
    width = max(shutil.get_terminal_size().columns - 2, 20)
    return "\n\n".join(
        part if re.search(r"^ ", part, re.M) else textwrap.fill(part, width, break_on_hyphens=False)
        for part in text.split("\n\n")
    )


def _positional_name(setting: Setting) -> str:
    name = setting.key.upper()
    return f"{name.removesuffix('S')}…" if _is_list(setting.hint) else name


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) in (list, tuple, Sequence)


def _only_in_file(setting: Setting) -> bool:
    """Whether a setting is a group of names and values, which has no flag."""
    return typing.get_origin(setting.hint) in (dict, Mapping)


def _metavar(hint: Any) -> str:
    names = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
    options = [part for part in typing.get_args(hint) if part is not type(None)] or [hint]
    if choices := literal_choices(hint):
        return "|".join(choices)
    if _is_list(hint):
        return "A,B,…"
    return names.get(options[0], "VALUE")


def literal_choices(hint: Any) -> list[str]:
    """The values of a setting that takes one of a few words; empty for any other."""
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
    return [choice for part in parts for choice in literal_choices(part)]

"""`cxrlab completion`: a script that completes commands, flags and values in a shell, made from the command table.

The script holds every word, so that pressing the tab key starts no Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from cxrlab.cli.arguments import CommandLine, literal_choices
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.output import Result
from cxrlab.core.records import SPLITS
from cxrlab.core.registry import load_reference

# Values of settings whose type does not list them: (command, setting) → registry.
_REGISTRIES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("data about", "name"): "cxrlab.data.importing:IMPORTERS",
        ("data import", "name"): "cxrlab.data.importing:IMPORTERS",
        ("data export", "layout"): "cxrlab.data.export:EXPORTERS",
        ("models convert", "layout"): "cxrlab.models.convert:CONVERTERS",
        ("robustness", "attacks"): "cxrlab.attacks.config:ATTACKS",
        ("detect", "detectors"): "cxrlab.extraction.detection.base:DETECTORS",
        ("defend", "defences"): "cxrlab.extraction.defence.base:DEFENCES",
    }
)


def completion(shell: Literal["bash", "zsh", "fish"]) -> Result:
    """Print a script that completes commands, flags and values in a shell.

    bash: source <(cxrlab completion bash), or write it once to ~/.local/share/bash-completion/completions/cxrlab.
    zsh: source <(cxrlab completion zsh) in ~/.zshrc, after compinit. fish: cxrlab completion fish >
    ~/.config/fish/completions/cxrlab.fish. Write it again after an update of cxrlab.

    Args:
        shell: bash, zsh or fish.
    """
    commands = [_words_of(name) for name in COMMANDS]
    script = _fish(commands) if shell == "fish" else _bash(commands, zsh=shell == "zsh")
    return Result(script.rstrip("\n"), {"shell": shell, "script": script})


@dataclass(frozen=True)
class _Argument:
    """A flag, or a word without a flag: the values that it takes."""

    name: str  # With its dashes; empty for a word
    help: str = ""
    values: tuple[str, ...] = ()
    path: bool = False
    takes_value: bool = True
    several: bool = False  # Values are joined with commas


@dataclass(frozen=True)
class _Command:
    name: str
    help: str
    arguments: tuple[_Argument, ...]

    def named(self, *, with_value: bool = False) -> list[_Argument]:
        """The flags, or those that take a value."""
        return [one for one in self.arguments if one.name and (one.takes_value or not with_value)]

    @property
    def first_word(self) -> _Argument:
        """The first argument without a flag; one without values where there is none."""
        return next((one for one in self.arguments if not one.name), _Argument(""))


def _words_of(name: str) -> _Command:
    """A command with its flags and their values."""
    command = COMMANDS[name]
    line = CommandLine(name, command, load_reference(command.target))
    settings = {**line.own, **line.of_config}
    found = []
    for action in line.parser._actions:
        key = action.dest.removeprefix(".")
        setting = settings.get(key)
        values = _values(name, key, setting.hint) if setting else tuple(map(str, action.choices or ()))
        hint = setting.hint if setting else action.type
        help = " ".join((action.help or "").replace("%%", "%").split())
        more: dict[str, Any] = {
            "values": values,
            "path": "Path" in str(hint),
            "takes_value": action.nargs != 0,
            "several": "tuple[" in str(hint) or "Sequence[" in str(hint) or "list[" in str(hint),
        }
        found += [_Argument(flag, help, **more) for flag in action.option_strings or [""]]
    return _Command(name, command.help, tuple(found))


def _values(command: str, key: str, hint: Any) -> tuple[str, ...]:
    if (command, key) in _REGISTRIES:
        return tuple(load_reference(_REGISTRIES[command, key]))
    if key.rpartition(".")[2] == "split" and not literal_choices(hint):
        return SPLITS
    return tuple(literal_choices(hint))


def _next_words(commands: Sequence[_Command]) -> dict[str, list[str]]:
    """Beginning of a command → the words that may follow, in order: `data make` → phantom, scenes."""
    following: dict[str, list[str]] = {}
    for command in commands:
        words = command.name.split()
        for count, word in enumerate(words):
            following.setdefault(" ".join(words[:count]), []).append(word)
    return {start: list(dict.fromkeys(words)) for start, words in following.items()}


_BASH = """\
# Completion of cxrlab; made by 'cxrlab completion {shell}'.
_cxrlab() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="" before="" name="" next="" flags="" values="" word="" several="" files=""
    [ "$COMP_CWORD" -gt 0 ] && prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    [ "$COMP_CWORD" -gt 1 ] && before="${{COMP_WORDS[COMP_CWORD-2]}}"
    # The shell splits a flag, = and a value into three words.
    if [ "$cur" = "=" ]; then cur=""; elif [ "$prev" = "=" ]; then prev="$before"; fi
    local i=1
    while [ "$i" -lt "$COMP_CWORD" ]; do
        case "$name ${{COMP_WORDS[i]}}" in
            {starts}) name="$name ${{COMP_WORDS[i]}}" ;;
            *) break ;;
        esac
        i=$((i + 1))
    done
    name="${{name# }}"
    case "$name" in
{next}
    esac
    case "$name" in
{flags}
    esac
    case "$name $prev" in
{values}
        *)
            case "$cur" in
                -*) values="$flags" ;;
                *)
                    if [ "$i" -eq "$COMP_CWORD" ]; then values="$next"; fi
                    case "$name" in
{words}
                    esac
                    ;;
            esac
            ;;
    esac
    COMPREPLY=()
    if [ -n "$several" ]; then
        case "$cur" in
            *,*)
                local start="${{cur%,*}},"
                for word in $values; do case "$start$word" in "$cur"*) COMPREPLY+=("$start$word") ;; esac; done
                return
                ;;
        esac
    fi
    for word in $values; do case "$word" in "$cur"*) COMPREPLY+=("$word") ;; esac; done
    if [ -n "$files" ]; then
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur")
        type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
    fi
    return 0
}}
{register}
"""


def _bash(commands: Sequence[_Command], *, zsh: bool) -> str:
    following = _next_words(commands)
    starts = {" ".join(command.name.split()[:count]) for command in commands for count in (1, 2, 3, 4)}

    def case(pattern: str, body: str, indent: int = 8) -> str:
        return f"{' ' * indent}{pattern}) {body} ;;"

    def patterns(names: Sequence[str]) -> str:
        return "|".join(map(shlex.quote, names))

    def assigned(variable: str, words: Sequence[str]) -> str:
        return f"{variable}={shlex.quote(' '.join(words))}"

    values, words = [], []
    for command in commands:
        groups: dict[str, list[str]] = {}
        for one in command.named(with_value=True):
            groups.setdefault(_body(one), []).append(f"{command.name} {one.name}")
        values += [case(patterns(names), body) for body, names in groups.items()]
        if body := _body(command.first_word, "$next ").removeprefix(":"):
            words.append(case(shlex.quote(command.name), body, 24))
    return _BASH.format(
        shell="zsh" if zsh else "bash",
        starts=patterns([f" {start}" for start in sorted(starts)]),
        next="\n".join(case(shlex.quote(start), assigned("next", names)) for start, names in following.items()),
        flags="\n".join(
            case(shlex.quote(command.name), assigned("flags", [one.name for one in command.named()]))
            for command in commands
        ),
        values="\n".join(values),
        words="\n".join(words),
        register="autoload -U +X bashcompinit && bashcompinit\ncomplete -F _cxrlab cxrlab" if zsh else
        "complete -F _cxrlab cxrlab",
    )  # fmt: skip


def _body(argument: _Argument, before: str = "") -> str:
    """The shell commands that set what may follow a flag or a word."""
    parts = []
    if argument.values:
        parts.append(f'values="{before}{" ".join(argument.values)}"')
    if argument.values and argument.several:
        parts.append("several=1")
    if argument.path:
        parts.append("files=1")
    return "; ".join(parts) or ":"


def _fish(commands: Sequence[_Command]) -> str:
    """A line for each word and flag; the condition is the command that was typed so far."""
    lines = [
        "# Completion of cxrlab; made by 'cxrlab completion fish'.",
        "function __cxrlab_at",
        "    set -l words (commandline -opc)[2..-1]",
        "    set -l typed",
        "    for word in $words",
        "        string match -q -- '-*' $word; and break",
        "        set -a typed $word",
        "    end",
        "    set -l wanted (string split ' ' -- $argv[2])",
        '    test -z "$argv[2]"; and set wanted',
        "    if test $argv[1] = exactly",
        '        test "$typed" = "$wanted"',
        "    else",
        "        string match -q -- \"$argv[2] *\" \"$typed \"",
        "    end",
        "end",
        "complete -c cxrlab -f",
    ]  # fmt: skip
    helps = {command.name: command.help for command in commands}
    for start, words in _next_words(commands).items():
        for word in words:
            help = helps.get(f"{start} {word}".strip(), "")
            lines.append(_fish_line(f"exactly {shlex.quote(start)}", f"-a {word}", help))
    for command in commands:
        at = f"below {shlex.quote(command.name)}"
        for one in command.named():
            if one.name.startswith("--"):
                lines.append(_fish_line(at, f"-l {one.name[2:]} {' '.join(_fish_values(one))}".rstrip(), one.help))
        if values := list(_fish_values(command.first_word, word=True)):
            lines.append(_fish_line(at, " ".join(values), ""))
    return "\n".join(lines) + "\n"


def _fish_values(argument: _Argument, *, word: bool = False) -> Iterator[str]:
    if argument.takes_value and not word:
        yield "-r"
    if argument.path:
        yield "-F"
    if argument.values:
        yield f"-a {shlex.quote(' '.join(argument.values))}"


def _fish_line(condition: str, what: str, help: str) -> str:
    text = help if len(help) <= 80 else f"{help[:79]}…"
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    described = f" -d {quoted}" if text else ""
    return f'complete -c cxrlab -n "__cxrlab_at {condition}" {what}{described}'

"""Every row of every registry, and of the command table, loads and explains itself."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

from tables import every_row

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.core.registry import Registry, load_reference

SOURCE = Path(__file__).parents[1] / "src"


def registries() -> list[tuple[str, str]]:
    """(module, name) of every `NAME = Registry(…)` in the source, found without importing anything."""
    found = []
    for file in sorted((SOURCE / "cxrlab").rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            value = getattr(node, "value", None)
            if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "Registry"):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            module = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
            found.append((module, ast.unparse(target)) if target is not None else (module, "?"))
    return found


def test_the_corpus_makers_are_among_the_registries() -> None:
    """The search above must find something, or the tests below would test nothing."""
    assert ("cxrlab.data.card", "MAKERS") in registries()


@every_row(("module", "name"), registries())
def test_every_row_loads(module: str, name: str) -> None:
    table = getattr(importlib.import_module(module), name)
    assert isinstance(table, Registry)
    for row in table:
        assert callable(table.load(row)), row


@every_row("name", COMMANDS)
def test_every_command_loads_and_teaches(name: str) -> None:
    """The function exists, says what it does, explains each flag, and its help ends with an example."""
    command = COMMANDS[name]
    function = load_reference(command.target)
    line = CommandLine(name, command, function)
    assert (function.__doc__ or "").strip()
    for setting in (*line.own.values(), *line.of_config.values()):
        assert setting.help, f"--{setting.key} of '{name}' has no help"
    assert command.example in line.help() and "--seed" in line.help() and "--debug" in line.help()


@every_row("name", COMMANDS)
def test_every_example_is_a_valid_command_line(name: str) -> None:
    words = shlex.split(COMMANDS[name].example)
    prefix = ["cxrlab", *name.split()]
    assert words[: len(prefix)] == prefix
    CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target)).parse(words[len(prefix) :])


OF_OTHERS = {  # module → flags in its strings that belong to other programs, or are parts of a flag
    "cli/arguments.py": {"--flag", "--name", "--no", "--no-flag", "--no-name"},  # how flags are built
    "cli/doctor.py": {"--force-reinstall"},  # pip
    "cli/main.py": {"--version"},  # the program itself, before any command
    "core/environment.py": {"--abbrev", "--always", "--dirty", "--exclude"},  # git describe
    "core/config.py": {"--value"},  # the parser behind one setting
}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")


def test_every_flag_named_in_the_source_is_a_flag_of_some_command() -> None:
    """An error that names a flag which no command has sends its reader looking; groups (`--decoding`) count."""
    lines = (CommandLine(name, row, load_reference(row.target)) for name, row in COMMANDS.items())
    known = {flag for line in lines for flag in line.flags}
    known |= {flag[: place.start()] for flag in known for place in re.finditer(r"\.", flag)}
    wrong, seen = [], 0
    for file in sorted((SOURCE / "cxrlab").rglob("*.py")):
        module = file.relative_to(SOURCE / "cxrlab").as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(FLAG.findall(node.value)) - OF_OTHERS.get(module, set())
                seen += len(named)
                wrong += [f"{module}:{node.lineno}: {flag}" for flag in sorted(named - known)]
    assert seen > 100 and not wrong, "\n".join(wrong)

"""The program `cxrlab`: find the command, call its function, show the result, give an exit code.

0 success · 1 a user's mistake or a failed check, one sentence on the error stream · 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from cxrlab.cli.commands import COMMANDS
from cxrlab.core.errors import ConfigError, CxrlabError, MissingExtra, OutOfMemory, UnknownName, did_you_mean
from cxrlab.core.memory import GPU, exhausted_memory
from cxrlab.core.terminal import NoticeStream, print_result, terminal_safe

if TYPE_CHECKING:
    from cxrlab.cli.output import Result

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: Words after the program's name; those of the process when None.
    """
    # Before anything can import torch: idle OpenMP threads should sleep and not spin, but not at once. With the short
    # spin a small model writes half as fast again on two cores; beside another program it takes a quarter longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "500")
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        if debug:
            raise
        return _say("stopped; everything finished so far is kept", INTERRUPTED)
    except Exception as error:
        sentence = _sentence(error, words)
        if debug or sentence is None:
            raise
        return _say(sentence, 1)


def _dispatch(words: list[str]) -> int:
    if words == ["--version"]:
        from cxrlab import __version__

        return _print(f"cxrlab {__version__}")
    if not words or words[0] in ("-h", "--help", "help"):
        return _print(overview(words[1:] if words[:1] == ["help"] else ()))
    name = command_named(words)
    if name is None:
        path = [word for word in words if not word.startswith("-")]
        asked_for_help = "--help" in words or "-h" in words
        if asked_for_help and _under(path):
            return _print(overview(path))
        raise _no_such_command(path, words)
    return _run(name, words[len(name.split()) :])


def command_named(words: Sequence[str]) -> str | None:
    """The longest row of the table that the words begin with."""
    for count in range(len(words), 0, -1):
        if (name := " ".join(words[:count])) in COMMANDS:
            return name
    return None


def overview(path: Sequence[str] = ()) -> str:
    """The list of commands, or of those below `path`."""
    rows = _under(path) or list(COMMANDS)
    width = max(len(name) for name in rows)
    lines = [f"  {name.ljust(width)}  {COMMANDS[name].help}" for name in rows]
    head = f"usage: cxrlab {' '.join([*path, 'COMMAND'])} [flags]"
    purpose = "" if path else "\nA workbench for chest X-ray report models.\n"
    tail = "'cxrlab COMMAND --help' explains one command, with an example."
    return "\n".join([head, purpose, "commands:", *lines, "", tail])


def _run(name: str, words: list[str]) -> int:
    from cxrlab.cli.arguments import CommandLine
    from cxrlab.cli.output import present
    from cxrlab.core.terminal import silenced

    command = COMMANDS[name]
    line = CommandLine(name, command, _load(command.target))
    if "--help" in words or "-h" in words:
        return _print(line.help().rstrip())
    invocation = line.parse(words)
    try:
        with silenced() if invocation.quiet else nullcontext():
            result = present(line.function(**invocation.arguments))
    except CxrlabError as error:
        named = line.with_flags(str(error), of_settings=isinstance(error, ConfigError))
        error.args = (named, *error.args[1:])
        raise
    return 0 if result is None else _show(result, as_json=invocation.json)


def _load(target: str) -> Callable[..., Any]:
    from cxrlab.core.tables import load_reference

    function: Callable[..., Any] = load_reference(target)
    return function


def _show(result: Result, *, as_json: bool) -> int:
    from cxrlab.core.json_values import dumps

    text = dumps(result.data, indent=2) if as_json else terminal_safe(result.text, colours=result.coloured)
    code = 0 if result.ok else 1
    return _print(text, code) if text else code


def _under(path: Sequence[str]) -> list[str]:
    prefix = " ".join(path) + " "
    return [name for name in COMMANDS if path and name.startswith(prefix)]


def _no_such_command(path: list[str], words: list[str]) -> CxrlabError:
    for count in range(len(path), 0, -1):
        if below := _under(path[:count]):
            group = " ".join(path[:count])
            choices = sorted({name.split()[count] for name in below})
            wrong = path[count] if count < len(path) else None
            said = (
                f"'{group}' has no command '{wrong}'.{did_you_mean(wrong, choices)}"
                if wrong
                else f"'{group}' is a group."
            )
            return UnknownName(f"{said} Choose one of: {', '.join(choices)}.")
    first = path[0] if path else words[0]
    tops = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    return UnknownName(f"there is no command '{first}'.{did_you_mean(first, tops)} Choose one of: {', '.join(tops)}.")


def _sentence(error: Exception, words: list[str]) -> str | None:
    """The error in one sentence when a user can mend it; None for a defect of the program."""
    if isinstance(error, OutOfMemory):
        return f"{error}; {_less_memory(words, _SMALLER_MODEL)}"
    if isinstance(error, CxrlabError):
        return str(error)
    if where := exhausted_memory(error):
        more = () if where == GPU else _FEWER_PROCESSES
        return f"{where} ran out; {_less_memory(words, (*_SMALLER_STEPS, *_SMALLER_MODEL, *more))}"
    if isinstance(error, ModuleNotFoundError):
        from cxrlab.core.environment import missing_extra

        absent: MissingExtra | None = missing_extra(error)
        return None if absent is None else str(absent)
    if isinstance(error, OSError) and error.errno is not None:
        from cxrlab.core.files import os_error

        return str(os_error(error, error.filename or "a file", "use"))
    return None


# Ends of settings that save memory, those that help most first; the second ones save that of a single image, too.
_SMALLER_STEPS = (
    ("optimisation.batch_size", "a smaller {} with a larger --optimisation.accumulate"),
    ("fitting.batch_size", "a smaller {}"),
    ("batch_size", "a smaller {}"),
    ("precision", "{} bfloat16"),
    ("gradient_checkpointing", "{}"),
)
_SMALLER_MODEL = (
    ("loading.dtype", "{} bfloat16"),
    ("image_size", "a smaller {}"),
    ("smoothing.batch_size", "a smaller {}"),
)
_FEWER_PROCESSES = (("workers", "fewer {}"),)


def _less_memory(words: list[str], savings: Iterable[tuple[str, str]]) -> str:
    """What is kept, and those flags of this command that make it take less memory, at most four.

    Args:
        words: The command line; what it asks for already is not proposed.
        savings: Ends of settings, with what to do about their flags.
    """
    from cxrlab.cli.arguments import CommandLine

    name = command_named(words)
    line = CommandLine(name, COMMANDS[name], _load(COMMANDS[name].target)) if name else None
    keys = (*line.own, *line.of_config) if line else ()
    given = " ".join(words).replace("=", " ").replace("_", "-")
    advice: dict[str, str] = {}
    for end, wording in savings:
        for key in keys:
            if f".{key}".endswith(f".{end}"):
                advice.setdefault(key, wording.format("--" + key.replace("_", "-")))
    told = [text for text in advice.values() if text not in given][:4]
    kept = "everything finished so far is kept"
    if not told:
        return f"{kept}. Ask for less at once, or use a machine with more memory."
    return f"{kept}. Give {', or '.join(told)}."


def _print(text: str, code: int = 0) -> int:
    """Show the result; the code is the command's own, also when nobody reads what it says."""
    print_result(text)
    return code


def _say(sentence: str, code: int) -> int:
    NoticeStream(sys.stderr).write(f"cxrlab: {terminal_safe(sentence)}\n")
    return code

"""The program `cxrlab`: finds the command, calls its function, prints the result and returns the exit code.

Exit codes: 0 for success, 1 for a user's mistake or a failed check (one sentence on the error stream), 130 for Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from cxrlab.cli.commands import COMMANDS
from cxrlab.core.errors import ConfigError, CxrlabError, MissingExtra, OutOfMemory, UnknownName, did_you_mean
from cxrlab.core.out_of_memory import GPU, exhausted_memory
from cxrlab.core.terminal import NoticeStream, print_result, terminal_safe

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (that of the process when None) and return its exit code."""
    # Set before anything imports torch: idle OpenMP threads should spin briefly, then sleep. With the short spin a small
    # model generates half as fast again on two cores; beside another program it takes a quarter longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "500")
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        if words == ["--version"]:
            from cxrlab import __version__

            return _print(f"cxrlab {__version__}")
        if not words or words[0] in ("-h", "--help", "help"):
            return _print(overview(words[1:] if words[:1] == ["help"] else ()))
        if name := command_named(words):
            return _run(name, words[len(name.split()) :])
        path = [word for word in words if not word.startswith("-")]
        if _under(path) and ("--help" in words or "-h" in words):
            return _print(overview(path))
        raise _no_such_command(path, words)
    except KeyboardInterrupt:
        if debug:
            raise
        return _print_error("interrupted; everything finished so far is kept", INTERRUPTED)
    except Exception as error:
        message = _error_message(error, words)
        if debug or message is None:
            raise
        return _print_error(message, 1)


def command_named(words: Sequence[str]) -> str | None:
    """The longest command with which the words begin; None if there is none."""
    for count in range(len(words), 0, -1):
        if (name := " ".join(words[:count])) in COMMANDS:
            return name
    return None


def overview(path: Sequence[str] = ()) -> str:
    """The list of all commands, or of those in the group `path`."""
    rows = _under(path) or list(COMMANDS)
    width = max(len(name) for name in rows)
    lines = [f"  {name.ljust(width)}  {COMMANDS[name].help}" for name in rows]
    head = f"usage: cxrlab {' '.join([*path, 'COMMAND'])} [flags]"
    purpose = "" if path else "\nA workbench for chest X-ray report models.\n"
    tail = "'cxrlab COMMAND --help' explains one command, with an example."
    return "\n".join([head, purpose, "commands:", *lines, "", tail])


def _run(name: str, words: list[str]) -> int:
    from cxrlab.cli.arguments import CommandLine
    from cxrlab.cli.output import present, render
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
    if result is None:
        return 0
    text, code = render(result, invocation.format), 0 if result.ok else 1
    return _print(text, code) if text else code


def _load(target: str) -> Callable[..., Any]:
    from cxrlab.core.registry import load_reference

    function: Callable[..., Any] = load_reference(target)
    return function


def _under(path: Sequence[str]) -> list[str]:
    prefix = " ".join(path) + " "
    return [name for name in COMMANDS if path and name.startswith(prefix)]


def _no_such_command(path: list[str], words: list[str]) -> CxrlabError:
    for count in range(len(path), 0, -1):
        if below := _under(path[:count]):
            group, choices = " ".join(path[:count]), sorted({name.split()[count] for name in below})
            message = f"'{group}' is a group of commands."
            if count < len(path):
                message = f"'{group}' has no command '{path[count]}'.{did_you_mean(path[count], choices)}"
            return UnknownName(f"{message} Choose one of: {', '.join(choices)}.")
    first = path[0] if path else words[0]
    tops = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    return UnknownName(f"there is no command '{first}'.{did_you_mean(first, tops)} Choose one of: {', '.join(tops)}.")


def _error_message(error: Exception, words: list[str]) -> str | None:
    """One sentence for an error that a user can correct; None for a defect of the program."""
    if isinstance(error, OutOfMemory):
        return f"{error}; {_memory_advice(words, _SMALLER_MODEL)}"
    if isinstance(error, CxrlabError):
        return str(error)
    if where := exhausted_memory(error):
        more = () if where == GPU else _FEWER_PROCESSES
        return f"{where} ran out; {_memory_advice(words, (*_SMALLER_STEPS, *_SMALLER_MODEL, *more))}"
    if isinstance(error, ModuleNotFoundError):
        from cxrlab.core.environment import missing_extra

        absent: MissingExtra | None = missing_extra(error)
        return None if absent is None else str(absent)
    if isinstance(error, OSError) and error.errno is not None:
        from cxrlab.core.files import os_error

        return str(os_error(error, error.filename or "a file", "use"))
    return None


# Last parts of settings that save memory, most effective first; those of the second list help even for a single image.
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


def _memory_advice(words: list[str], savings: Iterable[tuple[str, str]]) -> str:
    """What is kept, and at most four flags of this command that reduce its memory and are not given already."""
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
    flags = [text for text in advice.values() if text not in given][:4]
    remedy = f"Give {', or '.join(flags)}" if flags else "Process less at once, or use a machine with more memory"
    return f"everything finished so far is kept. {remedy}."


def _print(text: str, code: int = 0) -> int:
    """Print a result and return its exit code, also when nothing reads the output."""
    print_result(text)
    return code


def _print_error(message: str, code: int) -> int:
    NoticeStream(sys.stderr).write(f"cxrlab: {terminal_safe(message)}\n")
    return code

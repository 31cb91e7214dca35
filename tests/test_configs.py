"""Every shipped YAML file runs with the command in its header, and gives the time to expect."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named
from cxrlab.core.tables import load_reference

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "configs").rglob("*.yaml"))


def test_there_are_configs() -> None:
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_in_the_header_is_valid_and_reads_this_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown keys, wrong types and values out of range would all be refused here."""
    monkeypatch.chdir(ROOT)
    header = re.search(r"^# run:  (cxrlab .+)$", file.read_text(), re.MULTILINE)
    assert header, "the header needs a line '# run:  cxrlab …'"
    words = shlex.split(header[1])[1:]
    assert f"--config {file.relative_to(ROOT).as_posix()}" in header[1]
    name = command_named(words)
    assert name is not None
    CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target)).parse(words[len(name.split()) :])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_header_says_how_long_it_takes(file: Path) -> None:
    assert re.search(r"^# time: \S", file.read_text(), re.MULTILINE)

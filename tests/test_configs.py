"""Every shipped YAML file runs with the command in its header, and gives the time to expect."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tables import every_row

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named
from cxrlab.core.registry import load_reference
from cxrlab.studies.run_study import read_study

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "configs").rglob("*.yaml"))
LAUNCH = "accelerate launch --config_file {} -m "


def test_there_are_configs() -> None:
    assert FILES


def parse(words: list[str]) -> tuple[str, dict[str, object]]:
    """The command and its checked arguments; what a user would see is raised."""
    name = command_named(words)
    assert name is not None, words
    line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
    return name, line.parse(words[len(name.split()) :]).arguments


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_in_the_header_is_valid_and_reads_this_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown keys, wrong types and values out of range would all be refused here.

    A study names its file as its argument, and its small sizes must be good too; a launcher's file stands before
    the command that it launches, and is read by the launcher's own reader.
    """
    monkeypatch.chdir(ROOT)
    path = file.relative_to(ROOT).as_posix()
    header = re.search(r"^# run:  (.+)$", file.read_text(), re.MULTILINE)
    assert header, "the header needs a line '# run:  cxrlab …'"
    said = header[1]
    if file.parent.name == "distributed":
        launcher = pytest.importorskip("accelerate.commands.config.config_args")
        assert said.startswith(LAUNCH.format(path))
        said = said.removeprefix(LAUNCH.format(path))
        assert launcher.load_config_from_file(str(file)).num_processes > 1
        path = "configs/llava_rad/"
    words = shlex.split(said)
    assert words[0] == "cxrlab"
    name, arguments = parse(words[1:])
    if name == "study":
        assert arguments["study"] == path
        read_study(file)
        read_study(file, quick="\nquick:" in file.read_text())
    else:
        assert f"--config {path}" in said


PLANNED = frozenset(
    {
        "data make phantom", "data structure", "extract", "generate", "harden", "prefer judge", "prefer sample",
        "prefer train", "robustness", "score", "train align", "train encoder", "train finetune",
    }
)  # fmt: skip


def test_every_config_of_a_command_with_a_plan_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in the header with --plan, and without --out, since a plan writes nothing."""
    monkeypatch.chdir(ROOT)
    seen = set()
    for file in FILES:
        header = re.search(r"^# run:  cxrlab (.+)$", file.read_text(), re.MULTILINE)
        words = shlex.split(header[1]) if header else []
        name = command_named(words) if words else None
        if name in PLANNED:
            place = words.index("--out")
            arguments = parse([*words[:place], *words[place + 2 :], "--plan"])[1]
            assert arguments["plan"] is True and "out" not in arguments, file
            seen.add(name)
    assert seen == PLANNED


@every_row("file", FILES, ids=lambda file: file.stem)
def test_the_header_says_how_long_it_takes(file: Path) -> None:
    assert re.search(r"^# time: \S", file.read_text(), re.MULTILINE)

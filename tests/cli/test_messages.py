"""Errors of real commands name settings as flags that can be pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named, main
from cxrlab.core.registry import load_reference
from cxrlab.data.card import MAKERS
from cxrlab.data.config import PhantomConfig

pytestmark = pytest.mark.slow

EXTRACT = "extract --victim stub:normal --surrogate x --data x --out y "
DETECT = "detect --benign x --out y "
DEFEND = "defend --victim stub:normal --data x --out y "
ROBUSTNESS = "robustness --model stub:normal --data x --out y "
TRAIN = "prefer train --data x --pairs y --start z --out q "


def said(capsys: pytest.CaptureFixture[str], words: str) -> str:
    """The one sentence of a command that fails."""
    assert main(words.split()) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (DETECT + "--n 0", ["--n"]),
        (DETECT + "--detector.image-bound 3", ["--detector.image-bound"]),
        (DETECT + "--detector.image-bound abc", ["--detector.image-bound"]),
        (DETECT + "--detector.window 200", ["--detector.window", "--detector.account-queries"]),
        (DETECT + "--detector.accounts 20", ["--detector.accounts", "--detector.account-bound"]),
        (DETECT + "--calibrate test", ["--calibrate", "--held-out"]),
        (DETECT + "--detectors bogus", ["--detectors"]),
        (DEFEND + "--settings.gate-bound 2", ["--settings.gate-bound"]),
        (DEFEND + "--settings.images-per-window 0", ["--settings.images-per-window"]),
        (DEFEND + "--defences bogus", ["--defences"]),
        (EXTRACT + "--fitting.lora-rank -1", ["--fitting.lora-rank"]),
        (EXTRACT + "--policy.groups 1", ["--policy.groups"]),
        (EXTRACT + "--alignment.guide builtin:encoder --oracle none", ["--alignment.guide", "--oracle"]),
        (EXTRACT + "--defence-settings.gate-bound 2", ["--defence-settings.gate-bound"]),
        (EXTRACT + "--defence bogus", ["--defence"]),
        ("serve --model stub:normal --guarding.account-queries 2", ["--guarding.account-queries"]),
        ("serve --model stub:normal --guarding.image-bound 2", ["--guarding.image-bound"]),
        ("serve --model stub:normal --limits.pixels 0", ["--limits.pixels"]),
        (ROBUSTNESS + "--decoding.strategy sample", ["--decoding.strategy"]),
        (ROBUSTNESS + "--smoothing.copies 1", ["--smoothing.copies"]),
        (TRAIN + "--loss.gamma 3", ["--loss.gamma", "--loss.name"]),
        (TRAIN + "--loss.name kto --optimisation.batch-size 1", ["--optimisation.batch-size", "--loss.name"]),
        ("prefer pair --rewards r --out p --longest-ratio 0", ["--longest-ratio"]),
    ],
)
def test_a_setting_is_named_by_the_flag_of_its_command(
    capsys: pytest.CaptureFixture[str], words: str, flags: list[str]
) -> None:
    name = command_named(words.split())
    assert name is not None
    line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
    message = said(capsys, words)
    named = re.findall(r"--[a-z](?:[\w.-]*[a-z0-9])?", message)
    assert set(flags) <= set(named) <= set(line.flags), message
    assert not re.search(r"(?<![\w.-])[a-z]+_[a-z_]+=", message), message


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messages") / "phantom"
    MAKERS.load("phantom")(PhantomConfig(n=150, size=64, seed=3), folder)
    return folder


def test_what_detect_suggests_for_few_images_works(
    capsys: pytest.CaptureFixture[str], phantoms: Path, tmp_path: Path
) -> None:
    words = f"detect --benign {phantoms} --encoder pixels --detectors prada,mmd,coverage --n 120 --quiet"
    message = said(capsys, f"{words} --out {tmp_path / 'few'}")
    flag = re.search(r"--detector\.account-queries=\d+", message)
    assert flag is not None, message
    assert main(f"{words} {flag[0]} --out {tmp_path / 'enough'}".split()) == 0


@pytest.mark.parametrize(
    ("command", "group"),
    [(DEFEND.replace(" --data x", ""), "settings"), (EXTRACT.replace(" --data x", ""), "defence-settings")],
)
def test_what_a_gate_suggests_for_few_images_is_a_flag_that_works(
    capsys: pytest.CaptureFixture[str], phantoms: Path, tmp_path: Path, command: str, group: str
) -> None:
    from cxrlab.extraction.config import DefenceSettings
    from cxrlab.extraction.defence.base import open_defence

    name = command_named(command.split()) or ""
    line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
    with pytest.raises(Exception) as caught:
        open_defence("gate", DefenceSettings(benign=phantoms), seed=1)
    found = re.search(rf"--{group}\.gate-bound=(\S+?)\.?$", line.with_flags(str(caught.value), of_settings=False))
    assert found is not None, caught.value
    open_defence("gate", DefenceSettings(benign=phantoms, gate_bound=float(found[1])), seed=1)

"""The completion scripts, run by the shell itself where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.completion import _REGISTRIES, completion
from cxrlab.cli.main import main
from cxrlab.core.registry import load_reference

TRY = """
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_cxrlab
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "cxrlab.bash"
    path.write_text(str(completion("bash").text) + "\n")
    return path


def complete(script: Path, *words: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run(
        [bash, "--norc", "-c", TRY, "bash", str(script), *words], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), list(dict.fromkeys(name.split()[0] for name in COMMANDS))),
        (("sc",), ["score"]),
        (("data", "make", ""), ["phantom", "scenes"]),
        (("score", "--form"), ["--format"]),
        (("score", "--format", ""), ["table", "csv", "md", "latex", "json"]),
        (("score", "--format", "=", "m"), ["md"]),
        (("score", "--quiet", "--preset", ""), ["paper", "llava-rad", "rexrank"]),
        (("score", "--trials", ""), []),
        (("generate", "--split", "t"), ["train", "test"]),
        (("data", "import", "nih"), ["nih-cxr14"]),
        (("data", "import", "table", "--date-order", ""), ["dmy", "mdy"]),
        (("robustness", "--attacks", "fgsm,ap"), ["fgsm,apgd"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("defend", "t"), ["test-watermark"]),
        (("nonsense", "--f"), []),
    ],
)
def test_bash_completes(script: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert [word for word in complete(script, "cxrlab", *words)] == expected


def test_bash_completes_files_for_a_path(script: Path, tmp_path: Path) -> None:
    (tmp_path / "predictions one.jsonl").touch()
    for words in (("score", "--references", f"{tmp_path}/pre"), ("score", f"{tmp_path}/pre")):
        assert complete(script, "cxrlab", *words) == [f"{tmp_path}/predictions one.jsonl"]


def test_every_flag_of_every_command_is_known(script: Path) -> None:
    """A command whose flags bash does not offer is one that the script forgot."""
    for name in ("score", "train finetune", "serve", "robustness", "data make phantom"):
        line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
        assert set(complete(script, "cxrlab", *name.split(), "--")) >= {f for f in line.flags if f.startswith("--")}
    assert all(f"'{name}')" in script.read_text() or f" {name})" in script.read_text() for name in COMMANDS)


def test_registries_belong_to_settings() -> None:
    for (name, key), reference in _REGISTRIES.items():
        line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
        assert key in {**line.own, **line.of_config}, (name, key)
        assert len(tuple(load_reference(reference))) > 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_with_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "cxrlab" in out and all(name.split()[-1] in out for name in COMMANDS)
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=out, text=True, check=True, timeout=30)


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 1
    assert re.search("bash.*zsh.*fish", capsys.readouterr().err)


def test_making_a_script_imports_no_torch() -> None:
    code = (
        "import sys; from cxrlab.cli.completion import completion; completion('bash'); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"

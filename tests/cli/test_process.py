"""The program as a process: how fast it answers, what it imports, closed pipes, full disks and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def start(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_help_comes_in_a_blink_without_torch() -> None:
    """The best of five, for a machine that is busy with something else; the promise is 0.4 s."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        assert start(sys.executable, "-m", "cxrlab", "--help").returncode == 0
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.4
    code = "import sys; from cxrlab.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    loaded = start(sys.executable, "-c", code).stdout
    assert "'cxrlab.cli.main'" in loaded
    for heavy in ("torch", "transformers", "numpy", "jsonargparse", "rich", "yaml"):
        assert f"'{heavy}'" not in loaded


def test_a_command_without_models_never_imports_torch() -> None:
    code = (
        "import sys, os; from cxrlab.cli.main import main\n"
        "assert main(['data', 'make', 'phantom', '--help']) == 0\n"
        "assert 'torch' not in sys.modules and os.environ['OMP_WAIT_POLICY'] == 'passive'\n"
        "assert 0 < int(os.environ['GOMP_SPINCOUNT']) < 1000"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    answer = start(sys.executable, "-c", code, env=environment)
    assert answer.returncode == 0, answer.stderr


def plain_environment() -> dict[str, str]:
    """Buffered streams, as most people have them: what is left in a buffer can still fail at the exit."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONUNBUFFERED", "CXRLAB_QUIET")}


def test_a_closed_pipe_is_met_in_silence() -> None:
    """`| head` has gone before we write: no word, no traceback, not even at the interpreter's exit."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cxrlab", "--help"]
    answer = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=plain_environment()
    )
    os.close(writer)
    assert answer.returncode == 0 and answer.stderr == ""


SCRIPT = (
    "import sys, types; from cxrlab.cli import main as room; from cxrlab.cli.commands import Command\n"
    "from cxrlab.cli.output import Result; from cxrlab.core.terminal import track\n"
    "def work(path: str, ok: bool = True) -> Result:\n"
    "    for item in track(range(3), 'working', every_s=0.0):\n"
    "        open(path, 'a').write(str(item))\n"
    "    return Result('done', {}, ok=ok)\n"
    "module = types.ModuleType('module'); module.work = work; sys.modules['module'] = module\n"
    "room.COMMANDS = {'work': Command('w', 'module:work', 'cxrlab work x', ('path',))}\n"
    "sys.exit(room.main(sys.argv[1:]))"
)


@pytest.mark.parametrize("dead", ["stdout", "stderr", "both"])
@pytest.mark.parametrize(("flag", "code"), [("--ok", 0), ("--no-ok", 1), ("--nothing", 1)])
def test_a_closed_pipe_changes_neither_the_work_nor_the_exit_code(
    tmp_path: Path, dead: str, flag: str, code: int
) -> None:
    """A failed check, or a mistake, must not pass for success because nobody reads what it says."""
    reader, writer = os.pipe()
    os.close(reader)
    out, err = (writer if dead in (name, "both") else subprocess.PIPE for name in ("stdout", "stderr"))
    command = [sys.executable, "-c", SCRIPT, "work", str(tmp_path / "x"), flag]
    answer = subprocess.run(
        command, stdout=out, stderr=err, text=True, timeout=60, check=False, env=plain_environment()
    )
    os.close(writer)
    assert answer.returncode == code and "Traceback" not in (answer.stderr or "")
    if flag != "--nothing":
        assert (tmp_path / "x").read_text() == "012"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_result_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cxrlab", "--help"]
        answer = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=plain_environment()
        )
    assert answer.returncode == 1 and answer.stderr.startswith("cxrlab: cannot write the output: the disk is full")


def test_a_real_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    """SIGINT to the process, as a terminal sends it."""
    code = (
        "import sys, time; from cxrlab.cli import main as room; from cxrlab.cli.commands import Command\n"
        "import types; wait = types.ModuleType('wait')\n"
        "def go() -> None:\n    'Wait.'\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "wait.go = go; sys.modules['wait'] = wait\n"
        "room.COMMANDS = {'wait': Command('w', 'wait:go', 'cxrlab wait')}\n"
        "sys.exit(room.main(['wait']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err and "kept" in err

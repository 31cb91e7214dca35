from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.cli import doctor as room
from cxrlab.cli.doctor import doctor, examine
from cxrlab.cli.main import main
from cxrlab.core import environment


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch in a second process takes seconds; these tests are about the words."""
    monkeypatch.setattr(room, "_ask", lambda code: {"version": "2.13.0", "devices": ["cpu"], "threads": 2})


def test_the_real_machine_is_examined(capsys: pytest.CaptureFixture[str]) -> None:
    """The one run with everything real: the base packages of this very environment are there."""
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [] and all(found["packages"].values())
    assert found["threads"]["OMP_WAIT_POLICY"] == "passive" and found["disk_free_gb"] > 0


def test_a_missing_part_is_no_problem_and_names_its_command(fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "EXTRAS", {"serve": {"no_such_module": "no-such-module"}})
    result = doctor()
    assert result.ok and 'get it with: pip install ".[serve]" (in the folder of cxrlab)' in result.text
    assert result.text.endswith("everything that is installed works")


def test_a_poisonous_neighbour_is_a_problem_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A torchvision that raises at import is what breaks transformers beside a CPU build of torch."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.setattr(room, "_CONFLICTING", ("torchvision",))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(room, "_TORCH", 'print(\'{"version": "x", "devices": ["cpu"], "threads": 1}\')')
    result = doctor()
    assert not result.ok
    assert "operator nms does not exist" in result.text and "pip uninstall torchvision" in result.text


def test_a_sound_neighbour_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_CONFLICTING", ("json",))
    monkeypatch.setattr(room, "_TORCH", "print('{}')")
    assert examine()["conflicts"] == {"json": None}


def test_broken_torch_missing_base_and_old_python_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_ask", lambda code: {"error": "ImportError: libfoo"})
    monkeypatch.setattr(room, "BASE", ("numpy", "no-such-distribution"))
    monkeypatch.setattr(room.sys, "version_info", (3, 9, 0))
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda name: object() if name == "torch" else None)
    reported = " ".join(examine()["problems"])
    assert "is not supported" in reported and "libfoo" in reported
    assert 'no-such-distribution is missing; run: pip install "." (in the folder of cxrlab)' in reported


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_thing", "No module named"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('no json')", "JSONDecodeError"),
        ("pass", "IndexError"),
    ],
)
def test_a_script_that_fails_is_reported_not_raised(code: str, said: str) -> None:
    assert said in room._ask(code)["error"]

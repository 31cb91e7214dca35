"""The face of the package, and the project files around it."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import cxrlab

ROOT = Path(__file__).parents[1]


def test_one_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == cxrlab.__version__


def test_public_names_are_loaded_when_used() -> None:
    from cxrlab.data.corpus import load_corpus
    from cxrlab.evaluation.load_model import load_model
    from cxrlab.evaluation.score import score
    from cxrlab.findings.reader import read

    assert cxrlab.load_corpus is load_corpus and cxrlab.load_model is load_model
    assert cxrlab.read is read and cxrlab.score is score
    parameters = inspect.signature(cxrlab.load_model).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    assert needed == ["name"], "a name is all it takes"
    assert {"load_corpus", "load_model", "read", "score", "__version__"} <= set(dir(cxrlab))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cxrlab.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, cxrlab; print([m for m in sys.modules if m.startswith('cxrlab') or m in ('numpy', 'torch')])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "['cxrlab']\n"
    )


def test_scoring_a_few_reports_imports_neither_torch_nor_scipy() -> None:
    """Importing either costs a second; ten pairs are scored in about half of one."""
    code = (
        "import sys, cxrlab; sheet = cxrlab.score(['Clear lungs.'] * 10, ['Clear lungs.'] * 10); "
        "print(sheet.n, [m for m in ('torch', 'scipy', 'transformers', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "10 []\n"


def test_constraints_pin_every_dependency_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in pins)
    assert pins == sorted(pins, key=str.lower)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    assert {line.partition(">")[0].lower() for line in wanted} <= pinned


def fake_interpreter(folder: Path, name: str, version: str | None) -> None:
    """A Python of this version that only records its calls; `None` is a launcher that starts nothing."""
    runs = (
        f'exec {sys.executable} -c "import sys; sys.version_info = ({version.replace(".", ", ")}); $2"'
        if version
        else "exit 1"
    )
    script = f"""#!/bin/sh
case "$1" in
  --version) echo "Python {version}" ;;
  -c) {runs} ;;
  *) echo "{name} $*" >> {folder / "calls"} ;;
esac
"""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def make_setup(
    tmp_path: Path, interpreters: dict[str, str | None], *words: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    """`make setup` in a bare copy of the project; its result, and the calls of the interpreters."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake_interpreter(folder, name, interpreters.get(name))
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "setup", *words], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    calls = folder / "calls"
    return done, calls.read_text() if calls.is_file() else ""


def test_make_takes_a_supported_python(tmp_path: Path) -> None:
    """Also where `python3` is too new or too old for the dependencies."""
    _, calls = make_setup(tmp_path, {"python3": "3.15.0", "python3.12": "3.12.1"})
    assert calls == "python3.12 -m venv .venv\n"


def test_make_says_which_python_it_needs_before_it_installs_anything(tmp_path: Path) -> None:
    done, calls = make_setup(tmp_path, {"python3": "3.10.2"})
    assert done.returncode != 0 and calls == "" and not (tmp_path / ".venv").exists()
    assert "3.11, 3.12, 3.13 or 3.14" in done.stderr and "installing" not in done.stdout


def test_make_refuses_an_unsupported_python_by_name(tmp_path: Path) -> None:
    done, calls = make_setup(tmp_path, {"python3": "3.12.0", "python3.14": "3.10.2"}, "PYTHON=python3.14")
    assert done.returncode != 0 and calls == ""
    assert "python3.14 is Python 3.10.2" in done.stderr


def test_the_supported_pythons_are_the_same_everywhere() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    makefile = (ROOT / "Makefile").read_text()
    assert wanted == ">=3.11,<3.15" and "(3, 11) <= sys.version_info[:2] <= (3, 14)" in makefile


def test_anybody_may_use_it() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text() and "the cxrlab authors" in (ROOT / "LICENSE").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["license"] == citation["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE"]
    assert citation["version"] == project["version"]

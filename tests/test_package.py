"""The face of the package, and the project files around it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cxrlab

ROOT = Path(__file__).parents[1]


def test_one_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == cxrlab.__version__


def test_public_names_are_loaded_when_used() -> None:
    from cxrlab.data.corpus import load_corpus
    from cxrlab.evaluation.loading import load_model
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

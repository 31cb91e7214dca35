from __future__ import annotations

import sys
import tomllib
import types
from pathlib import Path

import pytest

from cxrlab.core import environment
from cxrlab.core.environment import EXTRAS, extras, missing_extra, require
from cxrlab.core.errors import MissingExtra, UnknownName

ROOT = Path(__file__).parents[2]


def test_the_extras_are_those_of_the_project_file() -> None:
    """One list serves pip, the other `require`; they must not drift apart."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, modules in EXTRAS.items():
        assert sorted(line.partition(">")[0] for line in declared[name]) == sorted(modules.values())
    assert set(declared) == {*EXTRAS, "dev"}


def test_the_base_install_has_no_torch_and_nothing_pulls_torchvision() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    base = tomllib.loads(text)["project"]["dependencies"]
    everything = [line for lines in tomllib.loads(text)["project"]["optional-dependencies"].values() for line in lines]
    assert not any(line.startswith(("torch", "transformers")) for line in base)
    for poison in ("torchvision", "timm", "open_clip", "open-clip"):
        assert not any(line.startswith(poison) for line in [*base, *everything])
        assert f"\n{poison}" not in (ROOT / "constraints.txt").read_text()


def test_a_missing_part_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "EXTRAS", {"plots": {"numpy": "numpy", "matplotlib_absent": "matplotlib-absent"}})
    with pytest.raises(
        MissingExtra,
        match=r'matplotlib-absent is not installed. .*pip install "\.\[plots\]" \(in the folder of cxrlab\)',
    ):
        require("plots")
    status = next(status for status in extras() if status.name == "plots")
    assert not status.complete and status.missing == ("matplotlib-absent",)


def test_a_part_that_is_there_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "EXTRAS", {"plots": {"numpy": "numpy"}})
    require("plots")
    assert extras()[0].complete and extras()[0].versions["numpy"] is not None


def test_a_module_without_a_spec_counts_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that was put into sys.modules by hand has no spec; asking for it must not raise."""
    monkeypatch.setitem(sys.modules, "handmade", types.ModuleType("handmade"))
    monkeypatch.setattr(environment, "EXTRAS", {"plots": {"handmade": "handmade"}})
    assert extras()[0].versions == {"handmade": "unknown"}


def test_an_unknown_part_is_met_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'models'"):
        require("model")


def test_a_failed_import_is_explained_when_it_is_ours_to_explain() -> None:
    reported = missing_extra(ModuleNotFoundError("no", name="transformers.models"))
    assert reported is not None and 'pip install ".[models]" (in the folder of cxrlab)' in str(reported)
    assert missing_extra(ModuleNotFoundError("no", name="tensorflow")) is None
    assert missing_extra(ModuleNotFoundError("no")) is None

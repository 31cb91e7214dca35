"""Which names a training may start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.models.model_registry import KINDS
from cxrlab.training.report_model import load_start, start_model_name

WEIGHTS = ("hf", "builtin")


@pytest.mark.parametrize(
    "name",
    [*(f"{kind}:x" for kind in KINDS if kind not in WEIGHTS), "http://host:8000/v1", "scripted:x", "nowhere/a:b"],
)
def test_a_model_without_weights_is_no_start(name: str) -> None:
    """Also an address, a model of text, and a folder with a colon that is not there."""
    said = (
        f"'{name}' cannot be a start: give a run folder, hf:FOLDER or builtin:NAME; models without weights cannot be "
        "trained."
    )
    with pytest.raises(ConfigError) as error:
        load_start(name, None, None, 0)
    assert str(error.value) == said
    with pytest.raises(ConfigError, match="cannot be a start"):
        start_model_name(name)


def test_the_name_of_a_start_elsewhere(tmp_path: Path) -> None:
    """Names of weights stay as they are; a folder with a colon in its name is a folder."""
    assert [start_model_name(name) for name in ("hf:some/folder", "builtin:reporter")] == [
        "hf:some/folder",
        "builtin:reporter",
    ]
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "config.json").write_text("{}")
    assert start_model_name(str(tmp_path / "a:b")) == f"hf:{tmp_path / 'a:b'}"

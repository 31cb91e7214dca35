from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.config import GenerateConfig


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"n": 0}, "n=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"seed": -1}, "seed=-1"),
        ({"examples": -1}, "examples=-1"),
        ({"control_studies": -1}, "control_studies=-1"),
        ({"controls": ("noise", "blnak")}, "'blnak', which is unknown. Did you mean 'blank'"),
    ],
)
def test_an_unusable_setting_is_refused_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GenerateConfig(model="stub:normal", data=Path("corpus"), **change)  # type: ignore[arg-type]

from __future__ import annotations

import math
from typing import Any

import pytest

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("restarts", 0), ("queries", 0), ("step_size", 0), ("step_size", math.nan), ("momentum", -1)],
)
def test_settings_that_attack_nothing_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        AttackSettings(**{name: value})

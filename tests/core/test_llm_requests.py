from __future__ import annotations

import math
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.llm_requests import LLMConfig


@pytest.mark.parametrize("name", ["max_cost", "price_prompt", "price_answer"])
@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf])
def test_what_is_no_price_is_reported(name: str, value: float) -> None:
    settings: dict[str, Any] = {"price_prompt": 1.0, name: value}
    with pytest.raises(ConfigError, match=f"{name}=.* is not a price"):
        LLMConfig(**settings)


def test_a_limit_without_a_price_would_never_stop_anything() -> None:
    with pytest.raises(ConfigError, match="max_cost needs price_prompt or price_answer"):
        LLMConfig(max_cost=1.0)
    assert LLMConfig(max_cost=0.0, price_answer=0.1).max_cost == 0.0

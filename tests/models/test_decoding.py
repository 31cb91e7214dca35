from __future__ import annotations

from typing import Any

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.models.decoding import ChoosesWords, Decoding
from cxrlab.models.stub import Stub


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"strategy": "greddy"}, "Did you mean 'greedy'"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"temperature": 0.0}, "strategy=greedy"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"strategy": "diverse", "beams": 5, "groups": 2}, "groups=2 does not divide beams=5"),
        ({"answers": 2}, "more than strategy=greedy gives; at most 1"),
        ({"strategy": "beam", "beams": 3, "answers": 4}, "at most 3"),
        ({"seed": -1}, "seed=-1"),
        ({"diversity_penalty": -0.1}, "diversity_penalty=-0.1"),
    ],
)
def test_an_unusable_setting_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Decoding(**change)


def test_a_stub_has_no_choice_of_words() -> None:
    assert not isinstance(Stub("normal"), ChoosesWords)

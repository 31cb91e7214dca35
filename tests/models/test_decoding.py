from __future__ import annotations

from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.models.baselines import Stub
from cxrlab.models.decoding import Decoding, SupportsDecoding


@every_row(
    ("change", "said"),
    [
        ({"strategy": "greddy"}, "Did you mean 'greedy'"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"strategy": "sample", "temperature": 0.0}, "or strategy=greedy"),
        ({"strategy": "sample", "temperature": float("nan")}, "give a number above 0"),
        ({"strategy": "sample", "top_p": 0.0}, "give a share above 0"),
        ({"strategy": "sample", "top_p": 1.5}, "top_p=1.5"),
        ({"strategy": "diverse", "beams": 5, "groups": 2}, "groups=2 does not divide beams=5"),
        ({"answers": 2}, "more than strategy=greedy allows; at most 1"),
        ({"strategy": "beam", "beams": 3, "answers": 4}, "at most 3"),
        ({"strategy": "sample", "seed": -1}, "seed=-1 is not usable"),
        ({"strategy": "diverse", "diversity_penalty": -0.1}, "give a number of at least 0"),
        ({"beams": 3}, "beams=3 is not used by strategy=greedy; give strategy=beam or diverse"),
        ({"temperature": 0.7}, "give strategy=sample with it"),
        ({"strategy": "beam", "groups": 3}, "give strategy=diverse"),
        ({"strategy": "sample", "length_penalty": 0.5}, "strategy=beam or diverse"),
    ],
)
def test_an_unusable_setting_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Decoding(**change)


def test_a_stub_has_no_choice_of_words() -> None:
    assert not isinstance(Stub("normal"), SupportsDecoding)

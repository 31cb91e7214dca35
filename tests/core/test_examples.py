from __future__ import annotations

from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import Example


@pytest.mark.parametrize(
    "example",
    [
        Example("s1", "thumbs/0.png"),
        Example("s1", "thumbs/0.png", "PA · 71 F", (), ""),
        Example("s1", "thumbs/0.png", "PA", ("mild edema", "left rib fracture"), "Mild edema."),
    ],
)
def test_the_json_form_leads_back(example: Example) -> None:
    """A normal image (empty truth) and an unknown one (None) stay apart on the way."""
    assert Example.from_json(example.to_json()) == example


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"thumb": "a.png"}, "'id'"),
        ({"id": "s1", "thumb": 3}, "'thumb'"),
        ({"id": "s1", "thumb": "a.png", "truth": "edema"}, "'truth'"),
        ({"id": "s1", "thumb": "a.png", "truth": [1]}, r"'truth\[0\]' is 1; it must be text"),
        ({"id": "s1", "thumb": "a.png", "reference": {}}, "'reference'"),
    ],
)
def test_a_wrong_field_is_named(source: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Example.from_json(source)

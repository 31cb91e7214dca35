from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.json_form import dumps, plain
from cxrlab.core.records import Score
from cxrlab.core.vocabulary import Side


@dataclass(frozen=True)
class Box:
    side: Side
    corners: tuple[float, ...]


def test_everything_that_rooms_write_becomes_plain() -> None:
    value = {
        "box": Box(Side.LEFT, (1.0, 2.0)),
        "score": Score("m", 0.5, 2),
        "path": Path("a") / "b",
        "numpy": np.float32(0.5),
        "array": np.array([[1, 2]]),
        "set": {"b", "a"},
        3: None,
    }
    assert plain(value) == {
        "box": {"side": "left", "corners": [1.0, 2.0]},
        "score": {"metric": "m", "value": 0.5, "n": 2, "undefined": 0},
        "path": "a/b",
        "numpy": 0.5,
        "array": [[1, 2]],
        "set": ["a", "b"],
        "3": None,
    }


def test_the_types_are_the_plain_ones() -> None:
    """A StrEnum is a str to isinstance; the file must not depend on how json treats subclasses."""
    assert type(plain(Side.LEFT)) is str and type(plain(np.int64(3))) is int and type(plain(np.bool_(True))) is bool


def test_undefined_is_null() -> None:
    """JSON has no NaN: a file with one cannot be read by other programs."""
    assert json.loads(dumps({"tau": math.nan})) == {"tau": None}
    assert plain(np.float64("nan")) is None


def test_an_infinity_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"value\.scores\[1\]"):
        dumps({"scores": [0.0, math.inf]})


@pytest.mark.parametrize("value", [object(), {"f": len}, {(1, 2): 3}, {None: 1}, {True: 1}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(DataError):
        dumps(value)


def test_letters_stay_readable() -> None:
    assert dumps({"word": "œdème"}) == '{"word": "œdème"}'

"""Names of maps and what they make of attention."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.saliency_maps import EXAMPLES, parse_map, reduce_attention, resolve_layer

# Two layers, two heads, one row of two cells.
WORD = np.array([[[[0.2, 0.0]], [[0.4, 0.2]]], [[[0.0, 0.8]], [[0.0, 0.0]]]], np.float32)
USUAL = np.array([[[[0.3, 0.0]], [[0.3, 0.0]]], [[[0.1, 0.1]], [[0.1, 0.1]]]], np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer:1", [0.3, 0.1]),
        ("layer:-2", [0.3, 0.1]),
        ("layer:2", [0.0, 0.4]),
        ("max-mean", [0.3, 0.4]),
        ("mean-mean", [0.15, 0.25]),
        ("mean-max", [0.2, 0.5]),
        ("max-max", [0.4, 0.8]),
        ("relative:layer:1", [0.0, 0.1]),
        ("relative:layer:2", [0.0, 0.3]),
        ("relative:max-mean", [0.0, 0.3]),
        ("relative:max-max", [0.1, 0.7]),
    ],
)
def test_reductions_by_hand(name: str, expected: list[float]) -> None:
    """Over heads first, then the usual taken off (never below 0), then over layers."""
    assert np.allclose(reduce_attention(parse_map(name), WORD, USUAL), [expected])


def test_every_example_is_a_name_and_tells_what_it_needs() -> None:
    assert [parse_map(name).of_attention for name in EXAMPLES] == [True] * 8 + [False] * 3
    assert parse_map("relative:layer:3").file == "relative-layer-3"


@pytest.mark.parametrize(
    "name", ["max-maen", "layer:0", "layer:x", "layer:", "relative:gradient", "relative:sheet", ""]
)
def test_another_name_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="There are: layer:-1, max-mean"):
        parse_map(name)


def test_a_layer_that_is_not_there_is_refused_with_the_number() -> None:
    assert [resolve_layer(parse_map(name), 6) for name in ("layer:6", "layer:-6", "max-mean")] == [5, 0, 0]
    for name in ("layer:7", "layer:-7"):
        with pytest.raises(ConfigError, match="a model that has 6; give 1 to 6"):
            resolve_layer(parse_map(name), 6)

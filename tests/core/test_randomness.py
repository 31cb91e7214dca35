from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.core import randomness
from cxrlab.core.randomness import generator, stream_key, uniform


def test_same_names_same_stream() -> None:
    a, b = generator(7, "noise", 3), generator(7, "noise", 3)
    assert np.array_equal(a.random(5), b.random(5))


def test_streams_do_not_depend_on_what_was_drawn_before() -> None:
    """Adding a draw to one part must not shift another."""
    first = generator(7, "a")
    first.random(1000)
    assert generator(7, "b").random() == generator(7, "b").random()
    assert generator(7, "a").random() != generator(7, "b").random()


def test_names_are_not_glued_together() -> None:
    """('ab', 'c') and ('a', 'bc') are different places."""
    assert stream_key(1, "ab", "c") != stream_key(1, "a", "bc")
    assert stream_key(1, 2) != stream_key(12)


@given(st.integers(0, 2**40), st.text(max_size=8))
def test_fraction_is_in_the_unit_interval(seed: int, name: str) -> None:
    assert 0.0 <= uniform(seed, name) < 1.0


def test_the_largest_key_stays_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^128 - 1 over 2^128 is nearer to 1 than to any other float."""
    monkeypatch.setattr(randomness, "stream_key", lambda *_: 2**128 - 1)
    assert uniform(7) == 1 - 2**-53
    monkeypatch.setattr(randomness, "stream_key", lambda *_: 2**127)
    assert uniform(7) == 0.5


def test_fractions_fill_the_interval_evenly() -> None:
    """10,000 uniform numbers have mean 1/2 with a standard error of 0.0029; 5 of them are allowed."""
    values = [uniform(7, "x", k) for k in range(10_000)]
    assert abs(np.mean(values) - 0.5) < 0.0145
    assert abs(np.mean(np.array(values) < 0.1) - 0.1) < 0.015


def test_global_random_state_is_untouched() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    generator(7, "x").random(10)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]

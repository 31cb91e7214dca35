"""Which samples are learnt when."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.training.trainer import Order, Part, plan


def test_an_epoch_takes_every_row_once_and_leaves_out_what_does_not_fill_a_step() -> None:
    """23 rows in steps of 5: four steps, three rows wait for the next epoch."""
    order = plan([Part(23)], step=5, epochs=2, steps=None, seed=1)
    rows = list(order)
    assert order.steps == 8 and len(order) == len(rows) == 40
    assert len(set(rows[:20])) == 20 and set(rows) <= set(range(23))
    assert rows[:20] != rows[20:]


def test_the_order_is_decided_by_the_seed_alone() -> None:
    assert list(plan([Part(50)], 4, 3, None, 7)) == list(plan([Part(50)], 4, 3, None, 7))
    assert list(plan([Part(50)], 4, 3, None, 7)) != list(plan([Part(50)], 4, 3, None, 8))


def test_part_of_an_epoch_is_a_beginning_of_it() -> None:
    whole, half = list(plan([Part(40)], 4, 1, None, 7)), list(plan([Part(40)], 4, 0.5, None, 7))
    assert half == whole[:20]


def test_samples_of_like_length_share_a_step() -> None:
    """Padding wasted with the lengths known is a small part of that without; every row still comes once."""
    lengths = np.random.default_rng(0).integers(10, 300, 4000)
    sorted_, free = (plan([Part(4000)], 16, 1, None, 3, known).epoch(0) for known in (lengths, None))

    def waste(epoch: np.ndarray) -> float:
        return float((lengths[epoch].max(axis=1, keepdims=True) - lengths[epoch]).mean())

    assert waste(sorted_) < 0.1 * waste(free)
    assert sorted(sorted_.ravel().tolist()) == list(range(4000))
    firsts = lengths[sorted_][:, 0]
    assert not (np.diff(firsts) <= 0).all(), "steps must not run from long to short"


def test_a_weight_is_the_number_of_passes_an_epoch() -> None:
    """Rows 0-9 once, 10-19 twice, half of 20-29: 35 samples, of which steps of 5 leave out none."""
    epoch = Order((Part(10), Part(10, 2.0), Part(10, 0.5)), 5, 100, 1).epoch(0)
    counts = np.bincount(epoch.ravel(), minlength=30)
    assert counts[:10].tolist() == [1] * 10 and counts[10:20].tolist() == [2] * 10
    assert counts[20:].sum() == 5 and counts[20:].max() == 1


def test_another_half_is_drawn_in_the_next_epoch() -> None:
    order = Order((Part(40, 0.5),), 4, 100, 1)
    assert set(order.epoch(0).ravel().tolist()) != set(order.epoch(1).ravel().tolist())


def test_data_that_do_not_fill_a_step_are_refused() -> None:
    with pytest.raises(ConfigError, match="a step takes 64 samples .* data have 10"):
        plan([Part(10)], 64, 1, None, 1)


def test_steps_take_the_place_of_epochs() -> None:
    assert plan([Part(10)], 5, 1, 7, 1).steps == 7

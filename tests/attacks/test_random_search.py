from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy_objectives import Linear, Margin, TextOnlyMargin, images, names, predicted_labels, small_net

from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient_free import RandomSearch, RandomSearchByReport, Square, SquareByReport

NET = small_net()
SEARCHES = (RandomSearch, Square, RandomSearchByReport, SquareByReport)


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_search_spends_its_queries_and_raises_the_loss(kind: type[RandomSearch], norm: Norm) -> None:
    all_images, budget = images(6), Budget(0.1 if norm == "linf" else 1.0, norm)
    aim = (Margin if kind.needs_scores else TextOnlyMargin)(NET, predicted_labels(NET, all_images))
    found = kind(AttackSettings(queries=60))(aim, all_images, budget, keys=names(6))
    assert found.passes.tolist() == [60] * 6
    # Words have few values: not every image comes to the next of them.
    rose = found.final_loss > found.initial_loss
    assert (
        bool(rose.all())
        if kind.needs_scores
        else bool(rose.any()) and bool((found.final_loss >= found.initial_loss).all())
    )


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("queries", [1, 40])
def test_early_exit_spends_fewer_queries_and_loses_no_broken_image(kind: type[RandomSearch], queries: int) -> None:
    """By report an answer is asked for besides; it is a query as well, and never one too many."""
    all_images, budget = images(8, seed=2), Budget(0.12)
    aim = (Margin if kind.needs_scores else TextOnlyMargin)(NET, predicted_labels(NET, all_images))
    settings = AttackSettings(queries=queries)
    stay = kind(settings)(aim, all_images, budget, keys=names(8))
    leave = kind(replace(settings, early_exit=True))(aim, all_images, budget, keys=names(8))
    assert int(leave.passes.max()) <= queries
    if queries > 1:
        assert int(stay.succeeded.sum()) > 0
        assert int(leave.passes.sum()) < int(stay.passes.sum())
        assert bool((leave.passes[~leave.succeeded] == queries).all())
    if kind.needs_scores:
        assert bool((leave.succeeded | ~stay.succeeded).all())


class Flat(Linear):
    """No image is better than another."""

    scores = False

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return torch.zeros(len(images))

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        return None


def test_by_report_a_search_walks_on_where_the_words_stay_the_same() -> None:
    """By scores it would stay at the clean image."""
    all_images = images(2)
    aim = Flat(torch.ones(1, 8, 8))
    found = RandomSearchByReport(AttackSettings(queries=10))(aim, all_images, Budget(0.1), keys=names(2))
    assert bool((found.linf > 0.04).all())
    aim.scores = True
    assert torch.equal(
        RandomSearch(AttackSettings(queries=10))(aim, all_images, Budget(0.1), keys=names(2)).images, all_images
    )


def test_a_search_that_is_given_a_start_begins_there() -> None:
    all_images = images(3)
    begin = (all_images + 0.05).clamp(0, 1)
    for kind in (RandomSearch, Square):
        found = kind(AttackSettings(queries=1))(
            Linear(torch.ones(1, 8, 8)), all_images, Budget(0.1), keys=names(3), initial_images=begin
        )
        assert torch.equal(found.images, begin)

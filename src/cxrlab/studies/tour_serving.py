"""The step of the tour that serves: the built-in reporter behind an address and a guard, asked by friend and foe."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.studies.config import TourSize
from cxrlab.studies.tour_models import SIZE
from cxrlab.studies.tour_stage import Stage

SERVED = "served"
MODEL = "builtin:reporter"


@dataclass(frozen=True)
class ServeScale:
    """How much is asked.

    Args:
        images: Benign images.
        accounts: Honest accounts.
        alone: Images that are sent one by one too.
        queries: Pictures that somebody who copies would send, at most.
        benign: Benign images behind the guard's thresholds.
        bound: Share of benign images that a detector may refuse.
    """

    images: int
    accounts: int
    alone: int
    queries: int
    benign: int
    bound: float


SCALES: dict[TourSize, ServeScale] = {
    "quick": ServeScale(images=2, accounts=1, alone=0, queries=30, benign=60, bound=0.1),
    "default": ServeScale(images=10, accounts=4, alone=2, queries=30, benign=300, bound=0.02),
    "full": ServeScale(images=32, accounts=4, alone=6, queries=30, benign=600, bound=0.01),
}


def serve_reporter(stage: Stage) -> None:
    """A server on the loopback: benign images at once and one by one, then pictures without a chest."""
    from cxrlab.serving.config import GuardConfig, RehearseConfig
    from cxrlab.serving.rehearsal import rehearse

    scale = SCALES[stage.config.size]
    config = RehearseConfig(
        MODEL,
        stage.corpus,
        n=scale.images,
        accounts=scale.accounts,
        alone=scale.alone,
        queries=scale.queries,
        size=SIZE,
        guarding=GuardConfig(n=scale.benign, image_bound=scale.bound),
        seed=stage.config.seed,
    )
    rehearse(config, stage.out / SERVED)

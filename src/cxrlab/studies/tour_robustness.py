"""The step of the tour that attacks: the aligned model and what it was aligned from, on the same images and budgets."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.studies.config import TourSize
from cxrlab.studies.tour_preference import ALIGNED, SPOILT
from cxrlab.studies.tour_stage import Stage

ATTACKED = "attacked"
LABELS = ("cardiomegaly", "pleural effusion", "pneumothorax")


@dataclass(frozen=True)
class AttackScale:
    """How many images are attacked, and how hard.

    Args:
        images: Of the test split.
        steps: Of PGD.
        controls: Images that are also replaced by noise, grey and another patient's.
        tokens: Longest report.
        triptychs: Images kept for the page.
        trials: Bootstrap resamples.
        labels: What closed questions are about.
    """

    images: int
    steps: int
    controls: int
    tokens: int
    triptychs: int
    trials: int
    labels: tuple[str, ...] = LABELS


SCALES: dict[TourSize, AttackScale] = {
    "quick": AttackScale(images=2, steps=1, controls=0, tokens=4, triptychs=1, trials=20, labels=LABELS[:1]),
    "default": AttackScale(images=6, steps=2, controls=2, tokens=100, triptychs=3, trials=1000, labels=LABELS[:2]),
    "full": AttackScale(images=14, steps=5, controls=6, tokens=160, triptychs=3, trials=1000),
}


def attack_models(stage: Stage) -> None:
    """PGD and noise of the same size on the aligned reporter and on the spoilt one before it."""
    from cxrlab.attacks.config import AttackSettings
    from cxrlab.models.decoding import Decoding
    from cxrlab.robustness.audit import audit
    from cxrlab.robustness.config import RobustnessConfig

    scale = SCALES[stage.config.size]
    config = RobustnessConfig(
        model=f"hf:{stage.out / SPOILT / 'checkpoint'}",
        versus=(f"hf:{stage.out / ALIGNED / 'checkpoint'}",),
        data=stage.corpus,
        n=scale.images,
        attacks=("pgd", "noise"),
        eps=("4/255",),
        aims=("report",),
        only_labels=scale.labels,
        image_size=128,
        batch_size=16,
        uint8=False,
        control_studies=scale.controls,
        triptychs=scale.triptychs,
        trials=scale.trials,
        seed=stage.config.seed,
        attack=AttackSettings(steps=scale.steps),
        decoding=Decoding(max_new_tokens=scale.tokens),
    )
    audit(config, stage.out / ATTACKED)

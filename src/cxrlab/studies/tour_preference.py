"""The steps of the tour that align a model without human feedback.

The built-in reporter is taught reports with mistakes in them; it then writes several reports an image, a judge holds
them against the references, and direct preference optimisation teaches it to prefer the better ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.studies.config import TourSize
from cxrlab.studies.tour_models import BUILTIN, ENCODER, LESSON
from cxrlab.studies.tour_stage import Stage
from cxrlab.training.config import Optimisation

SPOILT, SAMPLED, JUDGED, PAIRED, ALIGNED = "spoilt", "sampled", "judged", "paired", "aligned"
JUDGE, TEXT = "clinical:rules", "mistaken"
RANK, ALPHA = 16, 32.0


@dataclass(frozen=True)
class PreferenceScale:
    """How much is taught, sampled and measured.

    Args:
        spoilt: Samples with mistakes that the reporter is taught.
        sampled: Images for which several reports are drawn.
        answers: Reports an image.
        pairs: Pairs an image, at most.
        epochs: Passes through the pairs.
        measured: Images of the test split on which the model is measured before and after.
        tokens: Longest report.
        batch: Samples or pairs a step.
    """

    spoilt: int
    sampled: int
    answers: int
    pairs: int
    epochs: float
    measured: int
    tokens: int
    batch: int


SCALES: dict[TourSize, PreferenceScale] = {
    "quick": PreferenceScale(spoilt=8, sampled=6, answers=2, pairs=1, epochs=1.0, measured=4, tokens=12, batch=2),
    "default": PreferenceScale(
        spoilt=320, sampled=48, answers=4, pairs=2, epochs=3.0, measured=16, tokens=160, batch=8
    ),
    "full": PreferenceScale(spoilt=560, sampled=112, answers=4, pairs=2, epochs=3.0, measured=48, tokens=160, batch=8),
}


def spoil(stage: Stage) -> None:
    """Teach the built-in reporter reports with mistakes."""
    from cxrlab.training.config import FinetuneConfig
    from cxrlab.training.report_training import finetune

    scale = _scale(stage)
    config = FinetuneConfig(
        stage.out / LESSON,
        start=BUILTIN,
        text=TEXT,
        lora_rank=RANK,
        lora_alpha=ALPHA,
        lora_dropout=0.0,
        optimisation=_optimisation(stage, 1e-3, steps=max(1, scale.spoilt // scale.batch)),
        cache=stage.out / "cache",
    )
    finetune(config, stage.out / SPOILT)


def sample_reports(stage: Stage) -> None:
    """Several reports of the spoilt model for images that it may learn from."""
    from cxrlab.preference.config import SampleConfig
    from cxrlab.preference.sample import sample

    scale = _scale(stage)
    config = SampleConfig(
        f"hf:{stage.out / SPOILT / 'checkpoint'}",
        stage.out / LESSON,
        n=scale.sampled,
        answers=scale.answers,
        max_new_tokens=scale.tokens,
        seed=stage.config.seed,
    )
    sample(config, stage.out / SAMPLED)


def judge_reports(stage: Stage) -> None:
    """Hold them against the references, and pair the better with the worse."""
    from cxrlab.preference.config import JudgeConfig, PairConfig
    from cxrlab.preference.judge import judge
    from cxrlab.preference.pair import pair

    seed, quick = stage.config.seed, stage.config.quick
    judge(JudgeConfig((stage.out / SAMPLED,), stage.out / LESSON, JUDGE, seed=seed), stage.out / JUDGED)
    # A quick tour's drafts are a dozen tokens long: every one of them is cut.
    config = PairConfig(stage.out / JUDGED, pairs=_scale(stage).pairs, allow_cut=quick, seed=seed)
    pair(config, stage.out / PAIRED)


def align_by_preference(stage: Stage) -> None:
    """Direct preference optimisation, and the model before and after it on the test split."""
    from cxrlab.preference.config import Measure, PreferConfig, Validation
    from cxrlab.preference.train import prefer

    scale = _scale(stage)
    # Images of the corpus that everything is measured on; those of the pairs are of other patients.
    config = PreferConfig(
        stage.out / LESSON,
        stage.out / PAIRED,
        str(stage.out / SPOILT),
        lora_rank=RANK,
        lora_alpha=ALPHA,
        validation=Validation(n=0),
        measure=Measure(
            data=stage.corpus, n=scale.measured, max_new_tokens=scale.tokens, control_studies=0, encoder=ENCODER
        ),
        optimisation=_optimisation(stage, 4e-4, epochs=scale.epochs),
        cache=stage.out / "cache",
    )
    prefer(config, stage.out / ALIGNED)


def _optimisation(stage: Stage, learning_rate: float, *, steps: int | None = None, epochs: float = 1.0) -> Optimisation:
    return Optimisation(
        learning_rate,
        steps=steps,
        epochs=epochs,
        batch_size=_scale(stage).batch,
        max_length=400,
        seed=stage.config.seed,
    )


def _scale(stage: Stage) -> PreferenceScale:
    return SCALES[stage.config.size]

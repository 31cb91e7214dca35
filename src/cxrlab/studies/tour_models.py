"""The steps of the tour that need weights: two stages of training, reports, retrieval and maps.

The tour trains a report model of its own from the built-in encoder and the built-in general language model, on images
that it draws for the purpose, and holds it against the built-in reporter.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import state
from cxrlab.core.terminal import NoticeStream
from cxrlab.studies.config import TourSize
from cxrlab.studies.tour_stage import Stage, write_reports
from cxrlab.training.config import Optimisation

LESSON, ALIGNED, OWN_MODEL = "lesson", "align", "finetune"
OWN, REPORTER, RETRIEVED, EXPLAINED, POINTED = "own", "reporter", "retrieved", "explained", "pointed"
ENCODER, LANGUAGE_MODEL, BUILTIN = "builtin:encoder", "builtin:general", "builtin:reporter"
SIZE = 128  # side of the images that the built-in encoder reads
MISTAKES = 8  # at most, in the second text of an image, which one step teaches on purpose


@dataclass(frozen=True)
class ModelScale:
    """How much is trained and written.

    Args:
        lesson: Images drawn for training.
        align: Samples of stage 2.
        finetune: Samples of stage 3.
        batch: Samples a step.
        controls: Images of the test split that are also swapped, blanked and replaced by noise.
        tokens: Longest report.
        pointed: Images whose maps are held against masks.
    """

    lesson: int
    align: int
    finetune: int
    batch: int
    controls: int
    tokens: int
    pointed: int


SCALES: dict[TourSize, ModelScale] = {
    "quick": ModelScale(lesson=40, align=8, finetune=8, batch=4, controls=3, tokens=12, pointed=2),
    "default": ModelScale(lesson=1800, align=400, finetune=960, batch=8, controls=6, tokens=160, pointed=8),
    "full": ModelScale(lesson=6000, align=1000, finetune=7200, batch=8, controls=32, tokens=160, pointed=40),
}


def missing() -> str | None:
    """Why the steps cannot be taken: the part of the program or the weights that are not here; None when all are."""
    from cxrlab.core.environment import require
    from cxrlab.core.errors import MissingExtra
    from cxrlab.models.builtin import NAMES, has_weights

    try:
        require("models")
    except MissingExtra as error:
        return str(error)
    absent = [name for name in NAMES if not has_weights(name)]
    return f"this copy has no weights for builtin:{absent[0]}" if absent else None


def draw_lesson(stage: Stage) -> None:
    """Images to learn from, of patients whom no other step knows."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom

    seed = stage.config.seed + 1  # other patients than those of the corpus that is scored
    config = PhantomConfig(n=_scale(stage).lesson, size=SIZE, seed=seed, masks=False, mistakes=MISTAKES)
    make_phantom(config, stage.out / LESSON)


def align_projector(stage: Stage) -> None:
    """Stage 2: a projector between the built-in encoder and the built-in language model."""
    from cxrlab.training.config import AlignConfig
    from cxrlab.training.report_training import align

    config = AlignConfig(
        stage.out / LESSON,
        encoder=ENCODER,
        language_model=LANGUAGE_MODEL,
        optimisation=_optimisation(stage, _scale(stage).align, 3e-3),
        cache=stage.out / "cache",
    )
    align(config, stage.out / ALIGNED)


def finetune_reporter(stage: Stage) -> None:
    """Stage 3: adapters on the language model, the indication in the prompt."""
    from cxrlab.training.config import FinetuneConfig
    from cxrlab.training.report_training import finetune

    config = FinetuneConfig(
        stage.out / LESSON,
        start=str(stage.out / ALIGNED),
        lora_rank=32,
        lora_alpha=64.0,
        lora_dropout=0.0,
        optimisation=_optimisation(stage, _scale(stage).finetune, 2e-3),
        cache=stage.out / "cache",
    )
    finetune(config, stage.out / OWN_MODEL)


def write_own(stage: Stage) -> None:
    """Reports of the model that the tour has trained."""
    _write(stage, f"hf:{stage.out / OWN_MODEL / 'checkpoint'}", OWN)


def write_builtin(stage: Stage) -> None:
    """Reports of the built-in reporter, for the same images."""
    _write(stage, BUILTIN, REPORTER)


def find_reports(stage: Stage) -> None:
    """How often an image finds its report, and a report its image."""
    from cxrlab.evaluation.config import RetrieveConfig
    from cxrlab.evaluation.retrieve import retrieve

    out = stage.out / RETRIEVED
    if state(out) != "finished":
        retrieve(RetrieveConfig(ENCODER, stage.corpus, statements="present", seed=stage.config.seed), out)


def explain_image(stage: Stage) -> None:
    """Where the built-in reporter looked when it named what is there, on the image of which it told most."""
    from cxrlab.evaluation.config import ExplainConfig
    from cxrlab.evaluation.explain import explain
    from cxrlab.findings.reader import read
    from cxrlab.models.decoding import Decoding

    out = stage.out / EXPLAINED
    if state(out) == "finished":
        return
    told: dict[str, tuple[str, ...]] = {}
    for _, line in read_jsonl(stage.out / REPORTER / "predictions.jsonl"):
        text = str(line["report"])
        spans = [finding.span for finding in read(text) if finding.present and finding.span is not None]
        told[str(line["id"])] = tuple(dict.fromkeys(text[first:last] for first, last in spans))
    study = max(told, key=lambda name: (len(told[name]), name))
    if not told[study]:
        NoticeStream(sys.stderr).write("explain    the built-in reporter named nothing; there is nothing to look at\n")
        return
    decoding = Decoding(max_new_tokens=_scale(stage).tokens)
    config = ExplainConfig(
        BUILTIN, data=stage.corpus, study=study, word=told[study], maps=("max-mean", "gradient"), decoding=decoding
    )
    explain(config, out)


def point_at_masks(stage: Stage) -> None:
    """Whether its maps point at what the words name."""
    from cxrlab.evaluation.config import PointingConfig
    from cxrlab.evaluation.pointing import pointing
    from cxrlab.models.decoding import Decoding

    scale, out = _scale(stage), stage.out / POINTED
    if state(out) != "finished":
        decoding = Decoding(max_new_tokens=scale.tokens)
        config = PointingConfig(
            BUILTIN, stage.corpus, n=scale.pointed, maps=("max-mean", "gradient"), seed=stage.config.seed,
            decoding=decoding,
        )  # fmt: skip
        pointing(config, out)


def _write(stage: Stage, model: str, name: str) -> None:
    from cxrlab.models.decoding import Decoding

    scale = _scale(stage)
    decoding = Decoding(max_new_tokens=scale.tokens)
    write_reports(stage, model, name, control_studies=scale.controls, decoding=decoding)


def _optimisation(stage: Stage, samples: int, learning_rate: float) -> Optimisation:
    batch = _scale(stage).batch
    return Optimisation(
        learning_rate, steps=max(1, samples // batch), batch_size=batch, max_length=400, seed=stage.config.seed
    )


def _scale(stage: Stage) -> ModelScale:
    return SCALES[stage.config.size]

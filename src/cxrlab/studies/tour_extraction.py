"""The step of the tour that copies: the built-in reporter, asked with images and with pictures that show no chest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cxrlab.studies.config import TourSize
from cxrlab.studies.tour_models import ALIGNED, LESSON, SIZE
from cxrlab.studies.tour_stage import Stage

COPIED, WATCHED = "copied", "watched"
CEILING, STOLEN = f"{COPIED}/in-domain", f"{COPIED}/ada-steal"
VICTIM = "builtin:reporter"


@dataclass(frozen=True)
class CopyScale:
    """How much is asked and learnt.

    Args:
        budget: Queries of ADA-Steal, with scenes.
        steps: Optimiser steps of its surrogate; between rounds a third of them.
        radiographs: Queries of the ceiling, with images of chests; none leaves it out.
        radiograph_steps: Optimiser steps of the ceiling's surrogate.
        batch: Queries per step.
        moves: Gradient steps that move an image.
        measured: Test images that surrogates are measured on.
        tokens: Longest report.
        benign: Benign images behind the detectors' thresholds, and as many to count false alarms on.
        bound: Share of benign images that a detector may flag.
    """

    budget: int
    steps: int
    radiographs: int
    radiograph_steps: int
    batch: int
    moves: int
    measured: int
    tokens: int
    benign: int
    bound: float


SCALES: dict[TourSize, CopyScale] = {
    "quick": CopyScale(2, 1, 0, 0, batch=1, moves=1, measured=1, tokens=3, benign=60, bound=0.1),
    "default": CopyScale(16, 6, 48, 44, batch=8, moves=1, measured=12, tokens=80, benign=300, bound=0.02),
    "full": CopyScale(48, 24, 96, 96, batch=8, moves=2, measured=16, tokens=100, benign=600, bound=0.01),
}


def copy_reporter(stage: Stage) -> None:
    """The ceiling, then ADA-Steal, and whether either would have been noticed.

    The ceiling's attacker has radiographs: it starts from the projector of stage 2 and asks with images of chests.
    ADA-Steal's has none: it starts from a new projector and asks with scenes.
    """
    from cxrlab.extraction.audit import extract
    from cxrlab.extraction.config import Alignment, ExtractConfig, Fitting, PaperDecoding

    scale = SCALES[stage.config.size]
    words = PaperDecoding(strategy="greedy", max_new_tokens=scale.tokens)
    stolen = ExtractConfig(
        victim=VICTIM,
        data=stage.corpus,
        method="ada-steal",
        pool="scenes",
        budget=scale.budget,
        rounds=2,
        size=SIZE,
        n=scale.measured,
        seed=stage.config.seed,
        map_sentences=120,
        victim_run=stage.out / COPIED / "victim",
        alignment=Alignment(steps=scale.moves),
        fitting=Fitting(
            steps=scale.steps, round_steps=max(1, scale.steps // 3), batch_size=scale.batch, max_length=400
        ),
        victim_decoding=words,
        surrogate_decoding=words,
    )
    if scale.radiographs:
        fitting = Fitting(learning_rate=3e-3, steps=scale.radiograph_steps, batch_size=scale.batch, max_length=400)
        ceiling = replace(
            stolen,
            method="in-domain",
            pool=f"corpus:{stage.out / LESSON}",
            budget=scale.radiographs,
            surrogate=str(stage.out / ALIGNED),
            fitting=fitting,
        )
        extract(ceiling, stage.out / CEILING)
    extract(stolen, stage.out / STOLEN)
    _watch(stage, scale)


def _watch(stage: Stage, scale: CopyScale) -> None:
    """Two detectors that look at each image, set on benign images alone."""
    from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
    from cxrlab.extraction.detection.detect import detect

    config = DetectConfig(
        benign=stage.corpus,
        stream=tuple(stage.out / name for name in ((CEILING,) if scale.radiographs else ()) + (STOLEN,)),
        detectors=("chest-gate", "perturbation"),
        encoder="none",
        n=scale.benign,
        detector=DetectorSettings(image_bound=scale.bound),
        seed=stage.config.seed,
    )
    detect(config, stage.out / WATCHED)

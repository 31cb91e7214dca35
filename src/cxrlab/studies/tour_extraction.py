"""The step of the tour that copies: the built-in reporter, asked with films and with pictures that show no chest."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.studies.tour_models import LESSON, SIZE
from cxrlab.studies.tour_stage import Stage

COPIED, WATCHED = "copied", "watched"
CEILING, STOLEN = f"{COPIED}/in-domain", f"{COPIED}/ada-steal"
VICTIM = "builtin:reporter"


@dataclass(frozen=True)
class CopyScale:
    """How much is asked and learnt.

    Args:
        budget: Queries of each attack.
        steps: Optimiser steps of a copy; of those between rounds a third.
        batch: Queries a step.
        moves: Gradient steps that move a picture.
        films: Test films that copies are measured on.
        tokens: Longest report.
        benign: Benign films behind the detectors' thresholds, and as many to count false alarms on.
        bound: Share of benign films that a detector may flag.
        ceiling: Whether films are asked too.
    """

    budget: int
    steps: int
    batch: int
    moves: int
    films: int
    tokens: int
    benign: int
    bound: float
    ceiling: bool = True


FULL = CopyScale(budget=48, steps=24, batch=8, moves=2, films=16, tokens=100, benign=600, bound=0.01)
QUICK = CopyScale(budget=2, steps=1, batch=1, moves=1, films=1, tokens=3, benign=60, bound=0.1, ceiling=False)


def copy_reporter(stage: Stage) -> None:
    """The ceiling (queries with films), then ADA-Steal with pictures, and whether either would have been noticed."""
    from cxrlab.extraction.audit import extract
    from cxrlab.extraction.config import Alignment, ExtractConfig, Fitting
    from cxrlab.extraction.paper_decoding import PaperDecoding

    scale = QUICK if stage.config.quick else FULL
    words = PaperDecoding(strategy="greedy", max_new_tokens=scale.tokens)
    for method, out, pool in (
        ("in-domain", CEILING, f"corpus:{stage.out / LESSON}"),
        ("ada-steal", STOLEN, "scenes"),
    ):
        config = ExtractConfig(
            victim=VICTIM,
            data=stage.corpus,
            method=method,
            pool=pool,
            budget=scale.budget,
            rounds=2,
            size=SIZE,
            n=scale.films,
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
        if scale.ceiling or method != "in-domain":
            extract(config, stage.out / out)
    _watch(stage, scale)


def _watch(stage: Stage, scale: CopyScale) -> None:
    """Two detectors that look at each film, set on benign films alone."""
    from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
    from cxrlab.extraction.detection.watch import detect

    config = DetectConfig(
        benign=stage.corpus,
        stream=tuple(stage.out / name for name in ((CEILING,) if scale.ceiling else ()) + (STOLEN,)),
        detectors=("chest-gate", "perturbation"),
        encoder="none",
        n=scale.benign,
        detector=DetectorSettings(film_bound=scale.bound),
        seed=stage.config.seed,
    )
    detect(config, stage.out / WATCHED)

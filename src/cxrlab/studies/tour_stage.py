"""What the steps of the tour are given: the open run, its settings, how much is made, and the names of its folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cxrlab.core.runs import Run, state
from cxrlab.studies.config import TourConfig, TourSize

CORPUS, SCENES, NORMAL, RETRIEVAL = "corpus", "scenes", "normal", "retrieval"


@dataclass(frozen=True)
class Scale:
    """How much the tour makes: phantoms and scenes with their sides in pixels, images on the sheet, examples."""

    phantoms: int
    phantom_size: int
    scenes: int
    scene_size: int
    sheet: int
    examples: int


@dataclass(frozen=True)
class Stage:
    """What a step is given: the open run, its folder, the settings and the scale."""

    run: Run
    config: TourConfig
    scale: Scale

    @property
    def out(self) -> Path:
        """The folder of the tour."""
        return self.run.folder

    @property
    def corpus(self) -> Path:
        """The folder of the phantoms that everything is measured on."""
        return self.out / CORPUS


@dataclass(frozen=True)
class Step:
    """One step.

    Args:
        id: Its name.
        does: What it does, in a few words.
        work: The function; it may be called again after a stop in its middle.
        budgets: Seconds that it may take on two cores in a quick, a default and a full tour.
        model: Whether it needs the built-in models.
        extra: A further optional part of the program that it needs; empty for none.
    """

    id: str
    does: str
    work: Callable[[Stage], None]
    budgets: tuple[float, float, float]
    model: bool = False
    extra: str = ""

    def budget(self, size: TourSize) -> float:
        """Seconds that it may take on two cores in a tour of this size."""
        return self.budgets[get_args(TourSize).index(size)]


def write_reports(stage: Stage, model: str, name: str, **settings: Any) -> None:
    """Reports of a model for the test split, in the folder of this name; a finished run is left as it is."""
    from cxrlab.evaluation.config import GenerateConfig
    from cxrlab.evaluation.generate import generate

    out = stage.out / name
    if state(out) != "finished":  # else the tour was stopped between the run's end and its own note of it
        seed, examples = stage.config.seed, stage.scale.examples
        generate(GenerateConfig(model=model, data=stage.corpus, seed=seed, examples=examples, **settings), out)

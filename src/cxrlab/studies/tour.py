"""The command `cxrlab tour`: a study that takes the whole chain on phantoms, step by step, from a seed to a page.

    corpus/ scenes/               phantom images with reports, and pictures without a chest
    check.json sheet.png          the corpus, checked and shown
    mimic_layout/ imported/       the corpus in the layout of MIMIC-CXR, and imported from it like any download
    structured/ card/             its reports structured by rule, and the data card of the result
    normal/ retrieval/            reports of two baselines
    training_corpus/ cache/       images for training, decoded, and the vision encoder's features of them
    align/ finetune/              stages 2 and 3
    trained/ reporter/            reports of the model just trained and of the built-in one
    scores/                       all four scored against the corpus, and compared
    retrieved/ explained/ pointing/    the encoder's recall, and the reporter's maps
    degraded/ candidates/ rewards/ pairs/ preferred/    the reporter trained on mistakes, then aligned by preference
    robustness/                   both of them on perturbed images
    extraction/ detection/        the reporter copied by queries, and whether a detector would have noticed
    served/                       the reporter behind a guarded server
    steps.jsonl                   seconds and budget of each step
    left_out.json                 why steps are left out, decided when the tour begins
    summary.json page.html        the end

A stopped tour continues with the step that it was in. Without torch, or in a copy without the built-in weights, the
steps that need a model are left out, with the reason.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, MissingExtra
from cxrlab.core.files import read_json
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import NoticeStream
from cxrlab.render.page import PAGE
from cxrlab.studies import tour_steps
from cxrlab.studies.engine import Part, StudyRecipe, run_recipe

TourSize = Literal["quick", "default", "full"]
Value = TypeVar("Value")
STEPS, LEFT_OUT = "steps.jsonl", "left_out.json"
TOTAL_S = {"quick": 60, "default": 359, "full": 960}  # seconds for a whole tour on two shared cores


@dataclass(frozen=True)
class TourConfig:
    """The whole chain on phantoms.

    Args:
        quick: Fewer and smaller images: a look at every step, in seconds; the trained models have learnt nothing.
        full: More images, longer training, more queries: narrower intervals, a better model, three times the time.
        seed: The same seed gives the same images and reports.
    """

    quick: bool = False
    full: bool = False
    seed: int = 7

    def __post_init__(self) -> None:
        if self.quick and self.full:
            raise ConfigError(
                "--quick and --full exclude each other; give one of them, or neither for the default tour."
            )
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} is not usable; give a whole number of at least 0.")

    @property
    def size(self) -> TourSize:
        """Which of the three tours."""
        return "quick" if self.quick else "full" if self.full else "default"


@dataclass(frozen=True)
class CorpusSize:
    """Phantoms and scenes with their sides in pixels, images on the contact sheet, examples per run."""

    phantoms: int
    phantom_size: int
    scenes: int
    scene_size: int
    sheet: int
    examples: int


CORPUS_SIZES: dict[TourSize, CorpusSize] = {
    "quick": CorpusSize(phantoms=160, phantom_size=128, scenes=24, scene_size=64, sheet=12, examples=4),
    "default": CorpusSize(phantoms=600, phantom_size=224, scenes=100, scene_size=96, sheet=24, examples=8),
    "full": CorpusSize(phantoms=1500, phantom_size=224, scenes=300, scene_size=96, sheet=24, examples=8),
}


@dataclass(frozen=True)
class Step:
    """One step of the tour.

    Args:
        id: Its name.
        does: What it does, in a few words.
        work: The function; it may be called again after a stop in its middle.
        budgets: Seconds that it may take on two cores in a quick, a default and a full tour.
        needs: Optional parts of the program; "models" includes the built-in weights.
    """

    id: str
    does: str
    work: Callable[[Tour], None]
    budgets: tuple[float, float, float]
    needs: tuple[str, ...] = ()

    def budget(self, size: TourSize) -> float:
        """Seconds that it may take on two cores in a tour of this size."""
        return self.budgets[get_args(TourSize).index(size)]

    def why_left_out(self, missing_models: str | None) -> str | None:
        """The reason for which this step cannot be taken; None where it can."""
        if "models" in self.needs and missing_models:
            return missing_models
        try:
            for extra in self.needs:
                require(extra)
        except MissingExtra as error:
            return str(error)
        return None


MODEL, SERVE = ("models",), ("models", "serve")
STEPS_OF_THE_TOUR = (
    Step("phantom", "draw phantom images and write their reports", tour_steps.make_corpus, (4, 10, 20)),
    Step("check", "read every line and image of the corpus", tour_steps.check_images, (1, 2, 5)),
    Step("sheet", "lay out a contact sheet", tour_steps.draw_sheet, (1, 1, 5)),
    Step("import", "write the images as MIMIC-CXR is shipped and import them", tour_steps.import_again, (1, 3, 10)),
    Step("structure", "structure the imported reports by rule", tour_steps.structure_reports, (2, 3, 10)),
    Step("card", "count what the imported corpus holds", tour_steps.write_card, (1, 1, 5)),
    Step("scenes", "draw pictures without a chest", tour_steps.make_pictures, (1, 1, 5)),
    Step("normal", "write the constant normal report", tour_steps.generate_normal, (1, 1, 5)),
    Step("retrieval", "write the report of the nearest training image", tour_steps.generate_nearest, (2, 2, 10)),
    Step("training", "draw images for training", tour_steps.make_training_corpus, (1, 16, 40), MODEL),
    Step("align", "stage 2: train a projector", tour_steps.align_projector, (5, 24, 50), MODEL),
    Step("finetune", "stage 3: train adapters on the language model", tour_steps.finetune_model, (2, 56, 240), MODEL),
    Step("trained", "write reports with the model just trained", tour_steps.generate_trained, (3, 15, 35), MODEL),
    Step("reporter", "write reports with the built-in reporter", tour_steps.generate_builtin, (3, 18, 40), MODEL),
    Step("score", "score all against the corpus", tour_steps.score_all, (2, 4, 8)),
    Step("compare", "compare them study by study", tour_steps.compare_all, (1, 1, 5)),
    Step("retrieve", "find reports by images and images by reports", tour_steps.retrieve_reports, (1, 2, 5), MODEL),
    Step("explain", "map where the reporter looked", tour_steps.explain_image, (2, 4, 10), MODEL),
    Step("pointing", "compare its maps with the exact masks", tour_steps.compare_maps_with_masks, (2, 7, 25), MODEL),
    Step("degrade", "train the reporter on reports with mistakes", tour_steps.degrade_reporter, (2, 18, 35), MODEL),
    Step("sample", "draw several reports per image from it", tour_steps.sample_candidates, (2, 19, 50), MODEL),
    Step("judge", "judge and pair them without a human", tour_steps.judge_candidates, (1, 1, 5), MODEL),
    Step("prefer", "align it by the pairs; before and after", tour_steps.train_preference, (5, 40, 92), MODEL),
    Step("attack", "attack it and what it was before", tour_steps.attack_models, (3, 25, 45), MODEL),
    Step("copy", "copy the reporter by queries, and detect them", tour_steps.copy_reporter, (4, 38, 80), MODEL),
    Step("serve", "serve it behind a guard, to clients and an attacker", tour_steps.serve_reporter, (4, 11, 40), SERVE),
    Step("summary", "count what there is", tour_steps.write_summary, (1, 1, 5)),
)


class Tour(StudyRecipe):
    """The tour as a study without variants: its parts are its steps, made once, in their order."""

    config: TourConfig
    config_class = TourConfig
    title = "A tour of cxrlab"
    kinds = MappingProxyType({})
    operational = ()
    seed: int
    run: Run

    def plan(self) -> None:
        """One part per step; steps write into one another's folders, so that none has a run of its own."""
        self.seed = self.config.seed
        self.steps = {step.id: step for step in STEPS_OF_THE_TOUR}
        self.parts = [Part("step", self.config.seed, name, None) for name in self.steps]

    def prepare(self, run: Run) -> None:
        """Decide which steps are left out: once, because half a tour with models compares nothing."""
        self.run = run
        if not run.path(LEFT_OUT).is_file():
            run.write(LEFT_OUT, {"models": tour_steps.missing_models()})
        self.missing_models = read_json(run.path(LEFT_OUT))["models"]
        self.done = run.done(STEPS)

    def make(self, part: Part) -> None:
        """Take a step and record its time, unless it was taken before or is left out."""
        step = self.steps[part.folder]
        if step.id in self.done:
            _log(f"{step.id:<10} done before")
            return
        if reason := step.why_left_out(self.missing_models):
            self.run.append(STEPS, {"id": step.id, "does": f"{step.does}: left out, {reason}"})
            _log(f"{step.id:<10} left out: {reason}")
            return
        start = time.monotonic()
        step.work(self)
        seconds, budget = time.monotonic() - start, step.budget(self.config.size)
        line = {"id": step.id, "does": step.does, "seconds": round(seconds, 2), "budget_s": float(budget)}
        self.run.append(STEPS, line)
        over = "  OVER ITS BUDGET" if seconds > budget else ""
        _log(f"{step.id:<10} {seconds:6.1f} s of {budget:3g}   {step.does}{over}")

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """None: the last step writes the summary."""
        return {}

    def page_runs(self) -> list[Path]:
        """Runs of the page: unfinished ones too, which it lists as such; those that were left out have no folder."""
        generated, always = tour_steps.GENERATED, ("card", tour_steps.COMPARISON)
        scored = [f"scores/{name}" for name in generated]
        parts = ("card", *generated, *scored, tour_steps.COMPARISON, *tour_steps.MODEL_RUNS)
        return [self.out / part for part in parts if part in always or state(self.out / part)]

    @property
    def corpus(self) -> Path:
        """The phantoms that everything is measured on."""
        return self.out / "corpus"

    @property
    def corpus_size(self) -> CorpusSize:
        """Sizes of what is drawn."""
        return CORPUS_SIZES[self.config.size]

    def by_size(self, quick: Value, default: Value, full: Value) -> Value:
        """The value for this tour's size."""
        return {"quick": quick, "default": default, "full": full}[self.config.size]


def run_tour(config: TourConfig, out: Path = Path("runs/tour")) -> Path:
    """Go through the whole chain on phantoms and end with a page.

    A stopped tour is continued; a finished one with the same settings is shown again.

    Args:
        config: Settings.
        out: Folder of the tour.
    """
    tour, page = Tour(config, out), out / PAGE
    if finished(out, config, seed=config.seed):
        reason = read_json(out / LEFT_OUT)["models"] if (out / LEFT_OUT).is_file() else None
        without = f" without models ({reason})" if reason else ""
        _log(f"{out} holds this tour, finished{without}; delete the folder to make it again")
        if page.is_file() and all(state(run) == "finished" for run in tour.page_runs()):
            return page
    return run_recipe(tour)


def _log(line: str) -> None:
    # On the error stream, as all progress is: the result on the other one is the path of the page.
    NoticeStream(sys.stderr).write(line + "\n")

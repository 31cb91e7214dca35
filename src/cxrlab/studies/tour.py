"""The tour: the whole chain on phantoms, from a seed to a page.

    corpus/ scenes/        what the seed gave
    check.json sheet.png   the corpus, checked and looked at
    as_mimic/ imported/    the corpus in the layout of MIMIC-CXR, and imported from it like any download
    structured/ card/      its reports structured by rule, and the data card of the result
    normal/ retrieval/     runs of two baselines
    lesson/ cache/         images to learn from, decoded, and what the vision encoder sees in them
    align/ finetune/       stages 2 and 3 on them
    own/ reporter/         reports of the model just trained and of the built-in one
    scores/                all four scored against the corpus, and compared
    retrieved/ explained/ pointed/   the encoder's recall, and where the reporter looked
    spoilt/ sampled/ judged/ paired/ aligned/   the reporter taught mistakes, and taught to prefer better reports again
    attacked/              both of them on perturbed images
    copied/ watched/       the reporter copied by queries, and whether that would have been noticed
    served/                the reporter behind an address, guarded
    steps.jsonl            seconds and budget of each step
    left_out.json          why steps are left out, decided when the tour begins
    summary.json page.html the end

A tour that was stopped goes on with the step that it was in. Without torch, or in a copy without the built-in
weights, the steps that need a model are left out and say so.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cxrlab.core.environment import require
from cxrlab.core.errors import MissingExtra
from cxrlab.core.files import read_json
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import NoticeStream
from cxrlab.render.page import PAGE, write_page
from cxrlab.studies import tour_extraction, tour_models, tour_preference, tour_robustness, tour_serving
from cxrlab.studies.config import TourConfig, TourSize
from cxrlab.studies.tour_stage import NORMAL, RETRIEVAL, SCENES, Scale, Stage, Step, write_reports

STEPS, LEFT_OUT = "steps.jsonl", "left_out.json"
SCORES, COMPARISON = "scores", "scores/comparison"
WRITTEN = (NORMAL, RETRIEVAL, tour_models.OWN, tour_models.REPORTER)
LOOKED_INTO = (
    tour_preference.ALIGNED,
    tour_robustness.ATTACKED,
    tour_extraction.CEILING,
    tour_extraction.STOLEN,
    tour_extraction.WATCHED,
    tour_serving.SERVED,
    tour_models.RETRIEVED,
    tour_models.EXPLAINED,
    tour_models.POINTED,
)
AS_MIMIC, IMPORTED, STRUCTURED, CARD = "as_mimic", "imported", "structured", "card"
CHECK, SHEET, SUMMARY, CAME_BACK = "check.json", "sheet.png", "summary.json", "came_back.json"
TOTAL_S = {"quick": 60, "default": 359, "full": 960}  # seconds that a whole tour may take on two shared cores


SCALES: dict[TourSize, Scale] = {
    "quick": Scale(phantoms=160, phantom_size=128, scenes=24, scene_size=64, sheet=12, examples=4),
    "default": Scale(phantoms=600, phantom_size=224, scenes=100, scene_size=96, sheet=24, examples=8),
    "full": Scale(phantoms=1500, phantom_size=224, scenes=300, scene_size=96, sheet=24, examples=8),
}


def make_corpus(stage: Stage) -> None:
    """Phantom images with reports, exact findings and masks."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom

    scale = stage.scale
    make_phantom(PhantomConfig(n=scale.phantoms, size=scale.phantom_size, seed=stage.config.seed), stage.corpus)


def check_images(stage: Stage) -> None:
    """Every line and picture of the corpus."""
    from cxrlab.core.errors import DataError
    from cxrlab.data.check import check_corpus

    found = check_corpus(stage.corpus)
    stage.run.write(CHECK, found.to_json())
    if not found.ok:
        raise DataError(f"the phantom corpus has defects:\n{found.table()}")


def draw_sheet(stage: Stage) -> None:
    """A contact sheet with what is known under each image."""
    from cxrlab.data.config import SheetConfig
    from cxrlab.data.contact_sheet import contact_sheet
    from cxrlab.data.corpus import load_corpus

    config = SheetConfig(n=stage.scale.sheet, columns=6, seed=stage.config.seed, masks=True, size=200)
    contact_sheet(load_corpus(stage.corpus), config, stage.run.path(SHEET))


def import_again(stage: Stage) -> None:
    """The images in MIMIC-CXR's layout, imported as a downloaded data set is; what came back is counted."""
    from cxrlab.data.config import ImportConfig
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.export import IDS, export_corpus, is_exported
    from cxrlab.data.importing import import_corpus
    from cxrlab.studies.round_trip import came_back

    source, folder = load_corpus(stage.corpus), stage.out / AS_MIMIC
    if not is_exported(folder):
        export_corpus("mimic-cxr", source, folder)
    back = import_corpus("mimic-cxr", ImportConfig(folder), stage.out / IMPORTED)
    stage.run.write(CAME_BACK, came_back(source, back, folder / IDS))


def structure_reports(stage: Stage) -> None:
    """Clean sections beside the source's, by rule."""
    from cxrlab.data.config import StructureConfig
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.run import structure_corpus

    structure_corpus(load_corpus(stage.out / IMPORTED), StructureConfig(), stage.out / STRUCTURED)


def count_all(stage: Stage) -> None:
    """The data card of the corpus that came of it."""
    from cxrlab.data.check import write_data_card
    from cxrlab.data.config import CheckConfig

    out = stage.out / CARD
    if state(out) != "finished":
        write_data_card(stage.out / STRUCTURED, CheckConfig(images=6, seed=stage.config.seed), out)


def make_pictures(stage: Stage) -> None:
    """Pictures without a chest."""
    from cxrlab.data.config import ScenesConfig
    from cxrlab.data.scenes import make_scenes

    scale = stage.scale
    make_scenes(ScenesConfig(n=scale.scenes, size=scale.scene_size, seed=stage.config.seed), stage.out / SCENES)


def write_normal(stage: Stage) -> None:
    """The constant normal report for every image of the test split."""
    write_reports(stage, "stub:normal", NORMAL)


def write_nearest(stage: Stage) -> None:
    """The report of the nearest training image for every image of the test split."""
    write_reports(stage, f"retrieval:{stage.corpus}", RETRIEVAL)


def score_all(stage: Stage) -> None:
    """Baselines and models against the corpus, with intervals, floors and errors."""
    from cxrlab.evaluation.config import ScoreConfig
    from cxrlab.evaluation.score import run_score

    for name in written(stage.out):
        out = stage.out / SCORES / name
        if state(out) != "finished":
            config = ScoreConfig(references=stage.corpus, predictions=stage.out / name, seed=stage.config.seed)
            run_score(config, out)


def compare_all(stage: Stage) -> None:
    """Every other against the constant report, study by study."""
    from cxrlab.evaluation.compare import compare

    out = stage.out / COMPARISON
    if state(out) != "finished":
        compare([stage.out / SCORES / name for name in written(stage.out)], seed=stage.config.seed, out=out)


def sum_up(stage: Stage) -> None:
    """The corpus in numbers, and which parts of the chain exist."""
    from cxrlab.data.corpus import load_corpus
    from cxrlab.studies.chain import chain
    from cxrlab.studies.overview import corpus_overview

    stage.run.write(
        SUMMARY,
        {
            "about": "From one seed to images, reports, models and their scores. No patient is behind any of it.",
            "corpus": corpus_overview(load_corpus(stage.corpus)),
            "scenes": dict(load_corpus(stage.out / SCENES).card.counts),
            "check": read_json(stage.out / CHECK),
            "came_back": read_json(stage.out / CAME_BACK),
            "chain": chain(),
        },
    )


STEPS_OF_THE_TOUR = (
    Step("phantom", "draw phantom images and write their reports", make_corpus, (4, 10, 20)),
    Step("check", "read every line and picture of the corpus", check_images, (1, 2, 5)),
    Step("sheet", "lay out a contact sheet", draw_sheet, (1, 1, 5)),
    Step("import", "write the images as MIMIC-CXR is shipped and import them", import_again, (1, 3, 10)),
    Step("structure", "structure the imported reports by rule", structure_reports, (2, 3, 10)),
    Step("card", "count what the imported corpus holds", count_all, (1, 1, 5)),
    Step("scenes", "draw pictures without a chest", make_pictures, (1, 1, 5)),
    Step("normal", "write the constant normal report", write_normal, (1, 1, 5)),
    Step("retrieval", "write the report of the nearest training image", write_nearest, (2, 2, 10)),
    Step("lesson", "draw images to learn from", tour_models.draw_lesson, (1, 16, 40), model=True),
    Step("align", "stage 2: train a projector", tour_models.align_projector, (5, 24, 50), model=True),
    Step(
        "finetune",
        "stage 3: train adapters on the language model",
        tour_models.finetune_reporter,
        (2, 56, 240),
        model=True,
    ),
    Step("own", "write reports with the model just trained", tour_models.write_own, (3, 15, 35), model=True),
    Step("reporter", "write reports with the built-in reporter", tour_models.write_builtin, (3, 18, 40), model=True),
    Step("score", "score all against the corpus", score_all, (2, 4, 8)),
    Step("compare", "compare them study by study", compare_all, (1, 1, 5)),
    Step("retrieve", "find reports by images and images by reports", tour_models.find_reports, (1, 2, 5), model=True),
    Step("explain", "see where the reporter looked", tour_models.explain_image, (2, 4, 10), model=True),
    Step("pointing", "hold its maps against the exact masks", tour_models.point_at_masks, (2, 7, 25), model=True),
    Step("spoil", "teach the reporter reports with mistakes", tour_preference.spoil, (2, 18, 35), model=True),
    Step("sample", "draw several reports an image from it", tour_preference.sample_reports, (2, 19, 50), model=True),
    Step("judge", "judge and pair them without a person", tour_preference.judge_reports, (1, 1, 5), model=True),
    Step(
        "prefer",
        "align it by the pairs; before and after",
        tour_preference.align_by_preference,
        (5, 40, 92),
        model=True,
    ),
    Step("attack", "attack it and what it was before", tour_robustness.attack_models, (3, 25, 45), model=True),
    Step(
        "copy", "copy the reporter by queries, and watch them", tour_extraction.copy_reporter, (4, 38, 80), model=True
    ),
    Step(
        "serve", "serve it behind a guard; friend and foe ask", tour_serving.serve_reporter, (4, 11, 40), True, "serve"
    ),
    Step("summary", "count what there is", sum_up, (1, 1, 5)),
)


def run_tour(config: TourConfig, out: Path = Path("runs/tour")) -> Path:
    """Go through the whole chain on phantoms and end with a page.

    A stopped tour is continued; a finished one with the same settings is shown again.

    Args:
        config: Settings.
        out: Folder of the tour.
    """
    page = out / PAGE
    if finished(out, config, seed=config.seed):
        told = read_json(out / LEFT_OUT)["models"] if (out / LEFT_OUT).is_file() else None
        without = f" without models ({told})" if told else ""
        _say(f"{out} holds this tour, finished{without}; delete the folder to make it again")
        if page.is_file() and all(state(out / part) == "finished" for part in _shown(out)):
            return page
    else:
        _take_steps(config, out)
    parts = _shown(out)
    return write_page([out, *(out / part for part in parts)], page, title="A tour of cxrlab")


def _shown(out: Path) -> tuple[str, ...]:
    """Runs of the page: unfinished ones too, which it lists as such; those that were left out have no folder."""
    scored = [f"{SCORES}/{name}" for name in WRITTEN]
    always = (CARD, COMPARISON)
    parts = (CARD, *WRITTEN, *scored, COMPARISON, *LOOKED_INTO)
    return tuple(part for part in parts if part in always or state(out / part))


def written(out: Path) -> tuple[str, ...]:
    """Runs with reports, the baselines first."""
    return tuple(name for name in WRITTEN if state(out / name) == "finished")


def _take_steps(config: TourConfig, out: Path) -> None:
    with Run.open(out, config, seed=config.seed) as run:
        stage = Stage(run, config, SCALES[config.size])
        missing = _left_out(run)
        done = run.done(STEPS)
        for step in STEPS_OF_THE_TOUR:
            if step.id in done:
                _say(f"{step.id:<10} done before")
                continue
            if reason := _lacking(step, missing):
                run.append(STEPS, {"id": step.id, "does": f"{step.does}: left out, {reason}"})
                _say(f"{step.id:<10} left out: {reason}")
                continue
            start = time.monotonic()
            step.work(stage)
            seconds, budget = time.monotonic() - start, step.budget(config.size)
            run.append(
                STEPS, {"id": step.id, "does": step.does, "seconds": round(seconds, 2), "budget_s": float(budget)}
            )
            over = "  OVER ITS BUDGET" if seconds > budget else ""
            _say(f"{step.id:<10} {seconds:6.1f} s of {budget:3g}   {step.does}{over}")


def _lacking(step: Step, models: str | None) -> str | None:
    """Why a step cannot be taken; None where it can.

    Args:
        step: The step.
        models: Why steps with models are left out; None where they are not.
    """
    if step.model and models:
        return models
    try:
        if step.extra:
            require(step.extra)
    except MissingExtra as error:
        return str(error)
    return None


def _left_out(run: Run) -> str | None:
    """Why steps with models are left out, as it was when the tour began: half a tour with them compares nothing."""
    if not run.path(LEFT_OUT).is_file():
        run.write(LEFT_OUT, {"models": tour_models.missing()})
    found: str | None = read_json(run.path(LEFT_OUT))["models"]
    return found


def _say(line: str) -> None:
    # On the error stream, as all progress is: the result on the other one is the path of the page.
    NoticeStream(sys.stderr).write(line + "\n")

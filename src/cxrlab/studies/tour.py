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

The tour trains a report model from the built-in encoder and the built-in general language model and compares it with the
built-in reporter. That reporter is then trained on reports with mistakes, aligned by preference, attacked, copied and
served. A stopped tour continues with the step that it was in. Without torch, or in a copy without the built-in weights, the
steps that need a model are left out, with the reason.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.config import check_at_least
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, MissingExtra
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import SPLITS, Report, Study
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.tables import plain_cell
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.check import check_corpus, write_data_card
from cxrlab.data.config import CheckConfig, ImportConfig, PhantomConfig, ScenesConfig, SheetConfig, StructureConfig
from cxrlab.data.contact_sheet import contact_sheet
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.export import IDS, export_corpus, is_exported
from cxrlab.data.importing import import_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.structuring.run import structure_corpus
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import ExplainConfig, GenerateConfig, PointingConfig, RetrieveConfig, ScoreConfig
from cxrlab.evaluation.generate import generate
from cxrlab.evaluation.score import run_score
from cxrlab.extraction.config import Alignment, ExtractConfig, Fitting, PaperDecoding
from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
from cxrlab.findings.reader import read
from cxrlab.models.decoding import Decoding
from cxrlab.preference.config import JudgeConfig, Measure, PairConfig, PreferConfig, SampleConfig, Validation
from cxrlab.render.page import PAGE
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.serving.config import GuardConfig, RehearseConfig
from cxrlab.studies.engine import Part, StudyRecipe, run_recipe
from cxrlab.training.config import AlignConfig, FinetuneConfig, Optimisation

TourSize = Literal["quick", "default", "full"]
Value = TypeVar("Value")
STEPS, LEFT_OUT = "steps.jsonl", "left_out.json"

CHECK, SHEET, SUMMARY, ROUND_TRIP = "check.json", "sheet.png", "summary.json", "round_trip.json"
SCENES, IMPORTED, STRUCTURED, COMPARISON = "scenes", "imported", "structured", "scores/comparison"
NORMAL, RETRIEVAL, TRAINED, REPORTER = "normal", "retrieval", "trained", "reporter"
GENERATED = (NORMAL, RETRIEVAL, TRAINED, REPORTER)  # runs with reports, the baselines first

ENCODER, LANGUAGE_MODEL, BUILTIN = "builtin:encoder", "builtin:general", "builtin:reporter"
SIZE = 128  # side of the images that the built-in encoder reads
TRAINING_CORPUS, ALIGN, FINETUNE = "training_corpus", "align", "finetune"
RETRIEVED, EXPLAINED, POINTING = "retrieved", "explained", "pointing"
DEGRADED, CANDIDATES, REWARDS, PAIRS, PREFERRED = "degraded", "candidates", "rewards", "pairs", "preferred"
ROBUSTNESS, DETECTION, SERVED = "robustness", "detection", "served"
CEILING, STOLEN = "extraction/in-domain", "extraction/ada-steal"
# Runs of the page that need models.
MODEL_RUNS = (PREFERRED, ROBUSTNESS, CEILING, STOLEN, DETECTION, SERVED, RETRIEVED, EXPLAINED, POINTING)
LORA: dict[str, Any] = {"lora_rank": 16, "lora_alpha": 32.0}  # of the reporter's two trainings


@dataclass(frozen=True)
class TourConfig:
    """The whole chain on phantoms.

    Args:
        quick: Fewer and smaller images: a look at every step in half a minute; the trained models have learnt nothing.
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
        check_at_least(self, seed=0)

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


def run_tour(config: TourConfig, out: Path = Path("runs/tour")) -> Path:
    """Go through the whole chain on phantoms and end with a page.

    A stopped tour is continued; a finished one with the same settings is shown again.
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


class Tour(StudyRecipe):
    """The tour as a study without variants: its parts are its steps, made once, in their order."""

    config: TourConfig
    config_class = TourConfig
    title = "A tour of cxrlab"
    kinds = MappingProxyType({})
    operational = ()
    counts_parts = False
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
            run.write(LEFT_OUT, {"models": missing_models()})
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
        generated, always = GENERATED, ("card", COMPARISON)
        scored = [f"scores/{name}" for name in generated]
        parts = ("card", *generated, *scored, COMPARISON, *MODEL_RUNS)
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


def missing_models() -> str | None:
    """Why the steps cannot be taken: the extra or the weights that are missing; None when all are there."""
    from cxrlab.models.builtin import NAMES, has_weights

    try:
        require("models")
    except MissingExtra as error:
        return str(error)
    absent = [name for name in NAMES if not has_weights(name)]
    return f"this copy has no weights for builtin:{absent[0]}" if absent else None


@dataclass(frozen=True)
class Step:
    """One step of the tour."""

    id: str
    does: str  # what it does, in a few words
    work: Callable[[Tour], None]  # the function; it may be called again after a stop in its middle
    budgets: tuple[float, float, float]  # seconds that it may take on two cores in a quick, a default and a full tour
    needs: tuple[str, ...] = ()  # optional parts of the program; "models" includes the built-in weights

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


# ── the steps, in their order ─────────────────────────────────────────────────────────────────────


def make_corpus(tour: Tour) -> None:
    """Phantom images with reports, exact findings and masks."""
    size = tour.corpus_size
    make_phantom(PhantomConfig(n=size.phantoms, size=size.phantom_size, seed=tour.seed), tour.corpus)


def check_images(tour: Tour) -> None:
    """Every line and image of the corpus."""
    found = check_corpus(tour.corpus)
    tour.run.write(CHECK, found.to_json())
    if not found.ok:
        raise DataError(f"the phantom corpus has defects:\n{found.table()}")


def draw_sheet(tour: Tour) -> None:
    """A contact sheet with what is known under each image."""
    config = SheetConfig(n=tour.corpus_size.sheet, columns=6, seed=tour.seed, masks=True, size=200)
    contact_sheet(load_corpus(tour.corpus), config, tour.run.path(SHEET))


def import_again(tour: Tour) -> None:
    """The images in MIMIC-CXR's layout, imported as a downloaded data set is, and compared with the source."""
    source, folder = load_corpus(tour.corpus), tour.out / "mimic_layout"
    if not is_exported(folder):
        export_corpus("mimic-cxr", source, folder)
    imported = import_corpus("mimic-cxr", ImportConfig(folder), tour.out / IMPORTED)
    tour.run.write(ROUND_TRIP, round_trip(source, imported, folder / IDS))


@dataclass(frozen=True)
class Preserved:
    """One thing that a study carries: in how many studies it is the same after the round trip, of how many."""

    what: str
    same: int
    of: int


COMPARED: Mapping[str, Callable[[Study], Any]] = MappingProxyType(
    {
        # Words, not lines: a printed report is wrapped.
        "sections, word for word": lambda study: {
            name: text.split() for name, text in (study.sections or Report()).to_json().items() if text is not None
        },
        "the fourteen labels": lambda study: dict(study.labels),
        "views": lambda study: [image.view for image in study.images],
        "age and sex": lambda study: (study.age, study.sex),
        "split": lambda study: study.split,
        "a prior study": lambda study: study.prior is not None,
    }
)


def round_trip(source: Corpus, imported: Corpus, ids: Path) -> tuple[Preserved, ...]:
    """Compare each imported study with its source; `ids` is the export's ids.csv: name in the layout, id in the source."""
    with ids.open(newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    names = {f"s{name}": plain_cell(source_id) for name, source_id in rows}
    pairs = [(source[names[study.id]], study) for study in imported]
    return tuple(
        Preserved(what, sum(part(before) == part(after) for before, after in pairs), len(names))
        for what, part in COMPARED.items()
    )


def structure_reports(tour: Tour) -> None:
    """Clean sections beside the source's, by rule."""
    structure_corpus(load_corpus(tour.out / IMPORTED), StructureConfig(), tour.out / STRUCTURED)


def write_card(tour: Tour) -> None:
    """The data card of the structured corpus."""
    out = tour.out / "card"
    if state(out) != "finished":
        write_data_card(tour.out / STRUCTURED, CheckConfig(images=6, seed=tour.seed), out)


def make_pictures(tour: Tour) -> None:
    """Pictures without a chest."""
    size = tour.corpus_size
    make_scenes(ScenesConfig(n=size.scenes, size=size.scene_size, seed=tour.seed), tour.out / SCENES)


def generate_normal(tour: Tour) -> None:
    """The constant normal report for every image of the test split."""
    generate_reports(tour, "stub:normal", NORMAL)


def generate_nearest(tour: Tour) -> None:
    """The report of the nearest training image for every image of the test split."""
    generate_reports(tour, f"retrieval:{tour.corpus}", RETRIEVAL)


def generate_reports(tour: Tour, model: str, name: str, **settings: Any) -> None:
    """Reports of a model for the test split, in the folder of this name."""
    if state(out := tour.out / name) == "finished":  # the tour stopped between the end of this run and its own note
        return
    examples = tour.corpus_size.examples
    generate(GenerateConfig(model=model, data=tour.corpus, seed=tour.seed, examples=examples, **settings), out)


def make_training_corpus(tour: Tour) -> None:
    """Images for training, of patients that no other step uses."""
    n = tour.by_size(40, 1800, 6000)
    # Each image has a second text with at most eight mistakes, on which the reporter is trained on purpose.
    config = PhantomConfig(n=n, size=SIZE, seed=tour.seed + 1, masks=False, mistakes=8)
    make_phantom(config, tour.out / TRAINING_CORPUS)


def align_projector(tour: Tour) -> None:
    """Stage 2: a projector between the built-in encoder and the built-in language model."""
    from cxrlab.training.align_finetune import align

    samples, batch = tour.by_size(8, 400, 1000), tour.by_size(4, 8, 8)
    config = AlignConfig(
        tour.out / TRAINING_CORPUS,
        encoder=ENCODER,
        language_model=LANGUAGE_MODEL,
        optimisation=_optimisation(tour, 3e-3, batch, steps=samples // batch),
        cache=tour.out / "cache",
    )
    align(config, tour.out / ALIGN)


def finetune_model(tour: Tour) -> None:
    """Stage 3: adapters on the language model, the indication in the prompt."""
    from cxrlab.training.align_finetune import finetune

    samples, batch = tour.by_size(8, 960, 7200), tour.by_size(4, 8, 8)
    config = FinetuneConfig(
        tour.out / TRAINING_CORPUS,
        start=str(tour.out / ALIGN),
        lora_rank=32,
        lora_alpha=64.0,
        lora_dropout=0.0,
        optimisation=_optimisation(tour, 2e-3, batch, steps=samples // batch),
        cache=tour.out / "cache",
    )
    finetune(config, tour.out / FINETUNE)


def _optimisation(tour: Tour, learning_rate: float, batch: int, steps: int | None, epochs: float = 1.0) -> Optimisation:

    return Optimisation(learning_rate, steps=steps, epochs=epochs, batch_size=batch, max_length=400, seed=tour.seed)


def generate_trained(tour: Tour) -> None:
    """Reports of the model that the tour has trained."""
    _generate_by_model(tour, f"hf:{tour.out / FINETUNE / 'checkpoint'}", TRAINED)


def generate_builtin(tour: Tour) -> None:
    """Reports of the built-in reporter, for the same images."""
    _generate_by_model(tour, BUILTIN, REPORTER)


def _generate_by_model(tour: Tour, model: str, name: str) -> None:
    decoding = Decoding(max_new_tokens=tour.by_size(12, 160, 160))
    generate_reports(tour, model, name, control_studies=tour.by_size(3, 6, 32), decoding=decoding)


def _generated(tour: Tour) -> list[str]:
    return [name for name in GENERATED if state(tour.out / name) == "finished"]


def score_all(tour: Tour) -> None:
    """Baselines and models against the corpus, with intervals, floors and errors."""
    for name in _generated(tour):
        if state(out := tour.out / "scores" / name) != "finished":
            run_score(ScoreConfig(references=tour.corpus, predictions=tour.out / name, seed=tour.seed), out)


def compare_all(tour: Tour) -> None:
    """Every other against the constant report, study by study."""
    out = tour.out / COMPARISON
    if state(out) != "finished":
        compare([tour.out / "scores" / name for name in _generated(tour)], seed=tour.seed, out=out)


def retrieve_reports(tour: Tour) -> None:
    """How often an image finds its report, and a report its image."""
    from cxrlab.evaluation.retrieve import retrieve

    if state(out := tour.out / RETRIEVED) != "finished":
        retrieve(RetrieveConfig(ENCODER, tour.corpus, statements="present", seed=tour.seed), out)


def explain_image(tour: Tour) -> None:
    """Where the built-in reporter looked for its findings, on the image for which it named most."""
    from cxrlab.evaluation.explain import explain

    if state(out := tour.out / EXPLAINED) == "finished":
        return
    named: dict[str, tuple[str, ...]] = {}
    for _, line in read_jsonl(tour.out / REPORTER / "predictions.jsonl"):
        text = str(line["report"])
        spans = [finding.span for finding in read(text) if finding.present and finding.span is not None]
        named[str(line["id"])] = tuple(dict.fromkeys(text[first:last] for first, last in spans))
    study = max(named, key=lambda name: (len(named[name]), name))
    if not named[study]:
        NoticeStream(sys.stderr).write("explain    the built-in reporter named no finding; there is nothing to map\n")
        return
    decoding, maps = Decoding(max_new_tokens=tour.by_size(12, 160, 160)), ("max-mean", "gradient")
    config = ExplainConfig(BUILTIN, data=tour.corpus, study=study, word=named[study], maps=maps, decoding=decoding)
    explain(config, out)


def compare_maps_with_masks(tour: Tour) -> None:
    """Whether its maps point at what the words name."""
    from cxrlab.evaluation.pointing import pointing

    n, decoding = tour.by_size(2, 8, 40), Decoding(max_new_tokens=tour.by_size(12, 160, 160))
    maps = ("max-mean", "gradient")
    config = PointingConfig(BUILTIN, tour.corpus, n=n, maps=maps, seed=tour.seed, decoding=decoding)
    if state(out := tour.out / POINTING) != "finished":
        pointing(config, out)


def degrade_reporter(tour: Tour) -> None:
    """Train the built-in reporter on reports with mistakes, so that there is something to gain."""
    from cxrlab.training.align_finetune import finetune

    samples, batch = tour.by_size(8, 320, 560), tour.by_size(2, 8, 8)
    config = FinetuneConfig(
        tour.out / TRAINING_CORPUS,
        start=BUILTIN,
        text="mistaken",
        **LORA,
        lora_dropout=0.0,
        optimisation=_optimisation(tour, 1e-3, batch, steps=samples // batch),
        cache=tour.out / "cache",
    )
    finetune(config, tour.out / DEGRADED)


def sample_candidates(tour: Tour) -> None:
    """Several reports of the degraded model for each of some training images."""
    from cxrlab.preference.sample_candidates import sample

    config = SampleConfig(
        f"hf:{tour.out / DEGRADED / 'checkpoint'}",
        tour.out / TRAINING_CORPUS,
        n=tour.by_size(6, 48, 112),
        answers=tour.by_size(2, 4, 4),
        max_new_tokens=tour.by_size(12, 160, 160),
        seed=tour.seed,
    )
    sample(config, tour.out / CANDIDATES)


def judge_candidates(tour: Tour) -> None:
    """Compare them with the references, and pair the better with the worse."""
    from cxrlab.preference.judge_candidates import judge
    from cxrlab.preference.make_pairs import pair

    corpus = tour.out / TRAINING_CORPUS
    judge(JudgeConfig((tour.out / CANDIDATES,), corpus, "clinical:rules", seed=tour.seed), tour.out / REWARDS)
    # A quick tour's candidates are a dozen tokens long: every one of them is cut.
    quick, pairs = tour.config.quick, tour.by_size(1, 2, 2)
    pair(PairConfig(tour.out / REWARDS, pairs=pairs, allow_cut=quick, seed=tour.seed), tour.out / PAIRS)


def train_preference(tour: Tour) -> None:
    """Direct preference optimisation, and the model before and after it on the test split."""
    from cxrlab.preference.train import prefer

    # Measured on the corpus of all other measurements; the pairs are of other patients.
    measure = Measure(
        data=tour.corpus,
        n=tour.by_size(4, 16, 48),
        max_new_tokens=tour.by_size(12, 160, 160),
        control_studies=0,
        encoder=ENCODER,
    )
    config = PreferConfig(
        tour.out / TRAINING_CORPUS,
        tour.out / PAIRS,
        str(tour.out / DEGRADED),
        **LORA,
        validation=Validation(n=0),
        measure=measure,
        optimisation=_optimisation(tour, 4e-4, tour.by_size(2, 8, 8), steps=None, epochs=tour.by_size(1.0, 3.0, 3.0)),
        cache=tour.out / "cache",
    )
    prefer(config, tour.out / PREFERRED)


def attack_models(tour: Tour) -> None:
    """PGD and noise of the same size on the aligned reporter and on the degraded one before it."""
    from cxrlab.robustness.audit import audit

    labels = ("cardiomegaly", "pleural effusion", "pneumothorax")
    config = RobustnessConfig(
        model=f"hf:{tour.out / DEGRADED / 'checkpoint'}",
        versus=(f"hf:{tour.out / PREFERRED / 'checkpoint'}",),
        data=tour.corpus,
        n=tour.by_size(2, 6, 14),
        attacks=("pgd", "noise"),
        eps=("4/255",),
        aims=("report",),
        only_labels=labels[: tour.by_size(1, 2, 3)],
        image_size=SIZE,
        batch_size=16,
        uint8=False,
        control_studies=tour.by_size(0, 2, 6),
        triptychs=tour.by_size(1, 3, 3),
        trials=tour.by_size(20, 1000, 1000),
        seed=tour.seed,
        attack=AttackSettings(steps=tour.by_size(1, 2, 5)),
        decoding=Decoding(max_new_tokens=tour.by_size(4, 100, 160)),
    )
    audit(config, tour.out / ROBUSTNESS)


def copy_reporter(tour: Tour) -> None:
    """The ceiling, then ADA-Steal, and whether a detector would have noticed either.

    The ceiling's attacker has radiographs: it starts from the projector of stage 2 and queries with images of chests; a
    quick tour leaves it out. ADA-Steal's attacker has none: it starts from a new projector and queries with scenes.
    """
    from cxrlab.extraction.audit import extract
    from cxrlab.extraction.detection.detect import detect

    decoding = PaperDecoding(strategy="greedy", max_new_tokens=tour.by_size(3, 80, 100))
    batch, steps = tour.by_size(1, 8, 8), tour.by_size(1, 6, 24)
    stolen = ExtractConfig(
        victim=BUILTIN,
        data=tour.corpus,
        method="ada-steal",
        pool="scenes",
        budget=tour.by_size(2, 16, 48),
        rounds=2,
        size=SIZE,
        n=tour.by_size(1, 12, 16),
        seed=tour.seed,
        map_sentences=120,
        victim_run=tour.out / "extraction" / "victim",
        alignment=Alignment(steps=tour.by_size(1, 1, 2)),
        fitting=Fitting(steps=steps, round_steps=max(1, steps // 3), batch_size=batch, max_length=400),
        victim_decoding=decoding,
        surrogate_decoding=decoding,
    )
    if not tour.config.quick:
        ceiling = replace(
            stolen,
            method="in-domain",
            pool=f"corpus:{tour.out / TRAINING_CORPUS}",
            budget=tour.by_size(0, 48, 96),
            surrogate=str(tour.out / ALIGN),
            fitting=Fitting(learning_rate=3e-3, steps=tour.by_size(0, 44, 96), batch_size=batch, max_length=400),
        )
        extract(ceiling, tour.out / CEILING)
    extract(stolen, tour.out / STOLEN)
    detection = DetectConfig(  # both detectors look at each image, and are set on benign images alone
        benign=tour.corpus,
        stream=tuple(tour.out / name for name in ((STOLEN,) if tour.config.quick else (CEILING, STOLEN))),
        detectors=("chest-gate", "perturbation"),
        encoder="none",
        n=tour.by_size(60, 300, 600),
        detector=DetectorSettings(image_bound=tour.by_size(0.1, 0.02, 0.01)),
        seed=tour.seed,
    )
    detect(detection, tour.out / DETECTION)


def serve_reporter(tour: Tour) -> None:
    """A server on the loopback: benign images at once and one by one, then pictures without a chest."""
    from cxrlab.serving.rehearsal import rehearse

    config = RehearseConfig(
        BUILTIN,
        tour.corpus,
        n=tour.by_size(2, 10, 32),
        accounts=tour.by_size(1, 4, 4),
        alone=tour.by_size(0, 2, 6),
        queries=30,
        size=SIZE,
        guarding=GuardConfig(n=tour.by_size(60, 300, 600), image_bound=tour.by_size(0.1, 0.02, 0.01)),
        seed=tour.seed,
    )
    rehearse(config, tour.out / SERVED)


# From a seed to a served model, in the order in which a user meets the packages.
CHAIN = (
    ("data", "images and reports: corpora, DICOM, phantoms, scenes"),
    ("findings", "plausible findings, and reports that state them in varied words"),
    ("models", "models by name"),
    ("evaluation", "predictions of a model on a corpus"),
    ("metrics", "predictions against references, in numbers"),
    ("training", "a model from images and reports"),
    ("preference", "a model aligned to a judge"),
    ("attacks", "perturbed images"),
    ("robustness", "how a model breaks"),
    ("extraction", "how cheaply a model can be copied"),
    ("serving", "a model behind an address, guarded"),
    ("render", "a page from run folders"),
)


def write_summary(tour: Tour) -> None:
    """The corpus in numbers, and the packages of the chain."""
    chain = [
        {"part": package, "purpose": purpose, "here": find_spec(f"cxrlab.{package}") is not None}
        for package, purpose in CHAIN
    ]
    summary = {
        "about": "From one seed to images, reports, models and their scores. No patient is behind any of it.",
        "corpus": corpus_overview(load_corpus(tour.corpus)),
        "scenes": dict(load_corpus(tour.out / SCENES).card.counts),
        "check": read_json(tour.out / CHECK),
        "round_trip": read_json(tour.out / ROUND_TRIP),
        "chain": chain,
    }
    tour.run.write(SUMMARY, summary)


def corpus_overview(corpus: Corpus) -> dict[str, Any]:
    """Card, counts, and in how many studies each finding is present, most frequent first.

    A study counts once per finding. Studies whose findings are not known do not count; a corpus without any such
    knowledge has an empty list.
    """
    counts: dict[str, Counter[str]] = {}
    for study in corpus.studies():
        for name in {finding.observation for finding in study.findings or () if finding.present}:
            row = counts.setdefault(name, Counter())
            row["studies"] += 1
            if study.split is not None:
                row[study.split] += 1
    rows = [
        {"observation": name, "studies": row["studies"], **{split: row[split] for split in SPLITS}}
        for name, row in sorted(counts.items(), key=lambda item: (-item[1]["studies"], item[0]))
    ]
    card = {key: getattr(corpus.card, key) for key in ("name", "source", "licence", "citation")}
    return {**card, "counts": dict(corpus.card.counts), "findings": rows}


MODEL, SERVE = ("models",), ("models", "serve")
STEPS_OF_THE_TOUR = (
    Step("phantom", "draw phantom images and write their reports", make_corpus, (4, 10, 20)),
    Step("check", "read every line and image of the corpus", check_images, (1, 2, 5)),
    Step("sheet", "lay out a contact sheet", draw_sheet, (1, 1, 5)),
    Step("import", "write the images as MIMIC-CXR is shipped and import them", import_again, (1, 3, 10)),
    Step("structure", "structure the imported reports by rule", structure_reports, (2, 3, 10)),
    Step("card", "count what the imported corpus holds", write_card, (1, 1, 5)),
    Step("scenes", "draw pictures without a chest", make_pictures, (1, 1, 5)),
    Step("normal", "predict the constant normal report", generate_normal, (1, 1, 5)),
    Step("retrieval", "retrieve the report of the nearest training image", generate_nearest, (2, 2, 10)),
    Step("training", "draw images for training", make_training_corpus, (1, 16, 40), MODEL),
    Step("align", "stage 2: train a projector", align_projector, (5, 24, 50), MODEL),
    Step("finetune", "stage 3: train adapters on the language model", finetune_model, (2, 56, 240), MODEL),
    Step("trained", "generate reports with the model just trained", generate_trained, (3, 15, 35), MODEL),
    Step("reporter", "generate reports with the built-in reporter", generate_builtin, (3, 18, 40), MODEL),
    Step("score", "score all against the corpus", score_all, (2, 4, 8)),
    Step("compare", "compare them study by study", compare_all, (1, 1, 5)),
    Step("retrieve", "find reports by images and images by reports", retrieve_reports, (1, 2, 5), MODEL),
    Step("explain", "map where the reporter looked", explain_image, (2, 4, 10), MODEL),
    Step("pointing", "compare its maps with the exact masks", compare_maps_with_masks, (2, 7, 25), MODEL),
    Step("degrade", "train the reporter on reports with mistakes", degrade_reporter, (2, 18, 35), MODEL),
    Step("sample", "sample several reports per image from it", sample_candidates, (2, 19, 50), MODEL),
    Step("judge", "judge and pair them without a human", judge_candidates, (1, 1, 5), MODEL),
    Step("prefer", "align it by the pairs; before and after", train_preference, (5, 40, 92), MODEL),
    Step("attack", "attack it and what it was before", attack_models, (3, 25, 45), MODEL),
    Step("copy", "copy the reporter by queries, and detect them", copy_reporter, (4, 38, 80), MODEL),
    Step("serve", "serve it behind a guard, to clients and an attacker", serve_reporter, (4, 11, 40), SERVE),
    Step("summary", "count what there is", write_summary, (1, 1, 5)),
)

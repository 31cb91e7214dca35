"""Steps of the tour that need no model: corpora, import, baselines, scores and the summary."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.records import SPLITS, Report, Study
from cxrlab.core.runs import state
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.export import IDS, export_corpus, is_exported, plain_cell

if TYPE_CHECKING:
    from cxrlab.studies.tour import Tour

CHECK, SHEET, SUMMARY, ROUND_TRIP = "check.json", "sheet.png", "summary.json", "round_trip.json"
SCENES, IMPORTED, STRUCTURED, COMPARISON = "scenes", "imported", "structured", "scores/comparison"
NORMAL, RETRIEVAL, TRAINED, REPORTER = "normal", "retrieval", "trained", "reporter"
GENERATED = (NORMAL, RETRIEVAL, TRAINED, REPORTER)  # runs with reports, the baselines first


def make_corpus(tour: Tour) -> None:
    """Phantom images with reports, exact findings and masks."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom

    size = tour.corpus_size
    make_phantom(PhantomConfig(n=size.phantoms, size=size.phantom_size, seed=tour.seed), tour.corpus)


def check_images(tour: Tour) -> None:
    """Every line and image of the corpus."""
    from cxrlab.data.check import check_corpus

    found = check_corpus(tour.corpus)
    tour.run.write(CHECK, found.to_json())
    if not found.ok:
        raise DataError(f"the phantom corpus has defects:\n{found.table()}")


def draw_sheet(tour: Tour) -> None:
    """A contact sheet with what is known under each image."""
    from cxrlab.data.config import SheetConfig
    from cxrlab.data.contact_sheet import contact_sheet

    config = SheetConfig(n=tour.corpus_size.sheet, columns=6, seed=tour.seed, masks=True, size=200)
    contact_sheet(load_corpus(tour.corpus), config, tour.run.path(SHEET))


def import_again(tour: Tour) -> None:
    """The images in MIMIC-CXR's layout, imported as a downloaded data set is, and compared with the source."""
    from cxrlab.data.config import ImportConfig
    from cxrlab.data.importing import import_corpus

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


def _words(study: Study) -> Any:
    """The words of each section: a printed report is wrapped, so line ends are lost."""
    sections = (study.sections or Report()).to_json()
    return {name: text.split() for name, text in sections.items() if text is not None}


COMPARED: Mapping[str, Callable[[Study], Any]] = MappingProxyType(
    {
        "sections, word for word": _words,
        "the fourteen labels": lambda study: dict(study.labels),
        "views": lambda study: [image.view for image in study.images],
        "age and sex": lambda study: (study.age, study.sex),
        "split": lambda study: study.split,
        "a prior study": lambda study: study.prior is not None,
    }
)


def round_trip(source: Corpus, imported: Corpus, ids: Path) -> tuple[Preserved, ...]:
    """Compare each imported study with the one it was exported from.

    Args:
        source: The corpus that was exported.
        imported: What the importer of that layout made of it.
        ids: The export's `ids.csv`: name in the layout, id in the source.
    """
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
    from cxrlab.data.config import StructureConfig
    from cxrlab.data.structuring.run import structure_corpus

    structure_corpus(load_corpus(tour.out / IMPORTED), StructureConfig(), tour.out / STRUCTURED)


def write_card(tour: Tour) -> None:
    """The data card of the structured corpus."""
    from cxrlab.data.check import write_data_card
    from cxrlab.data.config import CheckConfig

    out = tour.out / "card"
    if state(out) != "finished":
        write_data_card(tour.out / STRUCTURED, CheckConfig(images=6, seed=tour.seed), out)


def make_pictures(tour: Tour) -> None:
    """Pictures without a chest."""
    from cxrlab.data.config import ScenesConfig
    from cxrlab.data.scenes import make_scenes

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
    from cxrlab.evaluation.config import GenerateConfig
    from cxrlab.evaluation.generate import generate

    if state(out := tour.out / name) == "finished":  # the tour stopped between the end of this run and its own note
        return
    examples = tour.corpus_size.examples
    generate(GenerateConfig(model=model, data=tour.corpus, seed=tour.seed, examples=examples, **settings), out)


def _generated(tour: Tour) -> list[str]:
    return [name for name in GENERATED if state(tour.out / name) == "finished"]


def score_all(tour: Tour) -> None:
    """Baselines and models against the corpus, with intervals, floors and errors."""
    from cxrlab.evaluation.config import ScoreConfig
    from cxrlab.evaluation.score import run_score

    for name in _generated(tour):
        if state(out := tour.out / "scores" / name) != "finished":
            run_score(ScoreConfig(references=tour.corpus, predictions=tour.out / name, seed=tour.seed), out)


def compare_all(tour: Tour) -> None:
    """Every other against the constant report, study by study."""
    from cxrlab.evaluation.compare import compare

    out = tour.out / COMPARISON
    if state(out) != "finished":
        compare([tour.out / "scores" / name for name in _generated(tour)], seed=tour.seed, out=out)


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
    tour.run.write(
        SUMMARY,
        {
            "about": "From one seed to images, reports, models and their scores. No patient is behind any of it.",
            "corpus": corpus_overview(load_corpus(tour.corpus)),
            "scenes": dict(load_corpus(tour.out / SCENES).card.counts),
            "check": read_json(tour.out / CHECK),
            "came_back": read_json(tour.out / ROUND_TRIP),
            "chain": chain,
        },
    )


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
    order = sorted(counts, key=lambda name: (-counts[name]["studies"], name))
    card = corpus.card
    return {
        **{key: getattr(card, key) for key in ("name", "source", "licence", "citation")},
        "counts": dict(card.counts),
        "findings": [
            {
                "observation": name,
                "studies": counts[name]["studies"],
                **{split: counts[name][split] for split in SPLITS},
            }
            for name in order
        ],
    }

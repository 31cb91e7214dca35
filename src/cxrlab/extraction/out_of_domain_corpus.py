"""A training corpus of images without a chest, each with a short normal report.

Large report models answer a photograph with a short, repeated report of a normal image; a small one trained on chests
alone answers with arbitrary findings. A victim trained on this corpus too answers like the large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.config import check_at_least
from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.randomness import generator, stream_key
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card, card_settings
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus
from cxrlab.data.synthetic_scenes import draw_scene
from cxrlab.data.views import KEEP_COLOUR
from cxrlab.extraction.query_pools import square
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import CaseConfig, draw_patient

DRAWING = 1  # increase it when the same settings yield other images or words; it is in every card
LEXICON = "A"
MOST_WORDS = 45
# Normal visits that are tried per report; most give a longer report, or one that was found already.
_TRIES = 200


@dataclass(frozen=True)
class OutOfDomainConfig:
    """A corpus of images without any chest, each with a short report of a normal image.

    Args:
        n: Number of images.
        size: Side of the square images in pixels, 32 to 2048.
        seed: The same seed gives the same bytes, whatever the number of workers.
        reports: Different reports among all images; a few, since such answers repeat themselves.
        colour: Keep the colours; grey otherwise.
        workers: Processes; 0 for one per core, which is the most.
    """

    n: int = 1000
    size: int = 128
    seed: int = 7
    reports: int = 12
    colour: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, n=1, size=32, seed=0, reports=1, workers=0)
        if self.size > 2048:
            raise ConfigError(f"size={self.size} is not usable; give a whole number from 32 to 2048.")


def make_out_of_domain_corpus(config: OutOfDomainConfig, out: str | Path) -> Corpus:
    """Make or resume the corpus in the folder `out`; every study is frontal and of the train split."""
    reports = normal_reports(config.seed, config.reports)
    card = Card(
        name="normal-scenes",
        source="Scenes and normal reports drawn from a seed by cxrlab; the images show no chest.",
        licence="Synthetic; free to use for any purpose.",
        citation="cxrlab, scenes with normal reports.",
        settings={"drawing": DRAWING, **_settings(config)},
        synthetic=True,
    )
    recipe = Recipe(
        items=range(config.n),
        ids=_ids,
        make_studies=partial(_draw, config, reports),
        label="drawing scenes with normal reports",
        total=config.n,
    )
    return build_corpus(out, card, recipe, config.workers)


def _settings(config: OutOfDomainConfig) -> dict[str, Any]:
    """For the card; grey is not named, so that cards from before there was a choice stay valid."""
    return {name: value for name, value in card_settings(config).items() if name != "colour" or value}


def normal_reports(seed: int, count: int) -> tuple[Report, ...]:
    """`count` different normal reports of at most 45 words, of first visits without any finding, in lexicon A."""
    found: dict[str, Report] = {}
    for number in range(_TRIES * count):
        name = f"normal{number:06d}"
        visit = draw_patient(seed, name, CaseConfig(normal=1.0)).visits[0]
        report = narrate(visit, seed, name, LEXICON).report
        text = report.findings or ""
        if 0 < len(text.split()) <= MOST_WORDS:
            found.setdefault(text, Report(findings=text, impression=report.impression))
        if len(found) == count:
            return tuple(found.values())
    raise ConfigError(f"reports={count} is too many: only {len(found)} different ones have {MOST_WORDS} words or less.")


def _id(number: int) -> str:
    return f"normal{number:06d}"


def _ids(number: int) -> tuple[str, ...]:
    return (_id(number),)


def _draw(config: OutOfDomainConfig, reports: tuple[Report, ...], number: int) -> tuple[NewStudy, ...]:
    # A derived seed: no corpus of scenes and no pool of the same seed has these images.
    scene = draw_scene(stream_key(config.seed, "bland", "scenes"), number, config.size)
    report = reports[int(generator(config.seed, "bland", "report", number).integers(len(reports)))]
    name, path = _id(number), f"images/{_id(number)}.png"
    extra = {KEEP_COLOUR: True} if config.colour else {}
    images = (ImageFile(path, View.FRONTAL),)
    study = Study(id=name, patient=name, images=images, sections=report, split="train", extra=extra)
    return (NewStudy(study, {path: encode_png(square(scene.image, config.size, config.colour))}),)

"""Oracles of ADA-Steal: normal and abnormal descriptions of chest radiographs, without any image or victim.

The descriptions of the five categories decide at which reports an attack aims, so they are kept, counted and compared
with the victim's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any, Literal

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.registry import Registry
from cxrlab.core.vocabulary import DRAWN, Severity, Side, View, observation
from cxrlab.extraction.report_content import (
    Category,
    category_of,
    distinct,
    report_content,
    split_by_category,
    words_of,
)
from cxrlab.findings.disease_models import GRADES, SHAPES, TUBE_HEIGHT_MM, Shape, fits
from cxrlab.findings.lexicon import capital, compiled, load_lexicon, templates
from cxrlab.findings.negative_statements import NORMAL, NegativeStatements, region_of
from cxrlab.findings.progression import between
from cxrlab.findings.realiser import Realiser
from cxrlab.findings.simulated_patients import Visit

Kind = Literal["abnormal", "normal"]
KINDS: tuple[Kind, ...] = ("abnormal", "normal")

# Each row is a function from a seed to `Descriptions`.
ORACLES = Registry(
    "oracle",
    {
        "rules": "cxrlab.extraction.rule_oracles:rules",
        "rules-weak": "cxrlab.extraction.rule_oracles:rules_weak",
    },
)


@dataclass(frozen=True)
class Descriptions:
    """The descriptions of an oracle: category → distinct texts of a sentence or two, at least one of each kind."""

    abnormal: Mapping[Category, tuple[str, ...]]
    normal: Mapping[Category, tuple[str, ...]]

    def __post_init__(self) -> None:
        missing = [f"{kind} {category}" for kind in KINDS for category in Category if not self.of(category, kind)]
        if missing:
            raise DataError(f"The oracle gave no description for {', '.join(missing)}; each needs at least one.")

    def of(self, category: Category, kind: Kind) -> tuple[str, ...]:
        """The descriptions of one category and kind."""
        return tuple((self.abnormal if kind == "abnormal" else self.normal).get(category, ()))

    def texts(self) -> Iterator[str]:
        """Every description, abnormal ones first, category by category."""
        for kind in KINDS:
            for category in Category:
                yield from self.of(category, kind)

    def to_json(self) -> dict[str, dict[str, list[str]]]:
        """Kind → category → descriptions, for the run folder."""
        return {kind: {category.value: list(self.of(category, kind)) for category in Category} for kind in KINDS}

    def counts(self) -> dict[str, dict[str, int]]:
        """Kind → category → how many."""
        return {kind: {name: len(rows) for name, rows in by.items()} for kind, by in self.to_json().items()}


def load_descriptions(name: str, seed: int = 0) -> Descriptions:
    """The descriptions of the oracle of this name."""
    found: Descriptions = ORACLES.load(name)(seed)
    return found


def shared_vocabulary(descriptions: Descriptions, texts: Iterable[str]) -> dict[str, Any]:
    """How many distinct words of the oracle also occur in given texts, such as the victim's answers.

    `share` is shared over oracle words, 0 to 1. Function words count too, so that it is never 0 in practice.
    """
    mine = {word for text in descriptions.texts() for word in words_of(text)}
    theirs = {word for text in texts for word in words_of(text)}
    shared = len(mine & theirs)
    return {"oracle_words": len(mine), "text_words": len(theirs), "shared": shared, "share": shared / len(mine)}


EACH = 40  # descriptions that start with one observation
SECOND = 0.35  # share of abnormal descriptions with a second finding of the category
TERSE = 0.25  # share of sentences without a verb
DENIED = 60  # lists of absent things tried for each category
WEAK = 4  # descriptions of one category and kind that the weak oracle knows

# Category of each kind of normal statement; one on the whole image would deny the other four.
_NORMAL = {
    "hila": Category.AIRWAY,
    "lungs": Category.BREATHING,
    "angles": Category.BREATHING,
    "pleura": Category.BREATHING,
    "heart": Category.CARDIAC,
    "diaphragm": Category.DIAPHRAGM,
    "abdomen": Category.DIAPHRAGM,
    "mediastinum": Category.EVERYTHING,
    "bones": Category.EVERYTHING,
    "lines": Category.EVERYTHING,
    "devices": Category.EVERYTHING,
}


@lru_cache(maxsize=8)  # an attack uses it before every round
def rules(seed: int) -> Descriptions:
    """Several hundred abnormal descriptions of every observation of a phantom, with all details, and normal ones."""
    return _descriptions(_abnormal_texts, _normal_texts, seed)


@lru_cache(maxsize=8)
def rules_weak(seed: int) -> Descriptions:
    """Four descriptions per category and kind without details, as of an attacker without medical knowledge."""
    return _descriptions(_weak_abnormal_texts, _weak_normal_texts, seed)


Texts = Callable[[Category, int], Iterator[str]]


def _descriptions(abnormal: Texts, normal: Texts, seed: int) -> Descriptions:
    """Distinct texts of each category, without phrases of the victim's lexicon."""
    return Descriptions(
        *(
            {category: distinct(filter(avoids_victim_lexicon, texts(category, seed))) for category in Category}
            for texts in (abnormal, normal)
        )
    )


@cache
def lexicon_phrases(lexicon: str, least: int = 3) -> frozenset[str]:
    """Every run of at least `least` words between the slots of a lexicon's templates, in singular and plural."""
    runs: set[tuple[str, ...]] = set()
    for template in templates(load_lexicon(lexicon)):
        for many in (False, True):
            parts, _ = compiled(template, many)
            runs.update(words_of(text) for text in parts[::2])
    return frozenset(" ".join(run) for run in runs if len(run) >= least)


def avoids_victim_lexicon(text: str) -> bool:
    """Whether the text has no phrase of three words or more of lexicon A, the victim's."""
    padded = f" {' '.join(words_of(text))} "
    return not any(f" {phrase} " in padded for phrase in lexicon_phrases("A"))


def complete_findings(name: str, rng: np.random.Generator) -> Iterator[Finding]:
    """One certain finding per side, place, degree and tip of a phantom's observation; sizes come from `rng`."""
    row, shape = observation(name), SHAPES.get(name, Shape())
    sides: tuple[Side | None, ...] = (None,)
    if row.sided:
        sides = (Side(shape.only),) if shape.only else (Side.LEFT, Side.RIGHT)
        sides += (Side.BILATERAL,) if shape.both else ()
    grades = GRADES if row.graded else (None,)
    for side, place, grade, tip in product(sides, shape.places or (None,), grades, shape.tips or (None,)):
        height = TUBE_HEIGHT_MM.get(tip or "") if name == "endotracheal tube" else None
        yield Finding(
            name,
            side=side,
            location=place,
            severity=Severity(grade) if grade else None,
            size_mm=float(between(rng, shape.size_mm)) if shape.size_mm else None,
            tip=tip,
            tip_mm=float(between(rng, height)) if height else None,
        )


def _abnormal_texts(category: Category, seed: int) -> Iterator[str]:
    """`EACH` descriptions per observation, so that common and rare ones are drawn equally often.

    Some sentences are followed by a second finding of the category that may occur beside the first.
    """
    rng = generator(seed, "oracle", "abnormal", category)
    rows = {name: list(complete_findings(name, rng)) for name in DRAWN if category_of(name) is category}
    every = [finding for findings in rows.values() for finding in findings]
    for findings in rows.values():
        texts: set[str] = set()
        # Every variant comes up before one comes again; some findings do not have `EACH` different wordings.
        for turn in range(4 * EACH):
            if turn % len(findings) == 0:
                order = rng.permutation(len(findings))
            words = Realiser(load_lexicon("B"), rng)
            chosen = [findings[order[turn % len(findings)]]]
            if rng.random() < SECOND:
                other = every[int(rng.integers(len(every)))]
                if other.observation != chosen[0].observation and fits(other, chosen):
                    chosen.append(other)
            fragment = words.chance(TERSE)
            text = " ".join(_sentence(words.present(finding, fragment=fragment)) for finding in chosen)
            if avoids_victim_lexicon(text):
                texts.add(text)
            if len(texts) == EACH:
                break
        yield from sorted(texts)


def _normal_texts(category: Category, seed: int) -> Iterator[str]:
    """Every normal statement of the lexicon, then lists of absent observations."""
    lexicon = load_lexicon("B")
    yield from (_sentence(text) for kind in NORMAL if _NORMAL[kind] is category for text in lexicon.normal[kind])
    rng = generator(seed, "oracle", "normal", category)
    regions = sorted({region_of(name) for name in DRAWN if category_of(name) is category})
    healthy = Visit(1, 50, "F", View.PA, "routine", None, ())
    for _ in range(DENIED):
        for statement in NegativeStatements(healthy, Realiser(lexicon, rng)).denial(regions, most=2):
            names = [key for _, _, key in statement.marks if isinstance(key, str)]
            if all(category_of(name) is category for name in names):
                yield _sentence(statement.text)


def _weak_abnormal_texts(category: Category, seed: int) -> Iterator[str]:
    """Sentences with the bare names of `WEAK` different observations, or fewer if there are fewer."""
    rng = generator(seed, "oracle", "weak", category)
    words = Realiser(load_lexicon("B"), rng)
    names = [name for name in DRAWN if category_of(name) is category]
    order = rng.permutation(len(names))
    for turn in range(WEAK):
        bare = words.lexicon.observations[names[order[turn % len(names)]]].absent
        noun = bare[turn // len(names) % len(bare)]
        frame = words.lexicon.full[turn % len(words.lexicon.full)]
        yield _sentence(words.framed(frame, noun.removeprefix("+ "), noun.startswith("+")))


def _weak_normal_texts(category: Category, seed: int) -> Iterator[str]:
    """The first `WEAK` normal statements in a shuffled order."""
    lexicon = load_lexicon("B")
    rows = distinct(text for kind in NORMAL if _NORMAL[kind] is category for text in lexicon.normal[kind])
    order = generator(seed, "oracle", "weak normal", category).permutation(len(rows))
    yield from (_sentence(rows[index]) for index in order[:WEAK])


def _sentence(text: str) -> str:
    return capital(text) + "."


def transcript_descriptions(reports: Sequence[str], otherwise: Descriptions) -> Descriptions:
    """Descriptions from the victim's answers; `otherwise` fills categories and kinds that no report mentions."""
    abnormal: dict[Category, list[str]] = {category: [] for category in Category}
    normal: dict[Category, list[str]] = {category: [] for category in Category}
    for report in dict.fromkeys(reports):
        if not report_content(report).has_statements:
            continue
        for category, text in split_by_category(report).items():
            if text:
                (abnormal if report_content(text).findings else normal)[category].append(text)
    return Descriptions(
        {category: distinct(texts) or otherwise.abnormal[category] for category, texts in abnormal.items()},
        {category: distinct(texts) or otherwise.normal[category] for category, texts in normal.items()},
    )

"""The oracles that need no language model: descriptions by lexicon B, the one that no model is trained on.

The victim's training text is written with lexicon A. Lexicon B says the same things in other words, so
the oracle brings knowledge of chest radiographs into the attack and not one phrase of the victim's reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Severity, Side, View, observation
from cxrlab.extraction.anatomy import Category, category_of
from cxrlab.extraction.oracles import Descriptions, distinct, words_of
from cxrlab.findings.cases import Visit
from cxrlab.findings.contradictions import fits
from cxrlab.findings.denials import NORMAL, NegativeStatements, region_of
from cxrlab.findings.disease_models import GRADES, SHAPES, TUBE_HEIGHT_MM, Shape
from cxrlab.findings.grammar import capital, compiled
from cxrlab.findings.lexicon import load_lexicon, templates
from cxrlab.findings.progression import between
from cxrlab.findings.realiser import Realiser

EACH = 40  # descriptions that begin with one observation
SECOND = 0.35  # share of abnormal descriptions with a second finding of the category
TERSE = 0.25  # share of sentences without a verb
DENIED = 60  # lists of absent things tried for each category
WEAK = 4  # descriptions of one category and kind that the weak oracle knows

# Under which category each kind of normal statement stands; one on the whole image would deny the other four.
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


@dataclass(frozen=True)
class RuleOracle:
    """Descriptions by rules.

    Args:
        name: As a user types it.
        seed: Of the choice of words and of what stands together.
        weak: Whether it knows only a few descriptions, without side and degree.
    """

    name: str
    seed: int = 0
    weak: bool = False

    def describe(self) -> Descriptions:
        """Several hundred abnormal descriptions in all, or four a category from the weak one."""
        return _described(self.seed, self.weak)


def rules(seed: int = 0) -> RuleOracle:
    """Knows every observation that a phantom can show, with its sides, degrees, places, sizes and tips."""
    return RuleOracle("rules", seed)


def rules_weak(seed: int = 0) -> RuleOracle:
    """Knows a few words for each category: what an attacker without medical knowledge might get together."""
    return RuleOracle("rules-weak", seed, weak=True)


@lru_cache(maxsize=8)  # an attack asks before every round
def _described(seed: int, weak: bool) -> Descriptions:
    abnormal, normal = (_weakly, _weakly_normal) if weak else (_abnormal, _normal)
    rows = [
        {category: distinct(filter(is_fresh, tell(category, seed))) for category in Category}
        for tell in (abnormal, normal)
    ]
    return Descriptions(abnormal=rows[0], normal=rows[1])


@cache
def phrases_of(lexicon: str, least: int = 3) -> frozenset[str]:
    """Every run of at least `least` words between the slots of a lexicon's templates, each fork read both ways."""
    runs: set[tuple[str, ...]] = set()
    for template in templates(load_lexicon(lexicon)):
        for many in (False, True):
            parts, _ = compiled(template, many)
            runs.update(words_of(text) for text in parts[::2])
    return frozenset(" ".join(run) for run in runs if len(run) >= least)


def is_fresh(text: str) -> bool:
    """Whether no phrase of three words or more of lexicon A, the victim's, stands in the text."""
    padded = f" {' '.join(words_of(text))} "
    return not any(f" {phrase} " in padded for phrase in phrases_of("A"))


def complete_findings(name: str, rng: np.random.Generator) -> Iterator[Finding]:
    """One certain finding for each side, place, degree and tip that a phantom draws; sizes come from `rng`."""
    row, shape = observation(name), SHAPES.get(name, Shape())
    for side, place, grade, tip in product(
        _sides(shape) if row.sided else (None,),
        shape.places or (None,),
        GRADES if row.graded else (None,),
        shape.tips or (None,),
    ):
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


def _sides(shape: Shape) -> tuple[Side, ...]:
    one = (Side(shape.only),) if shape.only else (Side.LEFT, Side.RIGHT)
    return (*one, Side.BILATERAL) if shape.both else one


def _abnormal(category: Category, seed: int) -> Iterator[str]:
    """`EACH` descriptions for each observation, so that common and rare ones are drawn equally often."""
    rng = generator(seed, "oracle", "abnormal", category)
    rows = {name: list(complete_findings(name, rng)) for name in DRAWN if category_of(name) is category}
    every = [finding for findings in rows.values() for finding in findings]
    for findings in rows.values():
        told: set[str] = set()
        # Every variant comes up before one comes again; a few things cannot be said in `EACH` different ways.
        for turn in range(4 * EACH):
            if turn % len(findings) == 0:
                order = rng.permutation(len(findings))
            text = _told(findings[order[turn % len(findings)]], every, rng)
            told.update({text} if is_fresh(text) else ())
            if len(told) == EACH:
                break
        yield from sorted(told)


def _told(first: Finding, every: Sequence[Finding], rng: np.random.Generator) -> str:
    """One finding in a sentence, sometimes followed by another one that may stand beside it."""
    words = Realiser(load_lexicon("B"), rng)
    chosen = [first]
    if rng.random() < SECOND:
        other = every[int(rng.integers(len(every)))]
        if other.observation != first.observation and fits(other, chosen):
            chosen.append(other)
    fragment = words.chance(TERSE)
    return " ".join(_sentence(words.present(finding, fragment=fragment)) for finding in chosen)


def _normal(category: Category, seed: int) -> Iterator[str]:
    """Every normal statement of the lexicon, then lists of what is absent."""
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


def _weakly(category: Category, seed: int) -> Iterator[str]:
    """A bare name in a sentence, of as many different observations as there are."""
    rng = generator(seed, "oracle", "weak", category)
    words = Realiser(load_lexicon("B"), rng)
    names = [name for name in DRAWN if category_of(name) is category]
    order = rng.permutation(len(names))
    for turn in range(WEAK):
        bare = words.lexicon.observations[names[order[turn % len(names)]]].absent
        noun = bare[turn // len(names) % len(bare)]
        frame = words.lexicon.full[turn % len(words.lexicon.full)]
        yield _sentence(words.framed(frame, noun.removeprefix("+ "), noun.startswith("+")))


def _weakly_normal(category: Category, seed: int) -> Iterator[str]:
    """The first `WEAK` normal statements in a shuffled order."""
    rows = list(
        distinct(text for kind in NORMAL if _NORMAL[kind] is category for text in load_lexicon("B").normal[kind])
    )
    order = generator(seed, "oracle", "weak normal", category).permutation(len(rows))
    yield from (_sentence(rows[index]) for index in order[:WEAK])


def _sentence(text: str) -> str:
    return capital(text) + "."

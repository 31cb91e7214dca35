"""The narrator's phrases: fields and notation of lexicon_a.json and lexicon_b.json, and the English around them.

A template is English with slots and forks. Slots: `{sev}` an adjective of degree, `{adv}` the same
as an adverb, `{side}` left/right/bilateral, `{on}` a side as a phrase, `{in}` side and place as a
phrase, `{size}`, `{rib}`, `{tip}` a phrase with the tip, `{at}` the tip's place alone, `{is}` and
`{are}` a verb that gives way to a hedge. A fork `[one|both]` is read on the left for one side and
on the right for a bilateral finding, which it makes plural; `<one|both>` does the same without
touching the number. In sentences around a noun phrase, `[is|are]` follows the noun's number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path

from cxrlab.core.errors import UnknownName, did_you_mean
from cxrlab.core.vocabulary import Change
from cxrlab.findings.data_files import load_data

Lines = tuple[str, ...]
Pair = tuple[str, str]
_FOLDER = Path(__file__).parent
LEXICONS: Mapping[str, Path] = {"A": _FOLDER / "lexicon_a.json", "B": _FOLDER / "lexicon_b.json"}

_FORK = re.compile(r"[\[<]([^|\[\]<>]*)\|([^|\[\]<>]*)[\]>]")
_SLOT = re.compile(r"\{(\w+)\}")
_A_BEFORE_VOWEL = re.compile(r"\b([aA]) (?=[aeiouAEIOU]|8|1[18](?![\d.]))")
_ARTICLE = re.compile(r"^(?:an?|the) ")
_PERIODS = ((730, 365, "year"), (60, 30, "month"), (14, 7, "week"), (0, 1, "day"))


@dataclass(frozen=True)
class Phrases:
    """Phrases for one observation.

    A name or noun phrase that is plural by itself starts with a plus sign ("+ sternal wires").
    """

    absent: Lines  # names for a list of negatives, with their article where one is needed
    gone: Lines  # noun phrases without article and degree, for what has resolved
    nouns: Lines  # noun phrases with their article
    clauses: Lines = ()  # whole clauses without a full stop
    mild: Lines = ()  # more noun phrases that fit the mild grade alone
    scale: str = "degree"  # which of the lexicon's scales `{sev}` reads from; "none" where there is no degree

    @property
    def ways(self) -> Lines:
        """The templates that state the observation as present in every grade."""
        return (*self.nouns, *self.clauses)


@dataclass(frozen=True)
class Lexicon:
    """One complete way of writing reports."""

    name: str  # "A" or "B"
    observations: Mapping[str, Phrases]  # drawn observation → its phrases
    scales: Mapping[str, Mapping[str, Lines]]  # scale → grade → words; the scale "adverb" serves `{adv}`
    on_side: tuple[Pair, ...]  # side as a phrase, (one side, both sides)
    zones: Mapping[str, str]  # upper, mid and lower zone as adjectives
    places: tuple[Pair, ...]  # side and zone as a phrase, (one side, both sides)
    unsided_places: Mapping[str, Lines]  # location → phrases for what has no side
    ribs: Mapping[str, Lines]  # ordinals of ribs 3 to 9
    # Device → tip → places such as "in the stomach", `{height}` where there is one.
    tips: Mapping[str, Mapping[str, Lines]]
    tip_frames: Lines  # phrases around `{at}` for tubes
    full: Lines  # sentences around `{np}` (a noun phrase with article)
    terse: Lines  # fragments around `{bare}` (without article)
    hedged: Lines  # sentences around `{np}` or `{bare}` for what is possible
    hedged_verbs: tuple[Pair, ...]  # what `{is}` and `{are}` become for what is possible
    changes: Mapping[str, Mapping[Change, Lines]]  # kind of finding → change → trailing phrases
    leads: Mapping[Change, Lines]  # change → words put before `{bare}`
    resolved: Mapping[str, Lines]  # kind of finding → sentences around `{bare}`
    denials: tuple[Pair, ...]  # sentences around `{list}` (`{bare}` without articles) with the word that joins it
    impression: Mapping[str, Lines]  # disease, incidental or device → fragments around `{np}` or `{bare}`
    rib_groups: Lines  # several broken ribs of one `{side}` as one noun phrase around `{ribs}`
    openers: Lines  # first words of a portable radiograph
    normal: Mapping[str, Lines]  # region → normal statements; "whole" for the entire radiograph
    headings: Mapping[str, Lines]  # region → headings of the systematic style
    examinations: Mapping[str, Lines]  # view → texts
    indications: Mapping[str, Lines]  # context → texts with `{age}` and `{person}`
    comparisons: Lines  # texts with `{ago}`
    no_comparison: Lines  # texts for a first radiograph
    impression_normal: Lines  # for a radiograph without findings
    impression_nothing_acute: Lines  # closing line when nothing present is acute


@cache
def load_lexicon(name: str) -> Lexicon:
    """Lexicon "A" or "B"; types are checked on loading, completeness by the tests."""
    if name not in LEXICONS:
        raise UnknownName(f"'{name}' is not a lexicon.{did_you_mean(name, LEXICONS)} Use one of {', '.join(LEXICONS)}.")
    return load_data(LEXICONS[name], Lexicon)


def templates(lexicon: Lexicon) -> Iterator[str]:
    """Every phrase of a lexicon, whatever its field."""

    def texts(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Phrases):
            yield from (*value.absent, *value.gone, *value.ways, *value.mild)
        elif isinstance(value, Mapping):
            for item in value.values():
                yield from texts(item)
        elif isinstance(value, Sequence):
            for item in value:
                yield from texts(item)

    yield from texts([getattr(lexicon, field.name) for field in fields(lexicon) if field.name != "name"])


# ── templates and English ─────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=8192)
def compiled(template: str, both: bool) -> tuple[tuple[str, ...], bool]:
    """The template after its forks as (text, slot, text, slot, …, text), and whether it is plural."""
    body = template.removeprefix("+").strip()
    plural = template.startswith("+") or (both and "[" in body)
    text = _FORK.sub(lambda fork: fork.group(2 if both else 1), body)
    return tuple(_SLOT.split(text)), plural


def agreed(text: str, many: bool) -> str:
    """The text with every fork read for one thing or for many; the spaces around it stay."""
    return _FORK.sub(lambda fork: fork.group(2 if many else 1), text)


def fill(parts: Sequence[str], slot: Callable[[str], str]) -> str:
    """Put words into the slots of compiled parts and correct the articles."""
    text = "".join(slot(part) if index % 2 else part for index, part in enumerate(parts))
    return _A_BEFORE_VOWEL.sub(r"\1n ", text)


def slots(template: str) -> set[str]:
    """Names of the slots in a template."""
    return set(_SLOT.findall(template))


def without_article(phrase: str) -> str:
    """The phrase without a leading a, an or the."""
    return _ARTICLE.sub("", phrase)


def capital(text: str) -> str:
    """The same text with its first letter in upper case; the length stays."""
    return text[:1].upper() + text[1:]


def listed(items: Sequence[str], word: str) -> str:
    """'a', 'a or b', 'a, b, or c' with the joining word."""
    if len(items) < 3:
        return f" {word} ".join(items)
    return f"{', '.join(items[:-1])}, {word} {items[-1]}"


def interval(days: int) -> str:
    """'1 day', '12 days', '3 weeks', '5 months', '2 years': the nearest whole number of the unit."""
    length, unit = next((length, unit) for least, length, unit in _PERIODS if days >= least)
    number = max(1, round(days / length))
    return f"{number} {unit}{'s' if number > 1 else ''}"


def millimetres(value: float) -> str:
    """'14 mm'."""
    return f"{value:g} mm"


def centimetres(value_mm: float) -> str:
    """'1.4 cm' for 14 mm."""
    return f"{round(value_mm / 10, 2):g} cm"

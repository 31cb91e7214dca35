"""The form of a lexicon: everything the narrator needs in order to speak, as data.

A template is English with slots and forks. Slots: `{sev}` an adjective of degree, `{adv}` the same
as an adverb, `{side}` left/right/bilateral, `{on}` a side as a phrase, `{in}` side and place as a
phrase, `{size}`, `{rib}`, `{tip}` a phrase with the tip, `{at}` the tip's place alone, `{is}` and
`{are}` a verb that gives way to a hedge. A fork `[one|both]` is read on the left for one side and
on the right for a bilateral finding, which it makes plural; `<one|both>` does the same without
touching the number. In sentences around a noun phrase, `[is|are]` follows the noun's number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from typing import Any

from cxrlab.core.errors import UnknownName, did_you_mean
from cxrlab.core.vocabulary import Change

Lines = tuple[str, ...]
Pair = tuple[str, str]
LEXICONS: Mapping[str, str] = {"A": "cxrlab.findings.lexicon_a", "B": "cxrlab.findings.lexicon_b"}


@dataclass(frozen=True)
class Phrases:
    """The ways to say one observation.

    Args:
        absent: Names for a list of negatives, with their article where one is needed.
        gone: Noun phrases without article and degree, for what has resolved.
        nouns: Noun phrases with their article.
        clauses: Whole clauses without a full stop.
        mild: More noun phrases that fit the mild grade alone.
        scale: Which of the lexicon's scales `{sev}` reads from; "none" where there is no degree.

    A name or noun phrase that is plural by itself starts with a plus sign ("+ sternal wires").
    """

    absent: Lines
    gone: Lines
    nouns: Lines
    clauses: Lines = ()
    mild: Lines = ()
    scale: str = "degree"

    @property
    def ways(self) -> Lines:
        """The templates that state the observation as present in every grade."""
        return (*self.nouns, *self.clauses)


@dataclass(frozen=True)
class Lexicon:
    """One complete way of writing reports.

    Args:
        name: "A" or "B".
        observations: Drawn observation → its phrases.
        scales: Scale → grade → words; the scale "adverb" serves `{adv}`.
        on_side: Side as a phrase, (one side, both sides).
        zones: Upper, mid and lower zone as adjectives.
        places: Side and zone as a phrase, (one side, both sides).
        unsided_places: Location → phrases for what has no side.
        ribs: Ordinals of ribs 3 to 9.
        tips: Device → tip → places such as "in the stomach", `{height}` where there is one.
        tip_frames: Phrases around `{at}` for tubes.
        full: Sentences around `{np}` (a noun phrase with article).
        terse: Fragments around `{bare}` (without article).
        hedged: Sentences around `{np}` or `{bare}` for what is possible.
        hedged_verbs: What `{is}` and `{are}` become for what is possible.
        changes: Kind of finding → change → trailing phrases.
        leads: Change → words put before `{bare}`.
        resolved: Kind of finding → sentences around `{bare}`.
        denials: Sentences around `{list}` (`{bare}` without articles) with the word that joins it.
        impression: Disease, incidental or device → fragments around `{np}` or `{bare}`.
        rib_groups: Several broken ribs of one `{side}` as one noun phrase around `{ribs}`.
        openers: First words of a portable film.
        normal: Region → normal statements; "whole" for the entire film.
        headings: Region → headings of the systematic style.
        examinations: View → texts.
        indications: Context → texts with `{age}` and `{person}`.
        comparisons: Texts with `{ago}`.
        no_comparison: Texts for a first film.
        impression_normal: For a film without findings.
        impression_calm: Closing line when nothing present is acute.
    """

    name: str
    observations: Mapping[str, Phrases]
    scales: Mapping[str, Mapping[str, Lines]]
    on_side: tuple[Pair, ...]
    zones: Mapping[str, str]
    places: tuple[Pair, ...]
    unsided_places: Mapping[str, Lines]
    ribs: Mapping[str, Lines]
    tips: Mapping[str, Mapping[str, Lines]]
    tip_frames: Lines
    full: Lines
    terse: Lines
    hedged: Lines
    hedged_verbs: tuple[Pair, ...]
    changes: Mapping[str, Mapping[Change, Lines]]
    leads: Mapping[Change, Lines]
    resolved: Mapping[str, Lines]
    denials: tuple[Pair, ...]
    impression: Mapping[str, Lines]
    rib_groups: Lines
    openers: Lines
    normal: Mapping[str, Lines]
    headings: Mapping[str, Lines]
    examinations: Mapping[str, Lines]
    indications: Mapping[str, Lines]
    comparisons: Lines
    no_comparison: Lines
    impression_normal: Lines
    impression_calm: Lines


def lines(text: str) -> Lines:
    """One template a line; blank lines and indentation do not count."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def pairs(text: str) -> tuple[Pair, ...]:
    """Lines of the form `one side = both sides`."""
    rows = [line.partition(" = ") for line in lines(text)]
    return tuple((one.strip(), both.strip()) for one, _, both in rows)


def table(text: str) -> dict[str, Lines]:
    """Blocks of a `key:` line followed by its templates."""
    out: dict[str, list[str]] = {}
    for line in lines(text):
        if re.fullmatch(r"[a-z0-9 ]+:", line):
            out[line[:-1]] = block = []
        else:
            block.append(line)
    return {key: tuple(rows) for key, rows in out.items()}


def phrases(text: str) -> dict[str, Phrases]:
    """Blocks of a line `observation (scale)` followed by its phrases.

    A phrase that starts with `-` names the absent thing, one with `~` the resolved one, one with
    `=` is a clause, one with `.` a noun phrase for the mild grade; every other one is a noun phrase.
    """
    out: dict[str, Phrases] = {}
    for line in lines(text):
        head = re.fullmatch(r"([a-z -]+) \((\w+)\)", line)
        if head:
            name, scale = head.groups()
            out[name] = Phrases((), (), (), scale=scale)
            continue
        row = out[name]
        mark, rest = line[0], line[1:].strip()
        if mark == "-":
            out[name] = replace(row, absent=(*row.absent, rest))
        elif mark == "~":
            out[name] = replace(row, gone=(*row.gone, rest))
        elif mark == "=":
            out[name] = replace(row, clauses=(*row.clauses, rest))
        elif mark == ".":
            out[name] = replace(row, mild=(*row.mild, rest))
        else:
            out[name] = replace(row, nouns=(*row.nouns, line))
    return out


@cache
def load_lexicon(name: str) -> Lexicon:
    """The lexicon of this name; it is checked by the tests, not on every load.

    Its files hold one upper-case table for each field of `Lexicon`; the phrases of observations stand
    in three tables.
    """
    if name not in LEXICONS:
        raise UnknownName(f"'{name}' is not a lexicon.{did_you_mean(name, LEXICONS)} Use one of {', '.join(LEXICONS)}.")
    tables: dict[str, Any] = {}
    for part in ("lungs", "chest", "devices", "sentences", "sections"):
        tables.update(vars(import_module(f"{LEXICONS[name]}.{part}")))
    observations = {**tables["LUNGS"], **tables["CHEST"], **tables["DEVICES"]}
    others = [field.name for field in fields(Lexicon) if field.name not in ("name", "observations")]
    return Lexicon(name=name, observations=observations, **{field: tables[field.upper()] for field in others})

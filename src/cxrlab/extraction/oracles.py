"""Who tells an attacker what chest radiographs can show: the oracle, which sees neither an image nor the victim.

An oracle gives, for each of the five categories, normal and abnormal descriptions of a sentence or
two. What it says decides which reports the attack tries to draw out of the victim, so what it said is
kept, counted and compared with the victim's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from cxrlab.core.errors import DataError
from cxrlab.core.tables import Table
from cxrlab.extraction.anatomy import Category

Kind = Literal["abnormal", "normal"]
KINDS: tuple[Kind, ...] = ("abnormal", "normal")

# Each row is called with a seed and gives an `Oracle`.
ORACLES = Table(
    "oracle",
    {
        "rules": "cxrlab.extraction.oracle_rules:rules",
        "rules-weak": "cxrlab.extraction.oracle_rules:rules_weak",
    },
)


@dataclass(frozen=True)
class Descriptions:
    """What an oracle said.

    Args:
        abnormal: Category → distinct descriptions of something abnormal, each a sentence or two.
        normal: The same for what is normal.

    Every category must have at least one of each kind, or a draw could come back empty-handed.
    """

    abnormal: Mapping[Category, tuple[str, ...]]
    normal: Mapping[Category, tuple[str, ...]]

    def __post_init__(self) -> None:
        missing = [f"{kind} {category}" for kind in KINDS for category in Category if not self.of(category, kind)]
        if missing:
            raise DataError(
                f"the oracle gave no description for {', '.join(missing)}; each category needs at least one."
            )

    def of(self, category: Category, kind: Kind) -> tuple[str, ...]:
        """The descriptions of one category and kind; empty where the oracle gave none."""
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


@runtime_checkable
class Oracle(Protocol):
    """Gives descriptions without having seen a picture or an answer of the victim."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it."""
        ...

    def describe(self) -> Descriptions:
        """All descriptions; the same ones each time."""
        ...


def load_oracle(name: str, seed: int = 0) -> Oracle:
    """The oracle of this name; an unknown one is an `UnknownName` with the nearest."""
    oracle: Oracle = ORACLES.load(name)(seed)
    return oracle


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without later ones that differ only in case, spaces or marks, and without empty ones."""
    kept: dict[tuple[str, ...], str] = {}
    for text in texts:
        if key := words_of(text):
            kept.setdefault(key, " ".join(text.split()))
    return tuple(kept.values())


def words_of(text: str) -> tuple[str, ...]:
    """Runs of letters and digits of the lower-cased text; a hyphen or apostrophe inside a word stays in it."""
    return tuple(re.findall(r"[^\W_]+(?:[-'’.][^\W_]+)*", text.lower()))


def shared_vocabulary(descriptions: Descriptions, texts: Iterable[str]) -> dict[str, Any]:
    """How many of the oracle's words also stand in given texts, say the victim's answers.

    Returns:
        `oracle_words` and `text_words`, distinct words on each side; `shared`, those on both; `share`, shared
        over oracle words, 0 to 1. Small words count too, so two independent writers never reach 0.
    """
    said = {word for text in descriptions.texts() for word in words_of(text)}
    theirs = {word for text in texts for word in words_of(text)}
    shared = len(said & theirs)
    return {"oracle_words": len(said), "text_words": len(theirs), "shared": shared, "share": shared / len(said)}

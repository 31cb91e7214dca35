"""Settings of a study of extraction: victims, what all attacks share, and what each variant changes in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.studies.variants import check_names, checked_variants

MADE = "made:"  # begins the name of a model that the study makes
VICTIM, TEXTS = "victim", ("the", "empty", "reviews")  # rows of a table that are no variants
STREAMS, ATTACK = "variants", "variant"  # the keys of `detect` and `defend` that are no settings of theirs


@dataclass(frozen=True)
class ExtractionVariant:
    """One attack, told by what it changes in what all share.

    Args:
        changes: What is different, in one sentence.
        extract: Settings of `extract` that differ.
        published: Metric → somebody's figure for it.
    """

    changes: str
    extract: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyTable:
    """Variants that are shown together; one may stand in several tables.

    Args:
        variants: Their names, in the order of the rows.
        about: What the table shows, in a sentence.
        published: Row → metric → somebody's figure, where it is another than the variant's own. Rows too are 'victim',
            by which the others are divided, and the texts without an image (the, empty, reviews).
    """

    variants: tuple[str, ...]
    about: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExtractionStudyConfig:
    """How much of report models can be copied by queries: variants of one attack, several seeds each.

    For models that you own or may test.

    Args:
        corpora: Name → folder of a corpus, or how to make one: phantom, scenes, bland, structured or composed with
            settings.
        data: Name of the corpus on whose test split victims and copies are measured.
        variants: Name → what it changes, and the figures that were published for it.
        extract: Settings of `extract` that all variants share. Corpora in pools are named (corpus:query@train,
            folder:pictures), and made:NAME is a model of the study.
        models: Name → settings of `train finetune` that make a victim or a start, once for all seeds.
        seeds: One whole attack each: pictures, draws, weights and the studies that are measured come from it.
        at_once: Parts that are worked on side by side, each in a process of its own, at most one per
            core; small models leave a GPU waiting.
        metrics: Names of the metrics that are measured, the columns of the tables, the most telling first.
        tables: Title → the variants that it shows; the first table is the main one.
        contrasts: Pairs [variant, against]: their difference on the same studies, by seed and over seeds.
        controls: Variants of one victim that are scored beside it and beside texts without an image, for the first
            seed.
        pairwise: Pairs [a, b] of variants whose reports a judge compares study by study.
        detect: Settings of `detect` for the first seed, and 'variants', whose queries are the streams.
        defend: Settings of `defend` for the first seed, and 'variant', the attack that the defences meet.
    """

    corpora: Mapping[str, Any]
    data: str
    variants: Mapping[str, Any]
    extract: Mapping[str, Any]
    models: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1, 2, 3)
    at_once: int = 1
    metrics: tuple[str, ...] = (
        "findings.f1",
        "findings.f1.side",
        "rougeL:coco",
        "chexpert14.micro.f1:uncertain-positive",
        "chexpert14.macro.f1:uncertain-positive",
        "green:rules",
        "errors.significant",
        "bleu4:coco",
    )
    tables: Mapping[str, Any] = field(default_factory=dict)
    contrasts: tuple[tuple[str, ...], ...] = ()
    controls: tuple[str, ...] = ()
    pairwise: tuple[tuple[str, ...], ...] = ()
    detect: Mapping[str, Any] = field(default_factory=dict)
    defend: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds={list(self.seeds)} is not usable; list different whole numbers from 0.")
        if self.at_once < 1:
            raise ConfigError(f"at_once={self.at_once} is not usable; give a whole number of at least 1.")
        if not self.metrics or len(set(self.metrics)) < len(self.metrics):
            raise ConfigError(f"metrics={list(self.metrics)} is not usable; name at least one, and each once.")
        for what in ("corpora", "variants", "models"):
            check_names(what, getattr(self, what))
        if self.data not in self.corpora:
            raise ConfigError(f"data='{self.data}' is no corpus of the list.{did_you_mean(self.data, self.corpora)}")
        self.chosen()  # refuses what is wrong with a variant
        raise_problems([*self._wrong_pairs(), *self._unknown_names(), *self._no_figures()])

    def chosen(self) -> dict[str, ExtractionVariant]:
        """The variants by name, every setting checked; all problems are told at once."""
        found = checked_variants(ExtractionVariant, self.variants)
        if not found:
            raise ConfigError("variants is empty; give at least one attack.")
        return found

    def shown_tables(self) -> dict[str, StudyTable]:
        """The tables by title; all problems are told at once."""
        found: dict[str, StudyTable] = {}
        problems: list[str] = []
        for title, values in self.tables.items():
            table, wrong = parse_group(StudyTable, values, f"tables, '{title}'")
            problems += wrong
            if table is not None:
                found[title] = table
        raise_problems(problems)
        return found

    @property
    def streams(self) -> tuple[str, ...]:
        """Variants whose queries detectors watch."""
        given = self.detect.get(STREAMS, ())
        return tuple(map(str, given)) if isinstance(given, (list, tuple)) else (str(given),)

    @property
    def attack(self) -> str | None:
        """The variant that the defences meet; None where there are none."""
        return str(self.defend.get(ATTACK)) if self.defend else None

    def _wrong_pairs(self) -> Iterator[str]:
        for what in ("contrasts", "pairwise"):
            for pair in getattr(self, what):
                if len(pair) != 2 or pair[0] == pair[1]:
                    yield f"{what} holds {list(pair)}; write two different variants, such as [ada, knockoff]."
        if self.detect and not self.streams:
            yield "detect needs 'variants', the attacks whose queries are watched."
        if self.defend and ATTACK not in self.defend:
            yield "defend needs 'variant', the attack that the defences meet."

    def _unknown_names(self) -> Iterator[str]:
        for what, names in self._named():
            for name in dict.fromkeys(names):
                if name not in self.variants:
                    yield f"{what}: there is no variant '{name}'.{did_you_mean(name, self.variants)}"

    def _no_figures(self) -> Iterator[str]:
        told: dict[str, Any] = {f"variants, '{name}'": row.published for name, row in self.chosen().items()}
        for title, table in self.shown_tables().items():
            for row, published in table.published.items():
                told[f"tables, '{title}', '{row}'"] = published
                if row not in (VICTIM, *TEXTS, *table.variants):
                    yield f"tables, '{title}': '{row}' has published figures and is no row of it."
        for place, published in told.items():
            figures = list(published.values()) if isinstance(published, Mapping) else [published]
            if wrong := [one for one in figures if isinstance(one, bool) or not isinstance(one, (int, float))]:
                yield f"{place}: published has {short_repr(wrong[0])}; give metrics with a number each."

    def _named(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Where variants are named, and which."""
        for title, table in self.shown_tables().items():
            yield f"tables, '{title}'", table.variants
        yield "contrasts", [name for pair in self.contrasts for name in pair]
        yield "pairwise", [name for pair in self.pairwise for name in pair]
        yield "controls", self.controls
        yield "detect", self.streams
        yield "defend", [self.attack] if ATTACK in self.defend and self.attack else []

"""Settings of a composition: which corpora, which part of each, and what makes a pair of image and text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import nested, raise_problems
from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SECTIONS

# Which text of a study makes a pair; `structured:NAME` is that of one maker.
TEXTS = ("sections", "report", "structured")
STAGES = (1, 2, 3)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Paper:
    """What a paper counts, to be printed beside our own counts.

    Args:
        patients: Patients of the whole data set.
        images: Images of the whole data set.
        taken_patients: Patients of the part that is taken.
        taken_images: Images of the part that is taken.
        pairs: Pairs of image and text.
    """

    patients: int | None = None
    images: int | None = None
    taken_patients: int | None = None
    taken_images: int | None = None
    pairs: int | None = None


@dataclass(frozen=True)
class Member:
    """One corpus of a composition, and the part of it that is taken.

    Args:
        corpus: Its folder.
        data_set: Name under which it is imported, to help who lacks it; the member's own name when left out.
        splits: Splits taken; none stands for studies without one.
        views: Images kept (PA, AP, frontal, lateral, other); every image when left out. A study without any is left
            out.
        texts: Texts that make pairs with the images: sections (the source's), report (the whole as delivered),
            structured (by anyone) or structured:NAME.
        section: Section of those texts; the whole for report.
        pair: all pairs an image with each of the texts, first with the first in the order of texts that the study has.
        needs_text: Leave out a study without any of the texts.
        n: Number of studies drawn from what is left; all when left out.
        seed: Decides which are drawn.
        stages: Stages of training that use this member.
        as_split: Split that the studies get; their own when left out. In test only the source's text is kept.
        paper: Counts of a paper, printed beside ours.
    """

    corpus: Path
    data_set: str | None = None
    splits: tuple[Literal["train", "val", "test", "none"], ...] = ("train", "none")
    views: tuple[Literal["PA", "AP", "frontal", "lateral", "other"], ...] = ()
    texts: tuple[str, ...] = ("sections",)
    section: str = "findings"
    pair: Literal["all", "first"] = "all"
    needs_text: bool = True
    n: int | None = None
    seed: int = 7
    stages: tuple[int, ...] = STAGES
    as_split: Literal["train", "val", "test"] | None = None
    paper: Paper = field(default_factory=Paper)

    def __post_init__(self) -> None:
        if not self.splits or not self.texts:
            raise ConfigError("'splits' and 'texts' must not be empty; name at least one each.")
        for text in self.texts:
            kind, colon, maker = text.partition(":")
            if kind not in TEXTS or (colon and (kind != "structured" or not maker)):
                raise ConfigError(f"texts has '{text}'.{nearest(text, TEXTS)} Use {', '.join(TEXTS)}, structured:NAME.")
        if self.section not in SECTIONS:
            hint = nearest(self.section, SECTIONS)
            raise ConfigError(f"section='{self.section}' is unknown.{hint} Use one of {', '.join(SECTIONS)}.")
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n={self.n} is not usable; give a whole number of at least 1.")
        if not self.stages or set(self.stages) - set(STAGES):
            raise ConfigError(f"stages={list(self.stages)} is not usable; list some of {', '.join(map(str, STAGES))}.")
        if self.as_split == "test" and "structured" in {text.partition(":")[0] for text in self.texts}:
            raise ConfigError(
                "as_split=test and a structured text contradict each other; a test split holds the source's text alone."
            )


@dataclass(frozen=True)
class ComposeConfig:
    """One corpus out of several.

    Args:
        members: Name → settings of each member; see the files in configs/data.
        name: Name on the card of the new corpus.
        stage: Take only members that this stage of training uses (1, 2 or 3); all when left out.
        external_to: Corpora that a model has learnt from; the new corpus is refused when it shares a collection.
        allow_missing: Go on although a corpus is not there, and say so beneath the table.
    """

    members: Mapping[str, Any]
    name: str = "composed"
    stage: int | None = None
    external_to: tuple[Path, ...] = ()
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if self.stage is not None and self.stage not in STAGES:
            raise ConfigError(f"stage={self.stage} is unknown; use one of {', '.join(map(str, STAGES))}.")
        self.chosen()  # refuses what is wrong with a member

    def chosen(self) -> dict[str, Member]:
        """The members of the stage by name, every setting checked; all problems are told at once."""
        problems: list[str] = []
        found: dict[str, Member] = {}
        for name, values in self.members.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                problems.append(f"members has the name {name!r}; use letters, digits, - and _ alone.")
            member, wrong = nested(Member, values, f"members, '{name}'")
            problems += wrong
            if member is not None and (self.stage is None or self.stage in member.stages):
                found[name] = member
        raise_problems(problems)
        if not found:
            raise ConfigError(f"no member is used by stage {self.stage}." if self.stage else "members is empty.")
        return found

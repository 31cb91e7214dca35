"""A corpus written out in another layout and imported again: how much of it came back?"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.records import Report, Study
from cxrlab.data.corpus import Corpus
from cxrlab.data.export import plain_cell


@dataclass(frozen=True)
class CameBack:
    """One thing that a study carries: in how many studies it came back the same, of how many."""

    what: str
    same: int
    of: int


def _words(study: Study) -> Any:
    """The words of each section: a printed report is wrapped, so the ends of its lines are lost."""
    sections = (study.sections or Report()).to_json()
    return {name: text.split() for name, text in sections.items() if text is not None}


# What is compared, and how it is read off a study.
PARTS: Mapping[str, Callable[[Study], Any]] = MappingProxyType(
    {
        "sections, word for word": _words,
        "the fourteen labels": lambda study: dict(study.labels),
        "views": lambda study: [image.view for image in study.images],
        "age and sex": lambda study: (study.age, study.sex),
        "split": lambda study: study.split,
        "a prior study": lambda study: study.prior is not None,
    }
)


def came_back(source: Corpus, imported: Corpus, ids: Path) -> tuple[CameBack, ...]:
    """Compare each imported study with the one it was written from.

    Args:
        source: The corpus that was exported.
        imported: What the importer of that layout made of it.
        ids: The export's `ids.csv`: name in the layout, id in the source.
    """
    with ids.open(newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    names = {f"s{name}": plain_cell(name_here) for name, name_here in rows}
    pairs = [(source[names[study.id]], study) for study in imported]
    return tuple(
        CameBack(what, sum(part(before) == part(after) for before, after in pairs), len(names))
        for what, part in PARTS.items()
    )

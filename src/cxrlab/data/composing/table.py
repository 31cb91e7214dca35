"""The table of a composition: patients, images and pairs of each member beside the counts of a paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cxrlab.data.composing.config import Paper

# Column → its head in the printed table; a column named after a field of `Paper` follows where a member gives it.
_COLUMNS = {
    "patients": "patients",
    "images": "images",
    "taken_studies": "studies taken",
    "taken_patients": "patients taken",
    "taken_images": "images taken",
    "pairs": "pairs",
}


@dataclass(frozen=True)
class Row:
    """One member, or the total; None is what nobody knows.

    Args:
        member: Its name.
        patients: Patients of its corpus.
        images: Images of its corpus.
        taken_studies: Studies taken.
        taken_patients: Patients taken.
        taken_images: Images taken.
        pairs: Pairs of image and text.
        texts: Pairs by whose text it is.
        paper: Counts of the paper.
        note: What a reader must know, such as that the corpus is not there.
    """

    member: str
    patients: int | None = None
    images: int | None = None
    taken_studies: int | None = None
    taken_patients: int | None = None
    taken_images: int | None = None
    pairs: int | None = None
    texts: Mapping[str, int] = field(default_factory=dict)
    paper: Paper = field(default_factory=Paper)
    note: str = ""


def total(rows: Sequence[Row]) -> Row:
    """All members together; what nobody knows counts nothing, and members that are not there still have a paper."""

    def summed(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    texts: dict[str, int] = {}
    for row in rows:
        for kind, count in row.texts.items():
            texts[kind] = texts.get(kind, 0) + count
    paper = {name: summed([getattr(row.paper, name) for row in rows]) for name in Paper.__dataclass_fields__}
    counts = {name: summed([getattr(row, name) for row in rows]) for name in _COLUMNS}
    return dataclasses.replace(Row("total", texts=texts, paper=Paper(**paper)), **counts)  # type: ignore[arg-type]


def as_text(rows: Sequence[Row]) -> str:
    """The table for people: numbers to the right, the paper's behind ours where it has any, notes last."""
    rows = [*rows, total(rows)]
    heads, cells = ["member"], [[row.member] for row in rows]
    for name, head in _COLUMNS.items():
        heads.append(head)
        papers = [getattr(row.paper, name, None) for row in rows]
        for row, line, paper in zip(rows, cells, papers, strict=True):
            line.append(_number(getattr(row, name)))
            if any(value is not None for value in papers):
                line.append(_number(paper))
        if any(value is not None for value in papers):
            heads.append("paper")
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if not number else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [heads, *cells]
    ]
    notes = [f"{row.member}: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, *notes])


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"

"""Pairs and single judged reports from a file, each row checked against the corpus whose images it is about.

    {"id": "s1", "chosen": "…", "rejected": "…", "judge": "green:rules", "chosen_score": 0.8, "rejected_score": 0.4}
    {"id": "s1", "report": "…", "desirable": true, "score": 0.8}

A row that could not teach what it says is refused, with its file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.records import PreferencePair, Study
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.training.images import ImageFile
from cxrlab.training.samples import UNREAD, Sample, Source, image_file

PAIRS, UNPAIRED = "pairs.jsonl", "unpaired.jsonl"


@dataclass(frozen=True)
class Row:
    """One row of a file.

    Args:
        place: File and line.
        id: The study.
        first: The chosen report, or the one that was judged.
        second: The rejected report; None without pairs.
        desirable: Whether the report is a good one; None for pairs.
    """

    place: str
    id: str
    first: str
    second: str | None = None
    desirable: bool | None = None


@dataclass(frozen=True, eq=False)
class Judged:
    """What preference training learns from.

    Args:
        source: Samples by twos: of a pair chosen and rejected, without pairs a report and one of another study.
        desirable: Whether the first of each two is a good report, [N]; None for pairs.
    """

    source: Source
    desirable: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.source.samples) // 2


def read_judged(
    path: Path, data: Path, *, paired: bool, held_out: Sequence[str] = ("test",), n: int | None = None, seed: int = 0
) -> Judged:
    """The rows of a file with the images they are about.

    Args:
        path: Run of `prefer pair`, or a file.
        data: Corpus folder.
        paired: Pairs, or single reports; pairs can be read as single reports too, two each.
        held_out: Splits that must not be learnt from.
        n: Number of rows drawn; all when None.
        seed: Decides which are drawn, and which strange report stands beside a single one.
    """
    file = _file(path, paired)
    rows = list(_pairs(file) if paired else _single(file))
    if not rows:
        raise DataError(f"{file} holds no row; there is nothing to learn from.")
    corpus = load_corpus(data)
    studies = _studies(corpus, {row.id for row in rows})
    images = {}
    for row in rows:
        study = studies.get(row.id)
        if study is None:
            raise DataError(f"{row.place}: there is no study '{row.id}' in {corpus.path}; name the corpus it is of.")
        if study.split in held_out:
            raise DataError(
                f"{row.place}: study '{row.id}' is of the {study.split} split, which is kept for measuring; take its "
                "rows out."
            )
        if row.id not in images:
            images[row.id] = _image(corpus, study, row)
    if n is not None and n < len(rows):  # once all are known to be good: a draw must not hide a row that is not
        rows = [rows[number] for number in sorted(generator(seed, "pairs").permutation(len(rows))[:n].tolist())]
    seconds = [row.second for row in rows] if paired else _strange(rows, seed)
    samples = []
    for row, second in zip(rows, seconds, strict=True):
        sections = studies[row.id].sections
        indication = sections.indication if sections else None
        samples += [Sample(row.id, images[row.id], indication, str(text)) for text in (row.first, second)]
    card = corpus.card
    source = Source(
        card.name, corpus.path, tuple(samples), collections=known_collections(card), synthetic=card.synthetic
    )
    return Judged(source, None if paired else np.array([bool(row.desirable) for row in rows]))


def _file(path: Path, paired: bool) -> Path:
    if not path.is_dir():
        return path
    single = path / UNPAIRED
    found = single if not paired and single.is_file() else path / PAIRS
    if not found.is_file():
        raise DataError(f"{path} has no {PAIRS}; name a run of `cxrlab prefer pair`, or a file.")
    return found


def _pairs(file: Path) -> Iterator[Row]:
    for number, record in read_jsonl(file):
        place = f"{file}:{number}"
        if "report" in record:
            raise DataError(f"{place}: it is a single report; only loss.name=kto learns without pairs.")
        pair = _checked(record, place)
        yield Row(place, pair.id, pair.chosen.strip(), pair.rejected.strip())


def _single(file: Path) -> Iterator[Row]:
    for number, record in read_jsonl(file):
        place = f"{file}:{number}"
        if "report" not in record:
            pair = _checked(record, place)
            yield Row(place, pair.id, pair.chosen.strip(), desirable=True)
            yield Row(place, pair.id, pair.rejected.strip(), desirable=False)
            continue
        report, good = record["report"], record.get("desirable")
        if not isinstance(record.get("id"), str) or not isinstance(good, bool):
            raise DataError(f"{place}: a single report needs 'id' (text) and 'desirable' (true or false).")
        _refuse_empty(report, "report", place)
        yield Row(place, record["id"], report.strip(), desirable=good)


def _checked(record: dict[str, object], place: str) -> PreferencePair:
    try:
        pair = PreferencePair.from_json(record)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    for name in ("chosen", "rejected"):
        _refuse_empty(getattr(pair, name), name, place)
    if _same(pair.chosen, pair.rejected):
        raise DataError(f"{place}: chosen and rejected are the same text, which teaches nothing; take the row out.")
    return pair


def _refuse_empty(text: object, name: str, place: str) -> None:
    if not isinstance(text, str):
        raise DataError(f"{place}: '{name}' must be the text of a report; correct the row or take it out.")
    if not text.strip():
        raise DataError(f"{place}: '{name}' is empty; a report needs words. Take the row out.")


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()).lower() == " ".join(other.split()).lower()


def _studies(corpus: Corpus, wanted: set[str]) -> Mapping[str, Study]:
    return {study.id: study for study in corpus.studies(without=UNREAD) if study.id in wanted}


def _image(corpus: Corpus, study: Study, row: Row) -> ImageFile:
    found = image_file(corpus, study)
    if isinstance(found, str):
        raise DataError(f"{row.place}: study '{row.id}' has {found}; take its rows out.")
    if not found.path.is_file():
        raise DataError(f"{row.place}: the image of study '{row.id}' is not there ({found.path}); bring it back.")
    return found


def _strange(rows: Sequence[Row], seed: int) -> list[str]:
    """For each row the report of a row of another study, drawn with the seed; each is used about once."""
    order = generator(seed, "strange").permutation(len(rows)).tolist()
    if len({row.id for row in rows}) < 2:
        raise DataError("single reports of one study alone cannot be learnt from: kto compares with other studies.")
    found = [""] * len(rows)
    for place, number in enumerate(order):
        after = 1
        while rows[order[(place + after) % len(order)]].id == rows[number].id:
            after += 1
        found[number] = rows[order[(place + after) % len(order)]].first
    return found

"""What was asked and answered, as a corpus that a surrogate can learn from.

A picture stands for an image and the victim's words for its report. Where answers are learnt in several wordings, each
wording is a study of its own with the same picture.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.core.files import os_error
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.extraction.desk import PICTURES
from cxrlab.extraction.diversity import answer_of
from cxrlab.extraction.records import Query


class NothingLearnt(DataError):
    """No answer of a transcript says anything of an image."""


def write_transcript(
    queries: Sequence[Query],
    run: Path,
    out: Path,
    *,
    victim: str,
    wordings: int = 1,
    repeats: int | None = None,
    rewrite: bool = False,
    seed: int = 0,
) -> Corpus:
    """Make the corpus, or find it made.

    Args:
        queries: Answered ones; what says nothing of an image, such as a refusal, is left out.
        run: Run folder with the pictures.
        out: Folder of the corpus.
        victim: Who answered.
        wordings: Wordings of each answer.
        repeats: Most queries with the same answer, the first ones; all when None.
        rewrite: The victim's own words are left out, and all wordings are new.
        seed: Decides the other wordings.
    """
    told = _without_repeats([query for query in queries if answer_of(query.report).has_statements], repeats)
    if not told:
        raise NothingLearnt(
            f"none of {len(queries)} answers says anything of an image; there is nothing to learn from."
        )
    card = Card(
        name="transcript",
        source=f"Pictures that were put to {victim}, with its answers.",
        licence="For the audit of that model alone.",
        settings={
            "queries": len(told),
            "first": told[0].number,
            "last": told[-1].number,
            "wordings": wordings,
            "repeats": repeats,
            "rewrite": rewrite,
            "seed": seed,
        },
    )
    with CorpusWriter(out, card) as writer:
        _reach(out / PICTURES, run / PICTURES)
        if not writer.complete:
            for query in told:
                for study in _studies(query, wordings, rewrite, seed):
                    if study.id not in writer:
                        writer.add(study)
    return writer.finish()


def _reach(place: Path, pictures: Path) -> None:
    """Let a transcript reach the pictures of its run, by the way from the one to the other: both move together."""
    way = os.path.relpath(pictures, place.parent)
    try:
        if not (place.is_symlink() and os.readlink(place) == way):
            place.unlink(missing_ok=True)
            place.symlink_to(way, target_is_directory=True)
    except OSError as error:
        raise os_error(error, place) from error


def _without_repeats(queries: Sequence[Query], most: int | None) -> list[Query]:
    seen: Counter[str] = Counter()
    kept = []
    for query in queries:
        seen[query.report] += 1
        if most is None or seen[query.report] <= most:
            kept.append(query)
    return kept


def _studies(query: Query, wordings: int, rewrite: bool, seed: int) -> Iterator[Study]:
    from cxrlab.extraction.defence.adaptive import rewrite as retold

    for number in range(wordings):
        own = number == 0 and not rewrite
        text = query.report if own else retold(query.report, seed + number)
        yield Study(
            id=f"q{query.number:06d}" + (f"_{number}" if number else ""),
            patient=f"q{query.number:06d}",
            split="train",
            images=(ImageFile(f"{PICTURES}/{query.sha256}.png", View.FRONTAL),),
            sections=Report(findings=text),
        )

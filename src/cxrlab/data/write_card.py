"""Write the card of a corpus that was made by hand, or complete the one that it has."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.atomic_folders import lock_folder
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import unreadable, write_text
from cxrlab.core.jsonl import parse_line, read_line
from cxrlab.core.records import SPLITS
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.config import CardConfig
from cxrlab.data.corpus import STUDIES, corpus_folder, leakage, parse_study, repeated_id
from cxrlab.data.corpus_writer import PARTIAL, Line

NOT_STATED = "not stated"
_LISTED = 100  # malformed lines that a message quotes


def complete_card(path: str | Path, config: CardConfig) -> Card:
    """Read every study, count, and write the card; what it stated stays, what `config` gives replaces it.

    A malformed line, a repeated id or a patient in two splits is a `DataError` that lists all of them; then no card is
    written.
    """
    folder = corpus_folder(path)
    if (folder / PARTIAL).exists():
        raise RunError(f"{folder} is an unfinished import; run the command that imports it once more to complete it.")
    with lock_folder(folder):
        there = read_card(folder / CARD) if (folder / CARD).is_file() else None
        counts, absent = _count(folder)
        card = there or Card(folder.resolve().name, NOT_STATED, NOT_STATED, NOT_STATED, absent={})
        given = {key: value for key, value in vars(config).items() if value not in (None, (), False)}
        stated = None if card.absent is None else {name: count for name, count in absent.items() if count}
        card = dataclasses.replace(card, **given, counts=counts, absent=stated)
        write_text(folder / CARD, card.to_yaml())
    return card


def _count(folder: Path) -> tuple[dict[str, int], Counter[str]]:
    """Studies, patients, images and studies by split, and what studies lack; every problem in one error."""
    file = folder / STUDIES
    problems: list[str] = []
    places: dict[str, tuple[str, str | None]] = {}  # id → patient and split
    totals, absent = Counter[str](), Counter[str]()
    try:
        with file.open("rb") as stream:
            for number, (text, _) in enumerate(iter(partial(read_line, stream), (b"", 0)), 1):
                if not text.strip():
                    continue
                place = f"{file}:{number}"
                try:
                    study = parse_study(parse_line(text, place, cut=not text.endswith(b"\n")), place)
                    if study.id in places:
                        raise repeated_id(file, number, study.id)
                except DataError as error:
                    problems.append(str(error))
                    continue
                line = Line.of(study)
                places[line.id] = (line.patient, line.split)
                totals.update({"images": line.images, line.split or "": 1})
                absent.update(line.absent)
    except OSError as error:
        raise unreadable(error, file) from error
    problems += [
        f"{file}: patient '{patient}' is in {' and '.join(splits)}; keep each patient in one split."
        for patient, splits in leakage(places.values()).items()
    ]
    if problems:
        more = f"\n  and {len(problems) - _LISTED:,} more" if len(problems) > _LISTED else ""
        raise DataError(f"{len(problems):,} problems in {file}:\n  " + "\n  ".join(problems[:_LISTED]) + more)
    if not places:
        raise DataError(f"{file} holds no study; write one JSON object per line.")
    counts: dict[str, Any] = {"studies": len(places), "patients": len({patient for patient, _ in places.values()})}
    counts |= {"images": totals["images"], **{name: totals[name] for name in SPLITS if totals[name]}}
    return counts, absent

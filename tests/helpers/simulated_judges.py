"""ReXVal's files generated from a seed, and scripted judges with known error rates."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.evaluation.published_benchmarks import COUNTS, REPORTS

Counts = NDArray[np.int64]
COLUMNS = ("radgraph", "bertscore", "s_emb", "bleu")
LETTERS = "ABCDEF"
CELLS = 12  # six kinds that are significant, then the same six that are not
UNREADABLE = "I would rather not judge these reports."


@dataclass(frozen=True)
class Planted:
    """The planted errors.

    Args:
        root: Folder with the two files.
        truth: The errors that are there [pairs, 12].
        raters: What each rater counted [pairs, raters, 12].
    """

    root: Path
    truth: Counts
    raters: Counts

    @property
    def total(self) -> NDArray[np.float64]:
        """Errors by pair and rater."""
        return self.raters.sum(axis=2).astype(np.float64)

    @property
    def significant(self) -> NDArray[np.float64]:
        """Of these the significant ones."""
        return self.raters[:, :, :6].sum(axis=2).astype(np.float64)

    def counted(self, seed: int, share: float) -> Counts:
        """What a judge counts that is wrong by one in this share of the cells [pairs, 12]."""
        return misread(self.truth, np.random.default_rng(seed), share)


def misread(counts: Counts, rng: np.random.Generator, share: float) -> Counts:
    """Counts that are one too high or too low in a share of the places, and never below nothing."""
    wrong = rng.random(counts.shape) < share
    return np.maximum(counts + np.where(wrong, rng.choice((-1, 1), counts.shape), 0), 0)


def plant(root: Path, seed: int = 7, studies: int = 15, raters: int = 6) -> Planted:
    """Write the files of a ReXVal with so many studies of four candidates each; a count of 0 is not listed."""
    rng = np.random.default_rng(seed)
    truth = rng.poisson(rng.gamma(1.0, 0.4, (studies * len(COLUMNS), 1)), (studies * len(COLUMNS), CELLS))
    seen = np.stack([misread(truth, rng, 0.08) for _ in range(raters)], axis=1)
    root.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[object, ...]] = [("study_id", "gt_report", *COLUMNS)]
    for study in range(studies):
        texts = (candidate(study * len(COLUMNS) + place) for place in range(len(COLUMNS)))
        rows.append((50000 + study, f"Reference of study {study}. The heart is enlarged.", *texts))
    _write(root / REPORTS, rows)
    head = ("study_number", "candidate_type", "error_category", "rater_index", "clinically_significant", "num_errors")
    listed = [
        (pair // len(COLUMNS), COLUMNS[pair % len(COLUMNS)], cell % 6 + 1, rater, cell < 6, seen[pair, rater, cell])
        for pair, rater, cell in np.argwhere(seen).tolist()
    ]
    _write(root / COUNTS, [head, *listed])
    return Planted(root, truth, seen)


def candidate(pair: int) -> str:
    """A report that contains its number, by which a scripted judge recognises it."""
    return f"Candidate number {pair:03d} of these. The heart is not enlarged."


def answer(counts: Counts) -> str:
    """Twelve counts in the published form of CheXprompt's answers."""
    lines = []
    for first, weight in ((0, "significant"), (6, "insignificant")):
        counts_text = ", ".join(f"({letter}, {counts[first + place]})" for place, letter in enumerate(LETTERS))
        lines.append(f"Number of clinically {weight} errors by type: [{counts_text}]")
    return "\n".join(lines)


def script(file: Path, counts: Counts, unreadable: Collection[int] = ()) -> str:
    """Write a scripted judge with these counts; returns the name of its model.

    Args:
        file: Path of the script.
        counts: [pairs, 12].
        unreadable: Pairs for which it returns no counts.
    """
    lines = [
        {"contains": candidate(pair), "answer": UNREADABLE if pair in unreadable else answer(row)}
        for pair, row in enumerate(counts)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"scripted:{file}"


def _write(file: Path, rows: list[tuple[object, ...]]) -> None:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)

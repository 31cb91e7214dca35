"""Every different report of every study scored once, whichever models and conditions it came from.

Most changed images leave a report as it was, so the same words about the same study come back again and again. What
one report says (its observations, sides, whether it is a normal one) is kept beside the counts of the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.vocabulary import OBSERVATIONS, Side
from cxrlab.findings.merge import merged
from cxrlab.metrics.families import cards, families
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.tally import Matrix, Tally, mean_tally
from cxrlab.robustness.tables import Evidence, Flags, Said

if TYPE_CHECKING:
    from cxrlab.findings.reader import Reading

REPORT_METRICS = ("findings.f1", "findings.f1.side", "chexpert14.micro.f1:uncertain-positive", "errors.significant")
ERRORS = "errors.significant"

# Pairs that are scored at once; what is read of them is dropped afterwards, so that memory stays flat.
_AT_ONCE = 2048
_COLUMN = {name: number for number, name in enumerate(OBSERVATIONS)}


@dataclass(frozen=True, eq=False)
class Contents:
    """What each of T texts says.

    Args:
        present: Whether an observation is said to be there, [T, O].
        left: Whether it is said to be on the left and nowhere else, [T, O].
        right: The same for the right.
        normal: Whether the text speaks of the image and names nothing but devices and the incidental, [T].
        silent: Whether it says nothing of an image, [T].
    """

    present: Flags
    left: Flags
    right: Flags
    normal: Flags
    silent: Flags

    @classmethod
    def unread(cls, texts: int) -> Contents:
        """Room for that many texts."""
        wide = (np.zeros((texts, len(_COLUMN)), dtype=bool) for _ in range(3))
        return cls(next(wide), next(wide), next(wide), np.zeros(texts, dtype=bool), np.zeros(texts, dtype=bool))

    def put(self, row: int, reading: Reading) -> None:
        """Note what one text says."""
        things = [thing for thing in merged(reading.findings) if thing.present]
        sides: dict[str, set[Side | None]] = {}
        for thing in things:
            sides.setdefault(thing.observation, set()).add(thing.side)
        for name, named in sides.items():
            column = _COLUMN[name]
            self.present[row, column] = True
            self.left[row, column] = named == {Side.LEFT}
            self.right[row, column] = named == {Side.RIGHT}
        self.silent[row] = not reading.has_statements
        self.normal[row] = reading.has_statements and _nothing_found(things)


def _nothing_found(things: Sequence[Finding]) -> bool:
    return chexpert_labels(things, complete=False).get("No Finding") == 1


class ScoredReports:
    """Counts of the report metrics for every different pair of study and text.

    Args:
        evidence: Whose reports are scored.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.contents = Contents.unread(len(evidence.texts))
        self._codes = _different(evidence)
        self._tallies = self._scored()

    def tally(self, name: str, said: Said) -> Tally:
        """One metric of what a model wrote, a row a study; undefined where there is no report or no reference."""
        if name not in self._tallies:
            return mean_tally(cards()[name], np.full(len(said.reports), np.nan))
        whole, written = self._tallies[name], said.written
        index = np.searchsorted(self._codes, np.where(written, self._code(said), self._codes[0]))
        defined = whole.defined[index] & written
        return Tally(whole.metric, whole.rows[index] * defined[:, None], defined, whole.value_of)

    def errors(self, said: Said) -> Matrix:
        """Significant errors of each report, [N]; not-a-number where undefined."""
        return self.tally(ERRORS, said).by_pair

    def _code(self, said: Said) -> NDArray[np.int64]:
        return np.arange(len(said.reports)) * len(self._evidence.texts) + said.reports

    def _scored(self) -> dict[str, Tally]:
        parts: list[dict[str, Tally]] = []
        for batch, numbers in self._batches():
            found = {tally.metric.name: tally for family in families(REPORT_METRICS) for tally in family.tallies(batch)}
            parts.append({name: found[name] for name in REPORT_METRICS})
            for number in numbers:
                self.contents.put(number, batch.read(self._evidence.texts[number]))
        return {name: _joined([part[name] for part in parts]) for name in REPORT_METRICS} if parts else {}

    def _batches(self) -> Iterator[tuple[Batch, list[int]]]:
        """Pairs study by study, so that a reference is read once, and the numbers of the texts that are new."""
        texts, studies = self._evidence.texts, self._evidence.studies
        count = max(1, len(texts))
        # A text of several studies, such as the normal report, is kept; the others are not needed again.
        times = np.bincount(self._codes % count, minlength=count)
        shared = {texts[number] for number in np.flatnonzero(times > 1)}
        readings: dict[str, Reading] = {}
        noted: set[int] = set()
        for start in range(0, len(self._codes), _AT_ONCE):
            pairs, numbers = [], []
            for code in self._codes[start : start + _AT_ONCE].tolist():
                study, number = studies[code // count], code % count
                pairs.append(Pair(f"{study.id}|{number}", study.reference, texts[number], "", study.findings))
                if number not in noted:
                    noted.add(number)
                    numbers.append(number)
            yield Batch(pairs, readings), numbers
            for text in [text for text in readings if text not in shared]:
                del readings[text]


def _different(evidence: Evidence) -> NDArray[np.int64]:
    """Each different pair of study and text as one number, in order of the studies."""
    rows = np.arange(len(evidence.studies)) * len(evidence.texts)
    found = [np.zeros(0, np.int64)]
    for table in evidence.tables.values():
        for said in (table.image, table.uint8):
            if said is not None:
                found.append((rows + said.reports)[said.written])
    return np.unique(np.concatenate(found))


def _joined(parts: Sequence[Tally]) -> Tally:
    first = parts[0]
    rows = np.concatenate([part.rows for part in parts])
    return Tally(first.metric, rows, np.concatenate([part.defined for part in parts]), first.value_of)

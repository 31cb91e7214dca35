"""What the rules of `data structure` keep and remove, on generated and on real reports.

    python experiments/structuring_rules.py --n 1000 [--root FOLDER_OF_REAL_DATA] [--show 20]

For each set of reports: the share with the same findings before and after (must be all), the share that refers to an
earlier image before and after, by the reader or by words alone, and the time per report. `--show` prints sentences that
still compare, for work on the rules. They come from patients' reports: print them only where these may be read.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.records import Report
from cxrlab.data.structuring.checks import comparing, differences, reading_of
from cxrlab.data.structuring.rules import correct_typos, structure
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient


@dataclass
class Tally:
    """Counts over a set of reports."""

    reports: int = 0
    same: int = 0
    compared_before: int = 0
    compared_after: int = 0
    restored: int = 0
    words_before: int = 0
    words_after: int = 0
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        """One row of the table in docs/structuring.md."""
        share = [
            f"{100 * count / self.reports:.1f} %" for count in (self.same, self.compared_before, self.compared_after)
        ]
        words = f"{self.words_before / self.reports:.0f} → {self.words_after / self.reports:.0f}"
        pace = f"{1000 * self.seconds / self.reports:.1f} ms"
        return " | ".join(["", name, f"{self.reports:,}", *share, str(self.restored), words, pace, ""]).strip()


def narrated(count: int, lexicon: str) -> Iterator[Report]:
    """Reports of so many phantom visits."""
    made = 0
    for number in range(count):
        for visit in draw_patient(11, f"p{number}").visits:
            if made == count:
                return
            yield narrate(visit, 11, f"s{made}", lexicon).report
            made += 1


def indiana(root: Path) -> Iterator[Report]:
    """The reports of the Kaggle table that hold findings or an impression."""
    with (root / "openi" / "indiana_reports.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            texts = {name: row[name] or None for name in ("indication", "comparison", "findings", "impression")}
            if texts["findings"] or texts["impression"]:
                yield Report(**texts)


def tally(reports: Iterable[Report]) -> Tally:
    """Structure every report and count."""
    sums = Tally()
    for report in reports:
        start = time.perf_counter()
        ruled = structure(report)
        sums.seconds += time.perf_counter() - start
        before, after = reading_of(correct_typos(report)), reading_of(ruled.report)
        sums.reports += 1
        sums.same += not differences(before, after)
        sums.compared_before += bool(comparing(correct_typos(report)))
        left = comparing(ruled.report)
        sums.compared_after += bool(left)
        sums.restored += bool(ruled.restored)
        sums.words_before += _words(report)
        sums.words_after += _words(ruled.report)
        sums.left += left
    return sums


def _words(report: Report) -> int:
    return sum(len(text.split()) for text in (report.findings, report.impression) if text)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="narrated reports of each lexicon")
    parser.add_argument("--root", type=Path, help="folder of real data; left out: narrated reports alone")
    parser.add_argument("--show", type=int, default=0, help="print so many sentences that still compare")
    options = parser.parse_args()
    sets = {f"narrated, lexicon {name}": narrated(options.n, name) for name in ("A", "B")}
    if options.root:
        sets["Indiana University (Open-I)"] = indiana(options.root)
    print("| reports | n | same findings | compare before | compare after | restored | words | time per report |")
    for name, reports in sets.items():
        sums = tally(reports)
        print(sums.line(name))
        for phrase in sums.left[: options.show]:
            print("    ", phrase)


if __name__ == "__main__":
    main()

"""Does the reader find in real reports what an indexer found? Agreement with the MeSH codes of Open-I.

    python experiments/openi_agreement.py --root OPENI [--disagreements 50 --seed 3]

OPENI is the folder with `indiana_reports.csv`. Findings and impression of each report are read as one
text; what is read as present, hedged or not, is set beside the report's codes by the table
`openi_codes.txt`. `--disagreements` prints random reports that differ, on the terminal alone. A minute.

Columns: reports with a code of this observation; of these, reports in which the reader says it in an
accepted word (recall); reports where it is read; of these, reports with a code that accepts it
(precision). The interval is of F1, by bootstrap over reports.

Limits. The codes are no truth on the film or the text: an indexer leaves out what seems small beside
the impression (old fractures, devices, degenerative change), writes the sign or the diagnosis where a
report gives both, codes hedged and certain alike and nothing that is absent, and worked from text in
which the masked words were still readable. So a low precision may be the codes' and a low recall the
masks'; the share of each was found by reading disagreements.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS, Group, observation
from cxrlab.findings.reader import Reading, read

TABLE = Path(__file__).with_name("openi_codes.txt")
DEVICES = [row.name for row in OBSERVATIONS.values() if row.group is Group.DEVICE and row.name != "monitoring leads"]
NORMAL, NOT_INDEXED = "normal", "No Indexing"
TRIALS = 1000


@dataclass(frozen=True)
class Meaning:
    """One row of the table.

    Args:
        heading: First part of the code; "*" for any.
        qualifiers: Further parts that it must have.
        accepts: Observations that say it; the first names the row.
        asked: Whether one of them is asked for.
    """

    heading: str
    qualifiers: frozenset[str]
    accepts: tuple[str, ...]
    asked: bool


@dataclass(frozen=True)
class Report:
    """One report: its codes' meanings and what was read."""

    id: str
    text: str
    codes: tuple[str, ...]
    meanings: tuple[Meaning, ...]
    unknown: tuple[str, ...]
    reading: Reading

    @cached_property
    def read(self) -> set[str]:
        """Observations read as present, hedged or not."""
        return {finding.observation for finding in self.reading if finding.present}

    @cached_property
    def missed(self) -> list[Meaning]:
        """Meanings that are asked for and that no accepted observation says."""
        return [meaning for meaning in self.meanings if meaning.asked and not self.read & set(meaning.accepts)]

    @cached_property
    def unbacked(self) -> set[str]:
        """Observations read for which no code speaks."""
        return self.read - {name for meaning in self.meanings for name in meaning.accepts}


def table(path: Path = TABLE) -> list[Meaning]:
    """The rows of the table in its order."""
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        heads, colon, right = line.partition(" :")
        if not colon:
            raise DataError(f"{path}, line {number}: no ' :' between codes and observations.")
        asked = bool(right.strip()) and not right.strip().startswith("?")
        names = [name for name in right.strip().lstrip("? ").split(" | ") if name]
        names = [name for given in names for name in (DEVICES if given == "DEVICES" else [given])]
        accepts = tuple(observation(name).name for name in dict.fromkeys(names))
        for head in heads.split("; "):
            heading, *qualifiers = head.lower().split(" + ")
            rows.append(Meaning(heading, frozenset(qualifiers), accepts, asked))
    return rows


def meaning_of(code: str, rows: Sequence[Meaning]) -> Meaning | None:
    """The first row that the code fits, None where there is none."""
    heading, *rest = (" ".join(part.split()).lower() for part in code.split("/"))
    return next((row for row in rows if row.heading in (heading, "*") and row.qualifiers <= set(rest)), None)


def load(root: Path, rows: Sequence[Meaning]) -> list[Report]:
    """Every indexed report that has a text; reports that nobody indexed say nothing and are left out."""
    path = root / "indiana_reports.csv"
    if not path.is_file():
        raise DataError(f"{path} is missing. Give the folder of the Open-I reports with --root.")
    reports = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(part.strip() for part in (row["findings"], row["impression"]) if part.strip())
            codes = tuple(code.strip() for code in row["MeSH"].split(";") if code.strip())
            if not text or NOT_INDEXED in codes:
                continue
            found = {code: meaning_of(code, rows) for code in codes if code != NORMAL}
            known = tuple(meaning for meaning in found.values() if meaning)
            unknown = tuple(code for code, meaning in found.items() if not meaning)
            reports.append(Report(row["uid"], text, codes, known, unknown, read(text)))
    if not reports:
        raise DataError(f"{path} has no indexed report with a text.")
    return reports


def counts(reports: Sequence[Report], name: str) -> NDArray[np.float64]:
    """[reports, 4] of 0 and 1: coded, coded and found, read, read and backed."""
    out = np.zeros((len(reports), 4))
    for line, report in zip(out, reports, strict=True):
        asked = [meaning for meaning in report.meanings if meaning.asked and meaning.accepts[0] == name]
        line[0], line[1] = bool(asked), bool(asked) and all(meaning not in report.missed for meaning in asked)
        line[2] = name in report.read
        line[3] = name in report.read - report.unbacked
    return out


def rates(sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Precision, recall and F1 of sums [..., 4]; not-a-number where there is nothing to divide by."""
    with np.errstate(invalid="ignore", divide="ignore"):
        recall, precision = sums[..., 1] / sums[..., 0], sums[..., 3] / sums[..., 2]
        f1 = np.where(precision + recall > 0, 2 * precision * recall / (precision + recall), 0.0)
    return precision, recall, np.where(np.isnan(precision + recall), np.nan, f1)


def resamples(n: int, seed: int) -> NDArray[np.float64]:
    """How often each of n reports is drawn [TRIALS, n]."""
    rng = generator(seed, "openi", "bootstrap")
    return np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(TRIALS)]).astype(np.float64)


def interval(columns: NDArray[np.float64], draws: NDArray[np.float64]) -> tuple[float, float]:
    """95 % bootstrap interval of F1 over the reports of columns [reports, 4]; unknown where resamples lack a value."""
    values = rates(draws @ columns)[2]
    if np.isnan(values).mean() > 0.05:
        return float("nan"), float("nan")
    low, high = np.nanquantile(values, (0.025, 0.975))
    return float(low), float(high)


def all_counts(reports: Sequence[Report], rows: Sequence[Meaning]) -> dict[str, NDArray[np.float64]]:
    """The counts of every observation that codes speak of, in the order of the vocabulary."""
    spoken = {name for row in rows for name in row.accepts}
    return {name: counts(reports, name) for name in OBSERVATIONS if name in spoken}


def print_table(reports: Sequence[Report], rows: Sequence[Meaning], seed: int) -> None:
    """One line an observation, then all of them together."""
    columns, draws = all_counts(reports, rows), resamples(len(reports), seed)
    print(f"{'observation':30}{'coded':>7}{'found':>7}{'read':>7}{'backed':>8}{'prec.':>8}{'recall':>8}{'F1':>7}  95 %")
    for name, own in columns.items():
        print_line(name, own, draws)
    print_line("all together (micro)", sum(columns.values(), np.zeros((len(reports), 4))), draws)
    silent = Counter(name for report in reports for name in report.read - set(columns))
    print("read, but without a code of any kind:", ", ".join(f"{a} {n}" for a, n in silent.most_common()) or "nothing")
    unknown = Counter(code for report in reports for code in report.unknown)
    print(f"codes without a row in the table: {sum(unknown.values())}")


def print_line(name: str, columns: NDArray[np.float64], draws: NDArray[np.float64]) -> None:
    """Counts, rates and interval of one observation; a dash where nothing can be divided."""
    sums = columns.sum(axis=0)
    shown = [f"{float(value):.3f}" if not np.isnan(value) else "–" for value in rates(sums)]
    low, high = interval(columns, draws)
    ends = "–" if np.isnan(low) else f"{low:.3f}–{high:.3f}"
    coded, found, said, backed = (int(value) for value in sums)
    print(f"{name:30}{coded:7}{found:7}{said:7}{backed:8}{shown[0]:>8}{shown[1]:>8}{shown[2]:>7}  {ends}")


def print_normal(reports: Sequence[Report]) -> None:
    """How many of the reports coded as normal are read as normal, and what is read in the others."""
    normal = [report for report in reports if report.codes == (NORMAL,)]
    if not normal:
        print("no report is coded as normal")
        return
    heavy = {row.name for row in OBSERVATIONS.values() if row.chexpert in CHEXPERT_14 and row.group is not Group.DEVICE}
    clean, fair = (sum(not report.read & names for report in normal) for names in (set(OBSERVATIONS), heavy))
    print(
        f"coded as normal: {len(normal)} reports; nothing read as present in {clean} ({clean / len(normal):.1%}), "
        f"nothing that CheXpert names, devices apart, in {fair} ({fair / len(normal):.1%})"
    )
    said = Counter(name for report in normal for name in report.read)
    print("read in the rest:", ", ".join(f"{name} {n}" for name, n in said.most_common(15)) or "nothing")


def print_disagreements(reports: Sequence[Report], n: int, seed: int) -> None:
    """Random reports with a code that is not found or a reading that no code backs."""
    differing = [report for report in reports if report.missed or report.unbacked]
    order = generator(seed, "openi", "disagreements").permutation(len(differing))[:n]
    print(f"\n{len(differing)} of {len(reports)} reports differ; {len(order)} of them:")
    for index in order:
        report = differing[index]
        print(f"\n--- {report.id}\n{report.text}\ncodes: {'; '.join(report.codes)}")
        for meaning in report.missed:
            code = " + ".join([meaning.heading, *sorted(meaning.qualifiers)])
            print(f"  not read: {' | '.join(meaning.accepts[:4])}  ({code})")
        for finding in report.reading:
            if finding.present and finding.observation in report.unbacked and finding.span:
                words = report.text[slice(*finding.span)]
                print(f"  not coded: {finding.observation} ({finding.certainty}) from “{words}”")


def main() -> None:
    """Read, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="folder with indiana_reports.csv")
    parser.add_argument("--disagreements", type=int, default=0, metavar="N", help="print N random reports that differ")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    try:
        rows = table()
        reports = load(options.root, rows)
    except CxrlabError as error:
        parser.exit(1, f"{error}\n")
    print(f"{len(reports)} reports with text and codes")
    print_table(reports, rows, options.seed)
    print_normal(reports)
    if options.disagreements:
        print_disagreements(reports, options.disagreements, options.seed)


if __name__ == "__main__":
    main()

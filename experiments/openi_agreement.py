"""Agreement of the rule-based reader with the MeSH codes of Open-I.

    python experiments/openi_agreement.py --root OPENI [--disagreements 50 --seed 3]

OPENI is a corpus imported with `cxrlab data import openi`, or the downloaded folder itself in either of
its forms. Findings and impression of each report are read as one text. Observations read as present, hedged or
not, are compared with the report's codes by the table `openi_codes.txt`. Reports without codes or without both
sections are counted and left out. `--disagreements` prints random reports that differ; `--markdown` prints the
table of docs/results.md. A minute.

Columns: reports with a code of this observation; of these, reports in which the reader finds an accepted
observation (recall); reports in which it is read; of these, reports with a code that accepts it (precision). The
interval is of F1, by bootstrap over reports.

Limits. The codes are no truth on the image or the text: an indexer leaves out what seems small beside
the impression (old fractures, devices, degenerative change), writes the sign or the diagnosis where a
report gives both, codes hedged and certain alike and nothing that is absent, and worked from text in
which the masked words were still readable. So a low precision may be the codes' and a low recall the
masks'; the share of each was found by reading disagreements.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS, Group, observation
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.importing import Imported
from cxrlab.data.sources.openi import plan
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
        accepts: Observations that match the code; the first names the row.
        required: Whether the reader should find one of them.
    """

    heading: str
    qualifiers: frozenset[str]
    accepts: tuple[str, ...]
    required: bool


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
        """Required meanings without an accepted observation."""
        return [meaning for meaning in self.meanings if meaning.required and not self.read & set(meaning.accepts)]

    @cached_property
    def unbacked(self) -> set[str]:
        """Observations read without a code that accepts them."""
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
        required = bool(right.strip()) and not right.strip().startswith("?")
        names = [name for name in right.strip().lstrip("? ").split(" | ") if name]
        names = [name for given in names for name in (DEVICES if given == "DEVICES" else [given])]
        accepts = tuple(observation(name).name for name in dict.fromkeys(names))
        for head in heads.split("; "):
            heading, *qualifiers = head.lower().split(" + ")
            rows.append(Meaning(heading, frozenset(qualifiers), accepts, required))
    return rows


def meaning_of(code: str, rows: Sequence[Meaning]) -> Meaning | None:
    """The first row that the code fits, None where there is none."""
    heading, *rest = (" ".join(part.split()).lower() for part in code.split("/"))
    return next((row for row in rows if row.heading in (heading, "*") and row.qualifiers <= set(rest)), None)


@dataclass(frozen=True)
class Loaded:
    """The reports that can be compared, and how many cannot: not indexed, or without findings and impression."""

    reports: tuple[Report, ...]
    not_indexed: int
    without_text: int

    @property
    def all(self) -> int:
        """Reports of the source."""
        return len(self.reports) + self.not_indexed + self.without_text


def load(root: Path, rows: Sequence[Meaning]) -> Loaded:
    """Every indexed report with a text; the others are counted."""
    reports, not_indexed, without_text = [], 0, 0
    for study in studies(root):
        sections = study.sections
        text = " ".join(part for part in (sections.findings, sections.impression) if part) if sections else ""
        codes = tuple(study.extra.get("mesh", ()))
        if not codes or NOT_INDEXED in codes:
            not_indexed += 1
        elif not text:
            without_text += 1
        else:
            found = {code: meaning_of(code, rows) for code in codes if code != NORMAL}
            known = tuple(meaning for meaning in found.values() if meaning)
            unknown = tuple(code for code, meaning in found.items() if not meaning)
            reports.append(Report(study.id, text, codes, known, unknown, read(text)))
    if not reports:
        raise DataError(f"{root} has no indexed report with a text. Give a folder of Open-I with --root.")
    return Loaded(tuple(reports), not_indexed, without_text)


def studies(root: Path) -> Iterator[Study]:
    """The studies of an imported corpus, or of a downloaded folder, which is read but not written anywhere."""
    if (root / STUDIES).is_file():
        yield from load_corpus(root)
        return
    source = plan(ImportConfig(root))
    for item in source.items:
        answer = source.read(item)
        if isinstance(answer, Imported):
            yield answer.study


def counts(reports: Sequence[Report], names: Set[str]) -> NDArray[np.float64]:
    """[reports, 4] of 0 and 1 for observations taken as one: coded, coded and found, read, read and backed."""
    out = np.zeros((len(reports), 4))
    for line, report in zip(out, reports, strict=True):
        required = [meaning for meaning in report.meanings if meaning.required and meaning.accepts[0] in names]
        line[0], line[1] = bool(required), bool(required) and all(meaning not in report.missed for meaning in required)
        line[2] = bool(names & report.read)
        line[3] = bool(names & (report.read - report.unbacked))
    return out


def normal_counts(reports: Sequence[Report]) -> NDArray[np.float64]:
    """The same four for CheXpert's No Finding against the code of a normal report."""
    coded = np.array([report.codes == (NORMAL,) for report in reports])
    said = np.array([chexpert_labels(report.reading, complete=False).get("No Finding") == 1 for report in reports])
    return np.stack([coded, coded & said, said, coded & said], axis=1).astype(np.float64)


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
    """The counts of every observation in the table of codes, in the order of the vocabulary."""
    spoken = {name for row in rows for name in row.accepts}
    return {name: counts(reports, {name}) for name in OBSERVATIONS if name in spoken}


def label_counts(reports: Sequence[Report]) -> dict[str, NDArray[np.float64]]:
    """The counts of the fourteen labels of CheXpert, the observations of a label taken as one."""
    members = {label: {row.name for row in OBSERVATIONS.values() if row.chexpert == label} for label in CHEXPERT_14}
    found = {label: counts(reports, names) for label, names in members.items() if names}
    return {**found, "No Finding": normal_counts(reports)}


def print_table(reports: Sequence[Report], rows: Sequence[Meaning], seed: int) -> None:
    """One line per observation, then all of them together."""
    columns, draws = all_counts(reports, rows), resamples(len(reports), seed)
    print(f"{'observation':30}{'coded':>7}{'found':>7}{'read':>7}{'backed':>8}{'prec.':>8}{'recall':>8}{'F1':>7}  95 %")
    for name, own in columns.items():
        print_line(name, own, draws)
    print_line("all together (micro)", sum(columns.values(), np.zeros((len(reports), 4))), draws)
    silent = Counter(name for report in reports for name in report.read - set(columns))
    print("read, but without a code of any kind:", ", ".join(f"{a} {n}" for a, n in silent.most_common()) or "nothing")
    unknown = Counter(code for report in reports for code in report.unknown)
    print(f"codes without a row in the table: {sum(unknown.values())}")


def print_markdown(reports: Sequence[Report], rows: Sequence[Meaning], seed: int) -> None:
    """Two Markdown tables, the most coded first: labels of CheXpert, and coded observations."""
    columns, draws = all_counts(reports, rows), resamples(len(reports), seed)
    total = {"all together (micro)": sum(columns.values(), np.zeros((len(reports), 4)))}
    for first, table in (("label", label_counts(reports)), ("observation", columns)):
        coded = sorted(table.items(), key=lambda row: -row[1][:, 0].sum())
        print(f"\n| {first} | coded | recall | read | precision | F1 | 95 % |\n|---|--:|--:|--:|--:|--:|---|")
        for name, own in [*coded, *(total.items() if table is columns else ())]:
            if own[:, 0].any():
                print_row(name, own, draws)
    print()


def print_row(name: str, columns: NDArray[np.float64], draws: NDArray[np.float64]) -> None:
    """One row of such a table; a dash where nothing can be divided."""
    sums, (low, high) = columns.sum(axis=0), interval(columns, draws)
    precision, recall, f1 = (f"{float(value):.3f}" if not np.isnan(value) else "–" for value in rates(sums))
    ends = "–" if np.isnan(low) else f"{low:.3f}–{high:.3f}"
    print(f"| {name} | {int(sums[0])} | {recall} | {int(sums[2])} | {precision} | {f1} | {ends} |")


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
    parser.add_argument("--root", type=Path, required=True, help="imported corpus or downloaded folder")
    parser.add_argument("--markdown", action="store_true", help="print the table as a page has it")
    parser.add_argument("--disagreements", type=int, default=0, metavar="N", help="print N random reports that differ")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    try:
        rows = table()
        loaded = load(options.root, rows)
    except CxrlabError as error:
        parser.exit(1, f"{error}\n")
    reports = loaded.reports
    print(
        f"{loaded.all} reports: {len(reports)} with text and codes, {loaded.not_indexed} not indexed, "
        f"{loaded.without_text} without findings and impression"
    )
    (print_markdown if options.markdown else print_table)(reports, rows, options.seed)
    print_normal(reports)
    if options.disagreements:
        print_disagreements(reports, options.disagreements, options.seed)


if __name__ == "__main__":
    main()

"""How long does the reader take a report, beside negspaCy on the same texts in the same run?

    python benchmarks/reader.py [--n 500]

The texts are narrated; with CXRLAB_REAL_DATA set, as many Open-I reports are timed too. negspaCy finds eight
words and whether they are negated, and is faster; the reader finds 70 observations with side, place, degree,
size, change and tip. Where negspaCy cannot be imported, the line says so.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

from cxrlab.findings.cases import draw_patient
from cxrlab.findings.narrator import narrate
from cxrlab.findings.reader import read

PROMISED_MS = 1.0
SEED = 11
TERMS = ("effusion", "pneumothorax", "consolidation", "opacity", "atelectasis", "edema", "cardiomegaly", "fracture")


def narrated() -> Iterator[str]:
    """Narrated findings sections without end, both lexicons in turn."""
    for number in count():
        for visit in draw_patient(SEED, f"p{number}").visits:
            yield narrate(visit, SEED, f"{number}-{visit.number}", "AB"[number % 2]).report.findings or ""


def openi() -> list[str]:
    """Open-I reports, empty where the environment names no real data."""
    path = Path(os.environ.get("CXRLAB_REAL_DATA", "")) / "openi" / "indiana_reports.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [f"{row['findings']} {row['impression']}".strip() for row in csv.DictReader(file)]


def ms(work: Callable[[str], object], texts: list[str]) -> float:
    """Milliseconds a text on one core, the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in texts:
            work(text)
        best = min(best, time.process_time() - start)
    return 1000 * best / len(texts)


def peer() -> Callable[[str], object] | None:
    """The peer: negspaCy on a blank pipeline, or None where it is not installed."""
    try:
        import spacy
        from negspacy.negation import Negex  # noqa: F401  (registers the component)
    except ImportError:
        return None
    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "FINDING", "pattern": term} for term in TERMS])
    pipeline.add_pipe("negex", config={"ent_types": ["FINDING"]})
    return pipeline


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=500)
    args = parser.parse_args()
    read("The lungs are clear.")  # the tables are put together once
    other = peer()
    corpora = {"narrated": list(islice(narrated(), args.n)), "Open-I": openi()[: args.n]}
    print(f"{'texts':10s} {'n':>6s} {'words':>6s} {'ms ours':>9s} {'ms negspaCy':>12s} {'times as fast':>14s}")
    for name, texts in corpora.items():
        if not texts:
            print(f"{name:10s} not measured: CXRLAB_REAL_DATA names no folder with {name}")
            continue
        words = sum(len(text.split()) for text in texts) / len(texts)
        ours = ms(read, texts)
        theirs = ms(other, texts) if other else float("nan")
        print(f"{name:10s} {len(texts):6d} {words:6.1f} {ours:9.3f} {theirs:12.3f} {theirs / ours:14.1f}")
    if other is None:
        print("negspaCy is not installed here: pip install negspacy, in an environment of its own")
    print(f"promised: at most {PROMISED_MS} ms a report")


if __name__ == "__main__":
    main()

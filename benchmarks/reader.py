"""Time per report of the rule-based reader, compared with negspaCy on the same texts.

    python benchmarks/reader.py [--n 500]

The texts are generated; if CXRLAB_REAL_DATA is set, as many Open-I reports are measured too. negspaCy finds eight terms
and their negation, and is faster. The reader finds 70 observations with side, location, severity, size, change and tip
position. negspaCy is optional.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

from cxrlab.findings.narrator import narrate
from cxrlab.findings.reader import read
from cxrlab.findings.simulated_patients import draw_patient

TARGET_MS = 1.0
SEED = 11
TERMS = ("effusion", "pneumothorax", "consolidation", "opacity", "atelectasis", "edema", "cardiomegaly", "fracture")


def narrated() -> Iterator[str]:
    """Endless generated findings sections, from both lexicons in turn."""
    for number in count():
        for visit in draw_patient(SEED, f"p{number}").visits:
            yield narrate(visit, SEED, f"{number}-{visit.number}", "AB"[number % 2]).report.findings or ""


def openi() -> list[str]:
    """Open-I reports; empty if CXRLAB_REAL_DATA is not set."""
    path = Path(os.environ.get("CXRLAB_REAL_DATA", "")) / "openi" / "indiana_reports.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [f"{row['findings']} {row['impression']}".strip() for row in csv.DictReader(file)]


def ms(work: Callable[[str], object], texts: list[str]) -> float:
    """Milliseconds per text on one core, the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in texts:
            work(text)
        best = min(best, time.process_time() - start)
    return 1000 * best / len(texts)


def negspacy() -> Callable[[str], object] | None:
    """NegspaCy on a blank pipeline, or None if it is not installed."""
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
    read("The lungs are clear.")  # builds the tables before the measurement
    other = negspacy()
    corpora = {"narrated": list(islice(narrated(), args.n)), "Open-I": openi()[: args.n]}
    print(f"{'texts':10s} {'n':>6s} {'words':>6s} {'cxrlab (ms)':>12s} {'negspaCy (ms)':>14s} {'ratio':>7s}")
    for name, texts in corpora.items():
        if not texts:
            print(f"{name:10s} not measured: set CXRLAB_REAL_DATA to a folder with {name}")
            continue
        words = sum(len(text.split()) for text in texts) / len(texts)
        reader_ms = ms(read, texts)
        other_ms = ms(other, texts) if other else float("nan")
        print(f"{name:10s} {len(texts):6d} {words:6.1f} {reader_ms:12.3f} {other_ms:14.3f} {other_ms / reader_ms:7.1f}")
    if other is None:
        print("negspaCy is not installed: pip install negspacy, in a separate environment")
    print(f"target: at most {TARGET_MS} ms per report")


if __name__ == "__main__":
    main()

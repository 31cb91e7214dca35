"""How long does the section parser take a report, and does time grow with the length of a text alone?

    python benchmarks/sections.py [--n 400]

Reports are narrated phantoms as a hospital prints them. The peer is one plain pattern that finds capital headers and
nothing else: what the rest costs. Beneath, texts made of what looks like headers, at a length and at eight times that
length: a parser without a quadratic rule takes about eight times as long.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable

from cxrlab.data.export import printed
from cxrlab.data.sections import parse
from cxrlab.findings.cases import draw_patient
from cxrlab.findings.narrator import narrate

SEED = 11
LENGTH, TIMES = 12_000, 8
HOSTILE = ("a:", "FINDINGS: ", "ADDENDUM:\n", "WET READ: x\nIMPRESSION: y\n", " ", "_", "<b ", "(")
PLAIN = re.compile(r"^ ([A-Z ()/,-]+):", re.MULTILINE)


def reports(n: int) -> list[str]:
    """Printed reports of phantoms."""
    found: list[str] = []
    number = 0
    while len(found) < n:
        for visit in draw_patient(SEED, f"p{number}").visits:
            found.append(printed(narrate(visit, SEED, f"{number}-{visit.number}", "A").report))
        number += 1
    return found[:n]


def seconds(work: Callable[[str], object], texts: Iterable[str]) -> float:
    """Processor seconds for all texts, the best of three rounds."""
    several, best = list(texts), float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in several:
            work(text)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Print the time a report beside the peer's, and the growth for hostile texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400, help="reports")
    n = parser.parse_args().n
    texts = reports(n)
    ours, peer = seconds(parse, texts), seconds(PLAIN.findall, texts)
    print(f"{1000 * ours / n:.3f} ms a report, {1000 * peer / n:.4f} ms for the plain pattern: {ours / peer:.0f} times")
    for piece in HOSTILE:
        short, long = (piece * (length // len(piece)) for length in (LENGTH, TIMES * LENGTH))
        once, eight = seconds(parse, [short]), seconds(parse, [long])
        print(f"{piece!r:<34} {eight / max(once, 1e-6):5.1f} times as long for {TIMES} times the text")


if __name__ == "__main__":
    main()

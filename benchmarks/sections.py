"""Time per report of the section parser, and how it grows with the length of the text.

    python benchmarks/sections.py [--n 400]

Reports are generated and printed as a hospital prints them. For comparison, a single regular expression finds capital
headers only. Then the parser reads adversarial texts of header-like pieces, at one length and at eight times this
length: a parser without quadratic rules takes about eight times as long.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable

from cxrlab.data.export import printed
from cxrlab.data.sections import parse
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient

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
    """CPU seconds for all texts, the best of three rounds."""
    all_texts, best = list(texts), float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in all_texts:
            work(text)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Print the time per report of both, and the growth for adversarial texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400, help="reports")
    n = parser.parse_args().n
    texts = reports(n)
    parser_s, pattern_s = seconds(parse, texts), seconds(PLAIN.findall, texts)
    print(
        f"{1000 * parser_s / n:.3f} ms per report, {1000 * pattern_s / n:.4f} ms for the plain pattern; "
        f"ratio {parser_s / pattern_s:.0f}"
    )
    for piece in HOSTILE:
        short, long = (piece * (length // len(piece)) for length in (LENGTH, TIMES * LENGTH))
        once, eight = seconds(parse, [short]), seconds(parse, [long])
        print(f"{piece!r:<34} {eight / max(once, 1e-6):5.1f} times the time for {TIMES} times the text")


if __name__ == "__main__":
    main()

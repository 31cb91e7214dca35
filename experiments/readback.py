"""F1 of the rule-based reader on generated reports, whose findings are known.

    python experiments/readback.py [--n 5000] [--lexicon B] [--seed 1] [--errors 10]

Draws patients, narrates each visit in one lexicon and reads the findings section back. A finding counts as
(observation, side where it has sides, severity where it has degrees); counts are multisets per report, F1 is
micro-averaged. Reader and narrator share no phrase list, so this measures the tables and not a round trip.
One core, about ten seconds for 5,000 reports.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.findings.narrator import Narration, narrate
from cxrlab.findings.reader import read
from cxrlab.findings.simulated_patients import draw_patient

Key = tuple[str, str | None, str | None]
ATTRIBUTES = ("certainty", "location", "size_mm", "change", "tip", "tip_mm")


def narrations(seed: int, lexicon: str) -> Iterator[Narration]:
    """Narrated visits without end."""
    for number in count():
        for visit in draw_patient(seed, f"p{number}").visits:
            yield narrate(visit, seed, f"p{number}-{visit.number}", lexicon)


def key(finding: Finding) -> Key:
    """What two findings must agree on: kind, and side and degree where the vocabulary asks for them."""
    row = OBSERVATIONS[finding.observation]
    return finding.observation, finding.side if row.sided else None, finding.severity if row.graded else None


def present(findings: Iterable[Finding]) -> Counter[Key]:
    """Present findings of a report, counted."""
    return Counter(key(finding) for finding in findings if finding.present)


def f1(hits: int, stated: int, found: int) -> float:
    """F1 from counts; NaN if both sides are empty."""
    return 2 * hits / (stated + found) if stated + found else float("nan")


def agreement(truth: Finding, found: Iterable[Finding]) -> dict[str, bool]:
    """Of the best counterpart: whether each attribute that either side states is the same."""
    same = [other for other in found if other.present and key(other) == key(truth)]
    rated = [{name: getattr(truth, name) == getattr(other, name) for name in ATTRIBUTES} for other in same]
    if not rated:
        return {}
    place = max(range(len(same)), key=lambda index: sum(rated[index].values()))
    stated = [name for name in ATTRIBUTES if getattr(truth, name) is not None]
    return {name: rated[place][name] for name in stated}


def main() -> None:
    """Read back, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--lexicon", default="B")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--errors", type=int, default=10)
    args = parser.parse_args()
    truth_counts, found, hits = Counter[str](), Counter[str](), Counter[str]()
    right, stated, wrong = Counter[str](), Counter[str](), Counter[tuple[str, Key]]()
    for narration in islice(narrations(args.seed, args.lexicon), args.n):
        reading = read(narration.report.findings)
        truth, seen = present(narration.findings), present(reading)
        for counts, keys in ((truth_counts, truth), (found, seen), (hits, truth & seen)):
            counts.update(name for name, _, _ in keys.elements())
        wrong.update([("missed", one) for one in (truth - seen).elements()])
        wrong.update([("invented", one) for one in (seen - truth).elements()])
        for finding in filter(lambda one: one.present, narration.findings):
            for name, good in agreement(finding, reading).items():
                stated[name] += 1
                right[name] += good
    print(f"{args.n} reports, lexicon {args.lexicon}, seed {args.seed}")
    print(f"{'observation':28s} {'truth':>6s} {'read':>6s} {'both':>6s} {'F1':>7s}")
    for name in sorted(truth_counts | found, key=lambda one: -truth_counts[one]):
        score = f1(hits[name], truth_counts[name], found[name])
        print(f"{name:28s} {truth_counts[name]:6d} {found[name]:6d} {hits[name]:6d} {score:7.4f}")
    print(
        f"{'all':28s} {truth_counts.total():6d} {found.total():6d} {hits.total():6d} "
        f"{f1(hits.total(), truth_counts.total(), found.total()):7.4f}"
    )
    for name in ATTRIBUTES:
        if stated[name]:
            print(f"{name} of those found: {right[name]} of {stated[name]} the same")
    for (what, one), number in wrong.most_common(args.errors):
        print(f"{number:5d} {what}: {' '.join(str(part) for part in one if part is not None)}")


if __name__ == "__main__":
    main()

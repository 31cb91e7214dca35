"""Does a suspect write with our mark? A test on its words alone.

The unit is a context: what a sentence is about. A suspect that writes a sentence a hundred times has chosen its form
once, so each context counts once, with the form that the suspect uses most in it. For a key that the suspect's makers
do not know, each context then hits the keyed form with probability gamma, independently of the others, whatever they
write; the binomial distribution is exact, and no sample of innocent text is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cxrlab.extraction.defence.sentences import pieces
from cxrlab.extraction.defence.watermark import keyed_way
from cxrlab.extraction.defence.wordings import WAYS, slot
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import regularised_beta

GAMMA = 1 / WAYS
_MOST = 100_000  # contexts that are tried before a rate is called too near to chance


def chosen_forms(reports: Iterable[str]) -> dict[str, Counter[int]]:
    """Context → how often each form was used in it; sentences in none of our forms do not count."""
    found: dict[str, Counter[int]] = {}
    for report in reports:
        for piece in pieces(read(report)):
            choice = slot(piece)
            if choice is not None and choice.way is not None:
                found.setdefault(choice.context, Counter())[choice.way] += 1
    return found


def watermark_test(reports: Sequence[str], key: bytes) -> dict[str, Any]:
    """One-sided exact binomial test that a suspect uses the keyed forms more often than by chance.

    Args:
        reports: What the suspect wrote.
        key: Our secret.

    Returns:
        z, p, n_choices (contexts), green (contexts in which the keyed form leads), gamma, rate, reports and sentences.
        Without a context z is None and p is 1.
    """
    return evidence_in(chosen_forms(reports), key, len(reports))


def evidence_in(forms: dict[str, Counter[int]], key: bytes, reports: int) -> dict[str, Any]:
    """The test on forms that were counted before, so that many keys can be tried on one text."""
    n = len(forms)
    green = sum(_leading(counts) == keyed_way(key, context) for context, counts in forms.items())
    z = (green - GAMMA * n) / math.sqrt(n * GAMMA * (1 - GAMMA)) if n else None
    return {
        "z": z,
        "p": binomial_tail(green, n, GAMMA),
        "n_choices": n,
        "green": green,
        "gamma": GAMMA,
        "rate": green / n if n else None,
        "reports": reports,
        "sentences": sum(sum(counts.values()) for counts in forms.values()),
        "unit": "contexts, each with the form that leads in it",
    }


def _leading(counts: Counter[int]) -> int:
    """The most frequent form; of equal ones the first in the table, which the key has no part in."""
    return min(counts, key=lambda way: (-counts[way], way))


def binomial_tail(successes: int, n: int, chance: float) -> float:
    """P(X >= successes) for n independent trials of this chance, 0 < chance < 1."""
    if successes <= 0:
        return 1.0
    return 0.0 if successes > n else regularised_beta(chance, successes, n - successes + 1)


def queries_needed(rate: float, gamma: float = GAMMA, alpha: float = 0.01, power: float = 0.9) -> int | None:
    """Contexts that a test needs; `reports_for` tells how many queries to the suspect give that many.

    Args:
        rate: Share of contexts in which the suspect writes the keyed form.
        gamma: The same by chance.
        alpha: Largest p at which the suspect is called a copy.
        power: Wanted probability that a copy of this rate is called one.

    Returns:
        The least number; None where the rate is not above chance, or too near to it.
    """
    if rate <= gamma:
        return None
    critical = 0
    for n in range(1, _MOST):
        while binomial_tail(critical, n, gamma) > alpha:
            critical += 1
        found = 1.0 if rate >= 1 and critical <= n else binomial_tail(critical, n, min(rate, 1 - 1e-12))
        if found >= power:
            return n
    return None


def reports_for(reports: Sequence[str], contexts: int) -> int | None:
    """Reports of a suspect, in order, until they hold so many contexts; None where all of them hold fewer."""
    seen: set[str] = set()
    for number, report in enumerate(reports, start=1):
        seen.update(chosen_forms([report]))
        if len(seen) >= contexts:
            return number
    return None

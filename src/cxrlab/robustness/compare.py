"""Two models under the same conditions: who is better when attacked, who loses more, and whether that is chance.

Each model faces the attacks that were made for it. A model that is better to begin with can lose more and still be
better, so both the perturbed values and the drops are compared; and where the two are not equal on clean images, also
what becomes of the answers that both had right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.flips import flipped_answers, flipped_reports
from cxrlab.robustness.outcomes import Audit
from cxrlab.robustness.paired_tests import ALPHA, PairedTests, correct, swaps_for
from cxrlab.robustness.quantities import HEADLINE, Quantity, change, ends, right
from cxrlab.robustness.tables import Flags, Table
from cxrlab.robustness.transfer import transfer

EQUAL_BY = ("findings.f1", "asked.accuracy")
# An interval of the difference on clean images that lies within this: the two start from the same place.
EQUAL_MARGIN = 0.02


def compare_models(audit: Audit, a: str, b: str, names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    """Model b against model a; see `compare_all`."""
    found: dict[str, Any] = compare_all(audit, a, [b], names)[f"{a}:{b}"]
    return found


def compare_all(audit: Audit, a: str, others: Sequence[str], names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    """Each other model against the first, as `a:b` → comparison; every test of all of them is one family.

    Args:
        audit: The evidence.
        a: Key of the model under audit.
        others: Keys of those that it is compared with.
        names: Quantities that are tested.
    """
    families = {f"{a}:{b}": PairedTests() for b in others}
    found = {key: _compared(audit, a, b, names, families[key]) for key, b in zip(families, others, strict=True)}
    swaps = swaps_for(sum(len(tests.swappable) + len(tests.others) for tests in families.values()))
    tested: list[dict[str, Any]] = []
    for key, tests in families.items():
        rng = generator(audit.seed, "robustness", "swaps", key)
        tested += tests.swap(audit.resamples.clusters, swaps, rng)
    correct(tested)
    for one in found.values():
        one |= {"tests": len(tested), "swaps": swaps, "alpha": ALPHA}
    return found


def _compared(audit: Audit, a: str, b: str, names: Sequence[str], tests: PairedTests) -> dict[str, Any]:
    mine, yours = audit.tables(a), audit.tables(b)
    shared = [condition for condition in mine if condition in yours]
    conditions = {one: _under(audit, mine[one], yours[one], names, tests) for one in shared}
    clean = _clean_difference(audit, a, b)
    equal = bool(clean) and all(_equal(one) for one in clean.values())
    return {
        "n": len(audit.evidence.studies),
        "patients": audit.resamples.clusters.count,
        "equal_clean": equal,
        "clean": clean,
        "sentence": _sentence(clean, equal),
        "conditions": conditions,
        "flips": {one: _flips(audit, mine[one], yours[one], tests) for one in shared},
        "matched": None if equal else _matched(audit, a, b, shared, names),
        "transfer": transfer(audit, a, b),
    }


def _under(audit: Audit, mine: Table, yours: Table, names: Sequence[str], tests: PairedTests) -> dict[str, Any]:
    """One condition: of each quantity the perturbed values and, where clean images have it, the drops."""
    now = [audit.outcome(table).image for table in (mine, yours)]
    before = [audit.clean(table.model).image for table in (mine, yours)]
    told = {name: tests.difference(now[0][name], now[1][name]) for name in names}
    for name in names:
        if name in before[0]:
            told[name]["drop"] = tests.drops((before[0][name], now[0][name]), (before[1][name], now[1][name]))
    return told


def _flips(audit: Audit, mine: Table, yours: Table, tests: PairedTests) -> dict[str, Any]:
    """Studies that turn under one model only: their reports, or any answer where the two write no reports."""
    reports = [_turned_report(audit, table) for table in (mine, yours)]
    if not np.isnan(reports[0] + reports[1]).all():
        return tests.flips("reports", *reports)
    return tests.flips("answers", *(_turned_answer(audit, table) for table in (mine, yours)))


def _turned_report(audit: Audit, table: Table) -> Matrix:
    return flipped_reports(table.image, audit.evidence.clean(table.model).image, audit.scores)


def _turned_answer(audit: Audit, table: Table) -> Matrix:
    """1 where any answer of the study turned."""
    cells = flipped_answers(table.image, audit.evidence.clean(table.model).image, audit.evidence.truth)
    return np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 1).any(axis=1))


def _clean_difference(audit: Audit, a: str, b: str) -> dict[str, dict[str, float]]:
    """What b has more than a on clean images, of what both have."""
    one, two = audit.clean(a).image, audit.clean(b).image
    return {name: ends(change(two[name], one[name])) for name in EQUAL_BY if one[name].n and two[name].n}


def _equal(found: dict[str, float]) -> bool:
    """Whether the whole interval lies within the margin; False where there is no interval."""
    return -EQUAL_MARGIN < found["low"] and found["high"] < EQUAL_MARGIN


def _sentence(clean: dict[str, dict[str, float]], equal: bool) -> str:
    if not clean:
        return "Whether the two are equal on clean images cannot be told: they share no quantity there."
    told = "; ".join(
        f"{name} differs by {one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" for name, one in clean.items()
    )
    if equal:
        return f"On clean images the two are equal within {EQUAL_MARGIN}: {told}."
    return (
        f"On clean images the two are not shown to be equal within {EQUAL_MARGIN}: {told}. "
        "Compare the drops, and what both have right on the clean image."
    )


def _matched(audit: Audit, a: str, b: str, shared: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The answers and reports that both have right on the clean image (reports: no significant error), once perturbed.

    Both start from the same place there: every answer is right. No tests are made of it; see the intervals.
    """
    pairs, studies = _both_right(audit, a, b)
    found = {}
    for condition in shared:
        sides = []
        for model in (a, b):
            said, clean = audit.tables(model)[condition].image, audit.evidence.clean(model).image
            sides.append(audit.measured(said.only(pairs, studies), clean.only(pairs, studies), names))
        found[condition] = {name: _beside(one, sides[1][name]) for name, one in sides[0].items()}
    return {"pairs": int(pairs.sum()), "studies": int(studies.sum()), "conditions": found}


def _beside(a: Quantity, b: Quantity) -> dict[str, Any]:
    gap = ends(change(b, a))
    return {"a": a.to_json(), "b": b.to_json(), "difference": gap["value"], "low": gap["low"], "high": gap["high"]}


def _both_right(audit: Audit, a: str, b: str) -> tuple[Flags, Flags]:
    """Pairs of study and label [N, L], and studies [N], that both models have right on the clean image."""
    images = [audit.evidence.clean(model).image for model in (a, b)]
    pairs = np.logical_and.reduce([right(image.probs, audit.evidence.truth) == 1 for image in images])
    studies = np.logical_and.reduce([audit.scores.errors(image) == 0 for image in images])
    return pairs, studies

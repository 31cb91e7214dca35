"""What a changed image turns round: the findings of a report, its verdict, its sides, and answers of yes and no.

A flip is measured against what the same model said of the clean image, right or wrong. Two reports agree when they
name the same observations as present. A report is normal when it speaks of the image and names nothing but devices and
the incidental; one that says nothing of an image (empty, or beyond understanding) is neither normal nor abnormal.
"""

from __future__ import annotations

import numpy as np

from cxrlab.metrics.tally import Matrix, Tally, mean_tally
from cxrlab.robustness.quantities import card, mean_of_cells
from cxrlab.robustness.scored_reports import ScoredReports
from cxrlab.robustness.tables import Flags, Said

FLIP_RATE = "flip_rate"
_UNDEFINED = "studies without a report on either image"


def flip_tallies(said: Said, clean: Said, truth: Matrix, scores: ScoredReports) -> dict[str, Tally]:
    """Every kind of flip, and the significant errors that were added.

    Args:
        said: Of the changed images.
        clean: Of the clean ones.
        truth: [N, L]; flips of answers are counted where the truth is known.
        scores: What the reports say.
    """
    added = scores.errors(said) - scores.errors(clean)
    return {
        **_report_flips(said, clean, scores),
        **_answer_flips(said, clean, truth),
        "errors.added": mean_tally(card("errors.added", _UNDEFINED), added),
    }


def changed_findings(said: Said, clean: Said, scores: ScoredReports) -> Matrix:
    """Observations that only one of the two reports has, not-a-number without two reports, [N]."""
    both, contents = said.written & clean.written, scores.contents
    now, before = np.where(both, said.reports, 0), np.where(both, clean.reports, 0)
    if not both.any():
        return np.full(len(both), np.nan)
    return np.where(both, (contents.present[now] != contents.present[before]).sum(axis=1), np.nan)


def flipped_reports(said: Said, clean: Said, scores: ScoredReports) -> Matrix:
    """1 where the present observations differ, 0 where not, not-a-number without two reports, [N]."""
    changed = changed_findings(said, clean, scores)
    return np.where(np.isnan(changed), np.nan, changed > 0)


def flipped_answers(said: Said, clean: Said, truth: Matrix) -> Matrix:
    """1 where an answer of yes or no turns, 0 where not, not-a-number where it was not asked or is unknown, [N, L]."""
    asked = ~(np.isnan(said.probs) | np.isnan(clean.probs) | np.isnan(truth))
    return np.where(asked, (said.probs > 0.5) != (clean.probs > 0.5), np.nan)


def _report_flips(said: Said, clean: Said, scores: ScoredReports) -> dict[str, Tally]:
    both, contents = said.written & clean.written, scores.contents
    names = ("flips.normal_to_abnormal", "flips.abnormal_to_normal", "flips.side_swapped", "flips.to_silence")
    flipped = {FLIP_RATE: flipped_reports(said, clean, scores)}
    if not both.any():
        return {name: mean_tally(card(name, _UNDEFINED), np.full(len(both), np.nan)) for name in (FLIP_RATE, *names)}
    now, before = np.where(both, said.reports, 0), np.where(both, clean.reports, 0)
    normal, silent = contents.normal, contents.silent
    abnormal = ~normal & ~silent
    swapped = (contents.left[now] & contents.right[before]) | (contents.right[now] & contents.left[before])
    values = (
        _share(abnormal[now], both & normal[before]),
        _share(normal[now], both & abnormal[before]),
        _share(swapped.sum(axis=1) > 0, both),
        _share(silent[now], both & ~silent[before]),
    )
    flipped.update(zip(names, values, strict=True))
    return {name: mean_tally(card(name, _UNDEFINED), column) for name, column in flipped.items()}


def _answer_flips(said: Said, clean: Said, truth: Matrix) -> dict[str, Tally]:
    flipped, yes = flipped_answers(said, clean, truth), clean.probs > 0.5
    return {
        "asked.flips": mean_of_cells("asked.flips", flipped),
        "asked.flips.yes_to_no": mean_of_cells("asked.flips.yes_to_no", np.where(yes, flipped, np.nan)),
        "asked.flips.no_to_yes": mean_of_cells("asked.flips.no_to_yes", np.where(yes, np.nan, flipped)),
    }


def _share(happened: Flags, among: Flags) -> Matrix:
    return np.where(among, happened, np.nan)

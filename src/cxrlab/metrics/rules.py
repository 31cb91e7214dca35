"""One number a report from one comparison: `green:rules`, `crimson:rules` and our own `clinical:rules`.

The first two put the errors that our rules find into the formulas of GREEN and CRIMSON. They are not
those judges: the counts come from the reader and the tables in `findings/`, not from a language model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Certainty, Change, ErrorKind
from cxrlab.findings.significance import Urgency
from cxrlab.metrics.comparison import Comparison, Lone, Match
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Metric, Tally, mean_tally

_UNDEFINED = "pairs whose reference has no word"


def green_score(matched: int, significant: Sequence[int]) -> float:
    """GREEN as published: matched ÷ (matched + significant errors), 0 when nothing matched.

    Args:
        matched: Findings that both reports have.
        significant: Significant errors of each of the six kinds; the others do not enter.
    """
    return matched / (matched + sum(significant)) if matched else 0.0


def green(comparison: Comparison) -> float:
    """GREEN's score of the counts by rule; 1, not the published 0, when nothing matched and nothing is wrong.

    Two normal reports have nothing to match; nothing was there to find and nothing is wrong.
    """
    matched = len(comparison.matches)
    significant = sum(error.significant for error in comparison.errors)
    return green_score(matched, [significant]) if matched or significant else 1.0


CRIMSON_WEIGHT = {
    Urgency.URGENT: 1.0,
    Urgency.ACTIONABLE: 0.5,
    Urgency.NOT_ACTIONABLE: 0.25,
    Urgency.BENIGN: 0.0,
}
CRIMSON_SLIP = {True: 0.5, False: 0.0}


def crimson(comparison: Comparison) -> float:
    """CRIMSON's formula, in (-1, 1], over the abnormal findings and their clinical weights.

    A related name for the thing, which CRIMSON calls unspecific or overinterpreted, is a slip by as much
    as it is not the thing.
    """
    weight = CRIMSON_WEIGHT
    correct = 0.0
    for match in comparison.matches:
        worth, off = weight[match.urgency], sum(CRIMSON_SLIP[slip.significant] for slip in match.slips)
        off += CRIMSON_SLIP[True] * (1.0 - match.credit)
        correct += worth * worth / (worth + off) if worth else 0.0
    named = sum(weight[match.urgency] for match in comparison.matches)
    missed = sum(weight[lone.urgency] for lone in comparison.missing)
    false = sum(weight[lone.urgency] for lone in comparison.invented)
    total = named + missed
    if not total:
        return 1.0 if not false else -false / (1.0 + false)
    score = (correct - false) / total
    if score >= 0:
        return score
    return -(false - correct) / (1.0 + false - correct)


@dataclass(frozen=True)
class Weights:
    """What `clinical:rules` gives and takes; see docs/metrics.md for how the figures were chosen.

    Args:
        finding: Weight of a finding by how much it matters.
        start: Credit that every report begins with, so that one error in a normal report is not the end.
        significant: Weight of a significant slip about a matched finding.
        minor: Weight of another slip.
        vague: Weight of an attribute that the reference gives and the candidate leaves out: less than a wrong one.
        doubt: Weight of a hedge that only one of the two reports has.
        hedged: Factor on a finding that is only possible.
        known: Factor on a finding that is said to be unchanged: somebody has acted on it before.
        untold: Factor on a comparison that is left out; one that points the wrong way misleads.
        echo: Factor on what is lost, or read into the image, by a further word for a matched thing.
    """

    finding: Mapping[Urgency, float] = field(
        default_factory=lambda: {
            Urgency.URGENT: 1.0,
            Urgency.ACTIONABLE: 0.5,
            Urgency.NOT_ACTIONABLE: 0.25,
            Urgency.BENIGN: 0.05,
        }
    )
    start: float = 0.2
    significant: float = 0.5
    minor: float = 0.1
    vague: float = 0.05
    doubt: float = 0.05
    hedged: float = 0.5
    known: float = 0.75
    untold: float = 0.5
    echo: float = 0.5


WEIGHTS = Weights()


def clinical(comparison: Comparison, weights: Weights = WEIGHTS) -> float:
    """(right + start) ÷ (right + start + wrong) in clinical weights, in (0, 1]; 1 for a report without an error."""
    right = wrong = 0.0
    for match in comparison.matches:
        worth, off = _worth(match, weights), _off(match, weights)
        gained = worth * match.credit * worth / (worth + off)
        right += gained
        wrong += worth - gained + _overcall(match, weights)
    for lone in (*comparison.missing, *comparison.invented):
        # A neighbour softens omission and invention alike; squared, so that naming it beats saying nothing.
        wrong += _cost(lone, weights) * (1.0 - lone.nearest) ** 2
    for echo in comparison.echoes:
        wrong += _cost(echo, weights) * (1.0 - echo.nearest) * weights.echo
    wrong += _slip_weight(comparison.unspoken, weights)
    return (right + weights.start) / (right + weights.start + wrong)


def _worth(match: Match, weights: Weights) -> float:
    # A hedge of one report alone does not make the thing smaller; it is a slip of its own.
    hedged = Certainty.POSSIBLE is match.reference.certainty is match.candidate.certainty
    return _weight(match.reference, match.urgency, weights, hedged)


def _weight(finding: Finding, urgency: Urgency, weights: Weights, hedged: bool) -> float:
    known = weights.known if finding.change is Change.UNCHANGED else 1.0
    return weights.finding[urgency] * known * (weights.hedged if hedged else 1.0)


def _overcall(match: Match, weights: Weights) -> float:
    """What a graver name claims beyond the thing, by as much as it is not the thing: an aneurysm for a long aorta."""
    return max(0.0, weights.finding[match.called] - weights.finding[match.urgency]) * (1.0 - match.credit)


def _off(match: Match, weights: Weights) -> float:
    doubted = match.reference.certainty is not match.candidate.certainty
    return _slip_weight(match.slips, weights) + weights.vague * match.vague + weights.doubt * doubted


def _slip_weight(slips: Sequence[ReportError], weights: Weights) -> float:
    def weight(slip: ReportError) -> float:
        untold = weights.untold if slip.kind is ErrorKind.OMITTED_COMPARISON else 1.0
        return untold * (weights.significant if slip.significant else weights.minor)

    return sum(weight(slip) for slip in slips)


def _cost(lone: Lone, weights: Weights) -> float:
    return _weight(lone.finding, lone.urgency, weights, lone.finding.certainty is Certainty.POSSIBLE)


_RULES = {"reader": "rules", "weights": "table"}
_SCORES = (
    (
        green,
        Metric(
            "green:rules",
            "higher",
            (0.0, 1.0),
            1.0,
            _UNDEFINED,
            {"formula": "green", "nothing-to-match": "1", **_RULES},
            "matched findings against significant errors, GREEN's formula",
        ),
    ),
    (
        crimson,
        Metric(
            "crimson:rules",
            "higher",
            (-1.0, 1.0),
            1.0,
            _UNDEFINED,
            {"formula": "crimson", **_RULES},
            "abnormal findings in clinical weights, CRIMSON's formula",
        ),
    ),
    (
        clinical,
        Metric(
            "clinical:rules",
            "higher",
            (0.0, 1.0),
            1.0,
            _UNDEFINED,
            {"formula": "right/(right+wrong)", **_RULES},
            "right against wrong in clinical weights, with credit for related findings",
        ),
    ),
)


class RuleScores:
    """The three scores, each the mean over reports."""

    metrics: Sequence[Metric] = tuple(metric for _, metric in _SCORES)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a score."""
        return [
            mean_tally(metric, [math.nan if c is None else _scored(formula, c) for c in batch.comparisons])
            for formula, metric in _SCORES
        ]


def _scored(formula: Callable[[Comparison], float], comparison: Comparison) -> float:
    """The score, but nothing for a candidate that says nothing: silence is not a normal report."""
    return min(0.0, formula(comparison)) if comparison.silent else formula(comparison)

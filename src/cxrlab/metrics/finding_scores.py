"""Metrics on findings: F1 of the present findings, error counts, and scores by rule.

Findings are merged first, so that repeating one earns nothing. A hedged finding counts as present. Side and severity
are compared only where the observation has them; a side that neither report gives is the same side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import OBSERVATIONS, Certainty, Change, ErrorKind
from cxrlab.findings.significance import Urgency
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally, ratio
from cxrlab.metrics.finding_comparison import Comparison, UnmatchedFinding
from cxrlab.metrics.report_pairs import Batch

Key = Callable[[Finding], tuple[object, ...]]


def _kind(finding: Finding) -> tuple[object, ...]:
    return (finding.observation,)


def _sided(finding: Finding) -> tuple[object, ...]:
    return (finding.observation, finding.side if OBSERVATIONS[finding.observation].sided else None)


def _full(finding: Finding) -> tuple[object, ...]:
    return (*_sided(finding), finding.severity if OBSERVATIONS[finding.observation].graded else None)


_LEVELS: tuple[tuple[str, str, Key], ...] = (
    ("findings.f1", "kind", _kind),
    ("findings.f1.side", "kind+side", _sided),
    ("findings.f1.full", "kind+side+severity", _full),
)


def f1_of(sums: Matrix) -> Matrix:
    """[..., 3] of (true positive, false positive, false negative) → F1; 1 where neither report has a finding."""
    hit, extra, lost = sums[..., 0], sums[..., 1], sums[..., 2]
    return np.where(hit + extra + lost == 0, 1.0, ratio(2 * hit, 2 * hit + extra + lost))


def counted(meant: Sequence[Finding], said: Sequence[Finding], key: Key = _full) -> tuple[int, int, int]:
    """True positives, false positives and false negatives among the present findings of two reports."""
    right = Counter(key(finding) for finding in meant if finding.present)
    found = Counter(key(finding) for finding in said if finding.present)
    hit = (right & found).total()
    return hit, found.total() - hit, right.total() - hit


class FindingsF1:
    """Micro F1 over the findings of all pairs."""

    metrics: Sequence[Metric] = tuple(
        Metric(
            name,
            "higher",
            (0.0, 1.0),
            1.0,
            "pairs whose reference has no word",
            {"match": level, "average": "micro", "hedged": "present", "reader": "rules"},
            about=f"findings right in {level.replace('+', ', ')}",
        )
        for name, level, _ in _LEVELS
    )

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per level; rows are (true positive, false positive, false negative)."""
        defined = np.array([pair.answerable for pair in batch.pairs])
        found = []
        for metric, (_, _, key) in zip(self.metrics, _LEVELS, strict=True):
            pairs = zip(batch.merged_findings, defined, strict=True)
            rows = np.array([counted(*things, key) if ok else (0, 0, 0) for things, ok in pairs])
            found.append(Tally(metric, rows.astype(np.float64), defined, f1_of))
        return found


_CONVENTIONS = {"kinds": "rexval-6", "reader": "rules", "average": "report"}
_UNDEFINED = "pairs whose reference has no word"


def _count(name: str, about: str) -> Metric:
    return Metric(name, "lower", (0.0, math.inf), 0.0, _UNDEFINED, _CONVENTIONS, about)


def _share(name: str, about: str) -> Metric:
    return Metric(name, "higher", (0.0, 1.0), 1.0, _UNDEFINED, _CONVENTIONS, about)


_CELLS = [(kind, weight) for weight in ("significant", "insignificant") for kind in ErrorKind]


class ErrorCounts:
    """Errors per report: all, by significance and by kind."""

    metrics: Sequence[Metric] = (
        _count("errors.total", "errors per report"),
        _count("errors.significant", "errors per report that are likely to change what is done"),
        _share("error-free", "share of reports without an error"),
        _share("error-free.significant", "share of reports without a significant error"),
        *(
            _count(f"errors.{kind.value}.{weight}", f"{kind.value.replace('_', ' ')}, {weight}, per report")
            for kind, weight in _CELLS
        ),
    )
    default = tuple(metric.name for metric in metrics)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per metric; a report that states nothing is not free of errors."""
        rows = np.full((len(batch), len(self.metrics)), np.nan)
        for row, comparison in enumerate(batch.comparisons):
            if comparison is not None:
                errors, speaks = comparison.errors, not comparison.states_nothing
                total, significant = len(errors), sum(error.significant for error in errors)
                cells = [
                    sum(error.kind is kind and error.significant == (weight == "significant") for error in errors)
                    for kind, weight in _CELLS
                ]
                rows[row] = [total, significant, speaks and not total, speaks and not significant, *cells]
        return [mean_tally(metric, rows[:, column]) for column, metric in enumerate(self.metrics)]


def green_score(matched: int, significant: Sequence[int]) -> float:
    """GREEN as published: matched findings ÷ (matched + significant errors of each kind), 0 when nothing matched."""
    return matched / (matched + sum(significant)) if matched else 0.0


def green(comparison: Comparison) -> float:
    """GREEN's score of the counts by rule; 1, not the published 0, for two normal reports with nothing to match."""
    matched = len(comparison.matches)
    significant = sum(error.significant for error in comparison.errors)
    return green_score(matched, [significant]) if matched or significant else 1.0


CRIMSON_WEIGHT = {
    Urgency.URGENT: 1.0,
    Urgency.ACTIONABLE: 0.5,
    Urgency.NOT_ACTIONABLE: 0.25,
    Urgency.BENIGN: 0.0,
}
CRIMSON_MISMATCH = {True: 0.5, False: 0.0}


def crimson(comparison: Comparison) -> float:
    """CRIMSON's formula, in (-1, 1], over the abnormal findings and their clinical weights.

    A related name, which CRIMSON calls unspecific or overinterpreted, is an error in proportion to the missing credit.
    """
    weight = CRIMSON_WEIGHT
    correct = 0.0
    for match in comparison.matches:
        worth, off = weight[match.urgency], sum(CRIMSON_MISMATCH[mismatch.significant] for mismatch in match.mismatches)
        off += CRIMSON_MISMATCH[True] * (1.0 - match.credit)
        correct += worth * worth / (worth + off) if worth else 0.0
    named = sum(weight[match.urgency] for match in comparison.matches)
    missed = sum(weight[unmatched.urgency] for unmatched in comparison.missing)
    false = sum(weight[unmatched.urgency] for unmatched in comparison.invented)
    total = named + missed
    if not total:
        return 1.0 if not false else -false / (1.0 + false)
    score = (correct - false) / total
    if score >= 0:
        return score
    return -(false - correct) / (1.0 + false - correct)


@dataclass(frozen=True)
class Weights:
    """The weights of `clinical:rules`; see docs/metrics.md for how they were chosen."""

    # Weight of a finding by urgency.
    finding: Mapping[Urgency, float] = field(
        default_factory=lambda: {
            Urgency.URGENT: 1.0,
            Urgency.ACTIONABLE: 0.5,
            Urgency.NOT_ACTIONABLE: 0.25,
            Urgency.BENIGN: 0.05,
        }
    )
    start: float = 0.2  # credit that every report begins with, so that one error in a normal report does not score 0
    significant: float = 0.5  # weight of a significant error in an attribute of a matched finding
    minor: float = 0.1  # weight of another error in an attribute
    omitted_attribute: float = 0.05  # weight of an attribute that the candidate alone omits: less than a wrong one
    hedge_mismatch: float = 0.05  # weight of a hedge that only one of the two reports has
    hedged: float = 0.5  # factor on a finding that is only possible
    unchanged: float = 0.75  # factor on an unchanged finding, which has been acted on before
    omitted_comparison: float = 0.5  # factor on an omitted comparison; a wrong one misleads more
    repetition: float = 0.5  # factor on a further word for a matched finding


WEIGHTS = Weights()


def clinical(comparison: Comparison, weights: Weights = WEIGHTS) -> float:
    """(right + start) ÷ (right + start + wrong) in clinical weights, in (0, 1]; 1 for a report without an error."""
    right = wrong = 0.0
    for match in comparison.matches:
        true, stated = match.reference.certainty, match.candidate.certainty
        # A hedge of one report alone does not make the finding smaller; it is an error of its own.
        worth = _weight(match.reference, match.urgency, weights, Certainty.POSSIBLE is true is stated)
        off = _mismatch_weight(match.mismatches, weights)
        off += weights.omitted_attribute * match.omitted_attributes
        off += weights.hedge_mismatch * (true is not stated)
        gained = worth * match.credit * worth / (worth + off)
        right += gained
        # A name of higher urgency, such as aneurysm for a long aorta, costs more in proportion to the missing credit.
        claimed = max(0.0, weights.finding[match.candidate_urgency] - weights.finding[match.urgency])
        wrong += worth - gained + claimed * (1.0 - match.credit)
    for unmatched in (*comparison.missing, *comparison.invented):
        # A related finding softens omission and invention alike; squared, so that naming it beats omitting it.
        wrong += _cost(unmatched, weights) * (1.0 - unmatched.nearest) ** 2
    for repetition in comparison.repetitions:
        wrong += _cost(repetition, weights) * (1.0 - repetition.nearest) * weights.repetition
    wrong += _mismatch_weight(comparison.wrong_resolutions, weights)
    return (right + weights.start) / (right + weights.start + wrong)


def _weight(finding: Finding, urgency: Urgency, weights: Weights, hedged: bool) -> float:
    unchanged = weights.unchanged if finding.change is Change.UNCHANGED else 1.0
    return weights.finding[urgency] * unchanged * (weights.hedged if hedged else 1.0)


def _cost(unmatched: UnmatchedFinding, weights: Weights) -> float:
    return _weight(unmatched.finding, unmatched.urgency, weights, unmatched.finding.certainty is Certainty.POSSIBLE)


def _mismatch_weight(mismatches: Sequence[ReportError], weights: Weights) -> float:
    def weight(mismatch: ReportError) -> float:
        factor = weights.omitted_comparison if mismatch.kind is ErrorKind.OMITTED_COMPARISON else 1.0
        return factor * (weights.significant if mismatch.significant else weights.minor)

    return sum(weight(mismatch) for mismatch in mismatches)


_RULES = {"reader": "rules", "weights": "table"}


def _score(name: str, low: float, conventions: Mapping[str, str], about: str) -> Metric:
    return Metric(name, "higher", (low, 1.0), 1.0, _UNDEFINED, {**conventions, **_RULES}, about)


_GREEN = {"formula": "green", "nothing-to-match": "1"}
_CLINICAL = {"formula": "right/(right+wrong)"}
_SCORES = (
    (green, _score("green:rules", 0.0, _GREEN, "matched findings against significant errors, GREEN's formula")),
    (
        crimson,
        _score(
            "crimson:rules",
            -1.0,
            {"formula": "crimson"},
            "abnormal findings in clinical weights, CRIMSON's formula",
        ),
    ),
    (
        clinical,
        _score(
            "clinical:rules",
            0.0,
            _CLINICAL,
            "right against wrong in clinical weights, with credit for related findings",
        ),
    ),
)


class RuleScores:
    """The three scores, each the mean over reports; a candidate that states nothing is not normal and scores 0 at most."""

    metrics: Sequence[Metric] = tuple(metric for _, metric in _SCORES)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per score."""
        found = []
        for formula, metric in _SCORES:
            values = [math.nan if c is None else formula(c) for c in batch.comparisons]
            states_nothing = [c is not None and c.states_nothing for c in batch.comparisons]
            values = [
                min(0.0, value) if nothing else value for value, nothing in zip(values, states_nothing, strict=True)
            ]
            found.append(mean_tally(metric, values))
        return found


_PLAIN = "green:rules"


def length_controlled(value: float, candidate: str, reference: str) -> float:
    """The value divided by the candidate's words per word of the reference, where it has more.

    A value below 0 is multiplied instead: divided, it would rise with length. Words are split at white space; a
    reference without any counts as one word.
    """
    times = max(len(candidate.split()) / max(len(reference.split()), 1), 1.0)
    return value / times if value >= 0 else value * times


class LengthControlled:
    """`green:rules-lc`, the mean over reports; only on request."""

    metrics: Sequence[Metric] = tuple(
        Metric(
            f"{_PLAIN}-lc",
            card.direction,
            card.range,
            card.identity,
            card.undefined,
            {**card.conventions, "length": "÷ max(words / reference's words, 1)"},
            f"{_PLAIN} of a report that is no longer than its reference, less of a longer one",
        )
        for card in RuleScores.metrics
        if card.name == _PLAIN
    )
    default: Sequence[str] = ()

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally."""
        plain = next(tally for tally in RuleScores().tallies(batch) if tally.metric.name == _PLAIN)
        texts = zip(batch.candidates, batch.references, strict=True)
        values = [length_controlled(value, *pair) for value, pair in zip(plain.by_pair.tolist(), texts, strict=True)]
        return [mean_tally(self.metrics[0], values)]


class PublishedGreenRules:
    """`green:rules-published`, the mean over reports; only on request: 0 where nothing is matched, as in GREEN's program."""

    metrics: Sequence[Metric] = (
        Metric(
            f"{_PLAIN}-published",
            "higher",
            (0.0, 1.0),
            None,  # a normal report compared with itself has nothing to match
            _UNDEFINED,
            {**_GREEN, "nothing-to-match": "0", **_RULES},
            f"{_PLAIN} with GREEN's own value for two normal reports, 0",
        ),
    )
    default: Sequence[str] = ()

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally."""
        values = [math.nan if c is None else green(c) if c.matches else 0.0 for c in batch.comparisons]
        return [mean_tally(self.metrics[0], values)]

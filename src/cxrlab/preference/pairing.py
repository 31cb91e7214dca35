"""From rewards to pairs, as pure functions of one study: nothing is read, written or drawn here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from cxrlab.core import fields
from cxrlab.core.fields import Record
from cxrlab.core.records import PreferencePair
from cxrlab.metrics.pairs import wordless
from cxrlab.preference.candidates import same_text, word_count
from cxrlab.preference.config import TIE

# Why a candidate is none, counted by candidate.
EMPTY, UNDEFINED, DUPLICATE = "empty", "undefined", "duplicates"
# Why there is no pair, counted by pair that was looked for.
ALONE, EQUAL, CLOSE, LONG, LOW, OPEN = "alone", "ties", "below_margin", "too_long", "too_low", "not_preferred"
CUT = "cut"

Preference = tuple[int, int]  # numbers of the better and of the worse candidate


@dataclass(frozen=True)
class Picked:
    """One pair: numbers of two candidates of a study and their rewards."""

    chosen: int
    rejected: int
    chosen_reward: float
    rejected_reward: float


@dataclass(frozen=True)
class Rules:
    """Which pairs are wanted.

    Args:
        pairs: At most so many a study.
        margin: Least difference of the rewards; equal ones never make a pair.
        longest_ratio: Most words of the chosen report, as a multiple of those of the rejected one; None for any.
        least_reward: Of the chosen report; None for any.
    """

    pairs: int = 1
    margin: float = TIE
    longest_ratio: float | None = None
    least_reward: float | None = None


def choose_pairs(
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules | None = None,
    preferred: Collection[Preference] | None = None,
    cut: Collection[int] = (),
) -> tuple[list[Picked], Counter[str]]:
    """The pairs of one study, and how often what was left out for which reason.

    Candidates are the reports with a word and a reward. Of texts that are equal up to case and white space the one
    with the highest reward is kept, the first of those. The best candidate stands against the worst, then of those
    left the best against the worst, and so on. Where the best may not be chosen (cut short, too long, not preferred
    by the judge itself) the next best is tried; no report stands in two pairs. Equal rewards keep the order of the
    reports.

    Args:
        reports: Of one study.
        rewards: One a report; not-a-number where it has none.
        rules: Which pairs are wanted; the default ones when None.
        preferred: What a pairwise judge said; a pair must be among it. None for rewards of single reports.
        cut: Numbers of the reports that end in mid-sentence: they may be rejected and are never chosen.
    """
    rules = rules or Rules()
    left, reasons = ranked(reports, rewards)
    if len(left) < 2:
        reasons[ALONE] += 1
    found: list[Picked] = []
    for _ in range(rules.pairs):
        if len(left) < 2:
            break
        worst = left.pop()
        best, reason = _best_against(worst, left, reports, rewards, rules, preferred, cut)
        if best is None:
            reasons[reason] += 1
        else:
            left.remove(best)
            found.append(Picked(best, worst, rewards[best], rewards[worst]))
    return found, reasons


def ranked(reports: Sequence[str], rewards: Sequence[float]) -> tuple[list[int], Counter[str]]:
    """Numbers of the candidates, best first, and how many reports are none; see `choose_pairs`."""
    reasons: Counter[str] = Counter()
    kept: dict[str, int] = {}
    for number, (report, reward) in enumerate(zip(reports, rewards, strict=True)):
        key = same_text(report)
        if wordless(report):
            reasons[EMPTY] += 1
        elif math.isnan(reward):
            reasons[UNDEFINED] += 1
        elif key not in kept:
            kept[key] = number
        else:
            reasons[DUPLICATE] += 1
            if reward > rewards[kept[key]]:
                kept[key] = number
    return sorted(sorted(kept.values()), key=lambda number: -rewards[number]), reasons


def copeland(reports: Sequence[str], preferred: Collection[Preference]) -> list[float]:
    """Wins − losses of each report among the different ones with a word; not-a-number for a report without one.

    Reports that are equal up to case and white space are one: they share the value of the first of them.

    Args:
        reports: Of one study.
        preferred: Numbers of the better and the worse report of every comparison that was not a tie.
    """
    first: dict[str, int] = {}
    for number, report in enumerate(reports):
        if not wordless(report):
            first.setdefault(same_text(report), number)
    among = set(first.values())
    score = dict.fromkeys(among, 0)
    for better, worse in set(preferred):
        if better in among and worse in among:
            score[better] += 1
            score[worse] -= 1
    return [math.nan if wordless(report) else float(score[first[same_text(report)]]) for report in reports]


def _best_against(
    worst: int,
    left: Sequence[int],
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules,
    preferred: Collection[Preference] | None,
    cut: Collection[int],
) -> tuple[int | None, str]:
    """The first of `left` (best first) that may be chosen over `worst`; or None and why the best of them may not."""
    reasons: list[str] = []
    for best in left:
        reason = _by_reward(rewards[best], rewards[worst], rules)
        if reason is not None:
            # Those after it have no higher reward; what kept the best one out is the reason that is told.
            reasons.append(reason)
            break
        if best in cut:
            reasons.append(CUT)
        elif preferred is not None and (best, worst) not in preferred:
            reasons.append(OPEN)
        elif too_long(reports[best], reports[worst], rules.longest_ratio):
            reasons.append(LONG)
        else:
            return best, ""
    return None, reasons[0]


def _by_reward(best: float, worst: float, rules: Rules) -> str | None:
    if not best > worst:
        return EQUAL
    if not best >= worst + rules.margin:
        return CLOSE
    return LOW if rules.least_reward is not None and best < rules.least_reward else None


def too_long(chosen: str, rejected: str, longest_ratio: float | None) -> bool:
    """Whether the chosen report has more words than the ratio allows against the rejected one."""
    return longest_ratio is not None and word_count(chosen) > longest_ratio * word_count(rejected)


@dataclass(frozen=True)
class SingleReport(Record):
    """One report that is good or bad by itself: KTO's form.

    Args:
        id: Of the study.
        report: The text.
        desirable: Whether it was chosen more often than rejected.
        score: Its reward, None where nobody gave one.
    """

    what = "a single report"
    checks = {"id": fields.non_empty_text, "report": fields.text, "desirable": fields.boolean, "score": fields.number()}

    id: str
    report: str
    desirable: bool
    score: float | None = None


def single_reports(pairs: Sequence[PreferencePair]) -> tuple[list[SingleReport], int]:
    """The reports of a study's pairs, each once, and how many were chosen as often as rejected and are left out.

    A report of several pairs is good when it was chosen more often; its score is the mean of its scores. Texts that are
    equal up to case and white space are one report.

    Args:
        pairs: Of one study.
    """
    votes: Counter[str] = Counter()
    scores: dict[str, list[float]] = {}
    spelled: dict[str, str] = {}
    for one in pairs:
        sides = ((one.chosen, one.chosen_score, 1), (one.rejected, one.rejected_score, -1))
        for text, score, vote in sides:
            key = same_text(text)
            spelled.setdefault(key, text)
            votes[key] += vote
            scores.setdefault(key, []).extend([] if score is None else [score])
    study = pairs[0].id if pairs else ""
    rows = [
        SingleReport(study, text, votes[key] > 0, fmean(scores[key]) if scores[key] else None)
        for key, text in spelled.items()
        if votes[key]
    ]
    return rows, len(spelled) - len(rows)

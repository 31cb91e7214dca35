"""How noisily a person prefers: the model of one reader, and its fit to preferences that people gave.

A reader prefers report A to report B with probability lapse / 2 + (1 − lapse) · σ((r(A) − r(B)) / scale), where r is
the reward of a metric. What a fit calls noise is all that the metric does not explain: slips of the reader, and also
what the reader sees in a report and the metric does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.core.protocols import TextModel
from cxrlab.core.randomness import generator, uniform
from cxrlab.metrics.judging import PAIRWISE, JudgeSettings
from cxrlab.metrics.judging.judges import PairwiseModel, Verdict
from cxrlab.metrics.pairs import Batch, wordless
from cxrlab.metrics.tally import Matrix
from cxrlab.preference.candidates import same_text
from cxrlab.preference.judges import Opinion, Preference, metric_judge
from cxrlab.preference.rewards import UNDECIDED

_LARGEST = 700.0  # exp of more is infinite


@dataclass(frozen=True)
class ReaderNoise:
    """How one reader departs from a metric.

    Args:
        scale: Difference of two rewards at which the better report wins 73 times of 100, lapses apart; above 0.
        lapse: Share of comparisons that are decided by a coin, whatever the reports; 0 to 1.
    """

    scale: float
    lapse: float

    def __post_init__(self) -> None:
        if not self.scale > 0 or not 0 <= self.lapse <= 1:
            raise ValueError(f"scale={self.scale} must be above 0 and lapse={self.lapse} from 0 to 1.")

    def probability(self, differences: ArrayLike) -> Matrix:
        """P(first over second) for differences r(first) − r(second) [N]."""
        return _probability(np.asarray(differences, dtype=np.float64), self.scale, np.array(self.lapse))


def _probability(differences: Matrix, scale: float, lapse: Matrix) -> Matrix:
    steep = np.clip(differences / scale, -_LARGEST, _LARGEST)
    found: Matrix = lapse / 2 + (1 - lapse) / (1 + np.exp(-steep))
    return found


_WON, _LOST, _TIED = "wins", "losses", "ties"
# What a verdict is for the first report, and for the second.
_SIDES = {
    Verdict.BETTER: (_WON, _LOST),
    Verdict.WORSE: (_LOST, _WON),
    Verdict.EQUAL: (_TIED, _TIED),
    Verdict.UNDECIDED: (UNDECIDED, UNDECIDED),
}


class PairwiseModelJudge:
    """Prefers the report that a language model prefers in both orders; where these disagree it is a tie.

    Reports without a word, or equal to an earlier one up to case and white space, are not asked about. A comparison of
    which an order could not be read is undecided: it is no tie, and a report with no other has no reward.

    Args:
        model: What is asked.
        judging: Another wording, and the longest answer; the usual ones when None.
    """

    def __init__(self, model: TextModel, judging: JudgeSettings | None = None) -> None:
        judging = judging or JudgeSettings()
        self._model = PairwiseModel(model, judging.prompt(PAIRWISE), judging.max_tokens)

    @property
    def name(self) -> str:
        """`pairwise:MODEL`."""
        return self._model.name

    @property
    def signature(self) -> str:
        """Name, wording and conventions."""
        return self._model.signature

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """How often each candidate won, lost, tied or was not decided about; see `judges.PairwiseJudge`."""
        asked = [list(combinations(_different(batch, group), 2)) for group in groups]
        items = [
            (batch.pairs[one].reference, batch.candidates[one], batch.candidates[other])
            for pairs in asked
            for one, other in pairs
        ]
        choices = iter(self._model.compare(items))
        return [
            _opinion(batch, group, {pair: next(choices).verdict for pair in pairs})
            for group, pairs in zip(groups, asked, strict=True)
        ]


def _different(batch: Batch, group: range) -> list[int]:
    """Places of the candidates that are compared: of equal texts the first, and none without a word."""
    first: dict[str, int] = {}
    for place in group:
        if not wordless(batch.candidates[place]):
            first.setdefault(same_text(batch.candidates[place]), place)
    return list(first.values())


def _opinion(batch: Batch, group: range, verdicts: dict[tuple[int, int], Verdict]) -> Opinion:
    """What was said of one study; equal texts share what was said of the first of them."""
    counts: dict[str, Counter[str]] = {same_text(batch.candidates[place]): Counter() for place in group}
    preferred: list[Preference] = []
    for pair, verdict in verdicts.items():
        for place, side in zip(pair, _SIDES[verdict], strict=True):
            counts[same_text(batch.candidates[place])][side] += 1
        if verdict in (Verdict.BETTER, Verdict.WORSE):
            better, worse = pair if verdict is Verdict.BETTER else pair[::-1]
            preferred.append((better - group.start, worse - group.start))
    mine = [counts[same_text(batch.candidates[place])] for place in group]
    unheard = frozenset(number for number, count in enumerate(mine) if count and set(count) == {UNDECIDED})
    return Opinion(tuple(map(_parts, mine)), tuple(preferred), unheard)


def _parts(count: Counter[str]) -> dict[str, float]:
    """The counts of one candidate; nothing where it was not compared."""
    return {key: float(count[key]) for key in (_WON, _LOST, _TIED, UNDECIDED)} if count else {}


@dataclass(frozen=True, order=True)
class _Count:
    """What is wrong with a report; the smaller one is better, compared in the order of the fields."""

    silent: bool
    significant: int
    total: int


class ErrorCountJudge:
    """Prefers the report with fewer significant errors by rule, then the one with fewer errors at all; else a tie.

    A report that says nothing of the image makes few errors and is no report: it loses to any that speaks.

    Args:
        seed: Unused; nothing is drawn.
    """

    name = "errors:rules"
    signature = "errors:rules|kinds:rexval-6|reader:rules|silent:loses|v:1"

    def __init__(self, seed: int = 7) -> None:
        del seed

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """The two counts of each candidate, and every preference; see `judges.PairwiseJudge`."""
        return [self._opinion([_count(batch, place) for place in group]) for group in groups]

    @staticmethod
    def _opinion(counts: Sequence[_Count | None]) -> Opinion:
        preferred = [
            (one, other)
            for one, other in permutations(range(len(counts)), 2)
            if (mine := counts[one]) is not None and (theirs := counts[other]) is not None and mine < theirs
        ]
        return Opinion(tuple(map(_parts_fewer_errors, counts)), tuple(preferred))


def _count(batch: Batch, place: int) -> _Count | None:
    """The errors of one candidate; None where there is nothing to compare it with."""
    compared = batch.comparisons[place]
    if compared is None:
        return None
    return _Count(compared.silent, sum(error.significant for error in compared.errors), len(compared.errors))


def _parts_fewer_errors(count: _Count | None) -> dict[str, float]:
    if count is None:
        return {}
    return {"errors.significant": float(count.significant), "errors.total": float(count.total)}


# The three radiologists of RadPref, and the metric that explains them best:
#     python experiments/radpref_reader.py --root RADPREF
BASE = "clinical:rules"
READERS = (ReaderNoise(0.15, 0.0), ReaderNoise(0.16, 0.0), ReaderNoise(0.12, 0.0))


class SimulatedReader:
    """Prefers by the rewards of a metric with the noise of a reader; see `reader_noise`.

    One reader judges a study, drawn among those given, and sees each pair of its reports once, as in a round of
    labelling. Two rewards that are equal are decided by a coin; only reports that are the same text, or that have no
    reward, are left undecided. A draw depends on the seed, the study and the two texts: not on their order, nor on
    what else is judged. Each pair is drawn for itself, so that a reader may prefer A to B, B to C and C to A.

    Args:
        seed: Of all draws.
        readers: Whom to draw among.
        base: Metric or mix whose rewards they see.
    """

    name = "reader:rules"

    def __init__(self, seed: int = 7, readers: Sequence[ReaderNoise] = READERS, base: str = BASE) -> None:
        self._seed, self._readers, self._base = seed, tuple(readers), metric_judge(base)
        noise = ",".join(f"{one.scale:g}/{one.lapse:g}" for one in self._readers)
        self.signature = f"{self.name}|noise:{noise}|by:study|ties:coin|v:1|base:{self._base.signature}"

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """The metric's values of each candidate, and every preference; see `judges.PairwiseJudge`."""
        found = []
        for group, verdict in zip(groups, self._base.verdicts(batch, groups), strict=True):
            texts = [same_text(batch.candidates[place]) for place in group]
            study = _study(batch.pairs[group.start].id) if texts else ""
            found.append(Opinion(verdict.parts, self._preferred(study, texts, verdict.rewards)))
        return found

    def reader_of(self, study: str) -> ReaderNoise:
        """Who judges a study.

        Args:
            study: Its id.
        """
        return self._readers[int(generator(self._seed, self.name, "who", study).integers(len(self._readers)))]

    def _preferred(self, study: str, texts: Sequence[str], rewards: Sequence[float]) -> tuple[Preference, ...]:
        reader = self.reader_of(study)
        found = []
        for pair in combinations(range(len(texts)), 2):
            # By text, so that the same two reports are the same question in whichever order they come.
            one, other = sorted(pair, key=lambda number: texts[number])
            difference = rewards[one] - rewards[other]
            if texts[one] == texts[other] or math.isnan(difference):
                continue
            drawn = uniform(self._seed, self.name, study, texts[one], texts[other])
            found.append((one, other) if drawn < float(reader.probability(difference)) else (other, one))
        return tuple(found)


def _study(key: str) -> str:
    """The study of a pair's id, which is the study's or `study#k`."""
    study, mark, _ = key.rpartition("#")
    return study if mark else key

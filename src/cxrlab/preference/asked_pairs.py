"""The pairwise judge by a language model: it is asked about every two reports of a study, in both orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from cxrlab.core.protocols import TextModel
from cxrlab.metrics.judging.pairwise import PairwiseModel, Verdict
from cxrlab.metrics.judging.table import PAIRWISE, JudgeSettings
from cxrlab.metrics.pairs import Batch, wordless
from cxrlab.preference.candidates import same_text
from cxrlab.preference.judges import Opinion
from cxrlab.preference.pairing import Preference
from cxrlab.preference.rewards import UNDECIDED

_WON, _LOST, _TIED = "wins", "losses", "ties"
# What a verdict is for the first report, and for the second.
_SIDES = {
    Verdict.BETTER: (_WON, _LOST),
    Verdict.WORSE: (_LOST, _WON),
    Verdict.EQUAL: (_TIED, _TIED),
    Verdict.UNDECIDED: (UNDECIDED, UNDECIDED),
}


class AskedPairs:
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

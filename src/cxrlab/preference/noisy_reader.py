"""The pairwise judge that prefers like a person: mostly the better report by rule, and now and then the other one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from cxrlab.core.randomness import fraction, generator
from cxrlab.metrics.pairs import Batch
from cxrlab.preference.candidates import same_text
from cxrlab.preference.judges import Opinion, metric_judge
from cxrlab.preference.pairing import Preference
from cxrlab.preference.reader_noise import ReaderNoise

# The three radiologists of RadPref, and the metric that explains them best:
#     python experiments/radpref_reader.py --root RADPREF
BASE = "clinical:rules"
READERS = (ReaderNoise(0.15, 0.0), ReaderNoise(0.16, 0.0), ReaderNoise(0.12, 0.0))


class NoisyReader:
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
            drawn = fraction(self._seed, self.name, study, texts[one], texts[other])
            found.append((one, other) if drawn < float(reader.probability(difference)) else (other, one))
        return tuple(found)


def _study(key: str) -> str:
    """The study of a pair's id, which is the study's or `study#k`."""
    study, mark, _ = key.rpartition("#")
    return study if mark else key

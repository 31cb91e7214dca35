"""Judges of candidate reports: a reward for each against the reference, or which of two is better.

A judge is named by a metric (`green:rules`), a mix of metrics (`0.7*green:rules+0.3*findings.f1.side`), or a row of
`PAIRWISE`, whose judges compare two reports. Language models judge under the names of their metrics (`green:MODEL`),
alone or in a mix, and compare two reports as `pairwise:MODEL`. Judges use the texts alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.model_interfaces import TextModel
from cxrlab.core.randomness import generator, uniform
from cxrlab.core.registry import Registry
from cxrlab.evaluation.config import MetricResources
from cxrlab.evaluation.select_metrics import (
    build_extra_families,
    build_judges,
    explain_unknown_metric,
    list_gated_families,
    split_judge_name,
)
from cxrlab.evaluation.validate_metrics import higher_is_better
from cxrlab.metrics.base import Family, Matrix, cards, ready
from cxrlab.metrics.finding_scores import length_controlled as length_controlled
from cxrlab.metrics.judging import PAIRWISE as PAIRWISE_PROMPT
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.judging.judges import PairwiseModel
from cxrlab.metrics.judging.judges import Verdict as PairVerdict
from cxrlab.metrics.report_pairs import Batch, Pair, wordless
from cxrlab.preference.candidate_files import same_text
from cxrlab.preference.reward_files import UNDECIDED

# Each row makes a `PairwiseJudge` from a seed, which a deterministic judge ignores.
PAIRWISE = Registry(
    "pairwise judge",
    {
        "errors:rules": "cxrlab.preference.judges:ErrorCountJudge",
        "reader:rules": "cxrlab.preference.judges:SimulatedReader",
    },
)
BY_MODEL = "pairwise:"  # before the name of a language model that compares two reports
Models = Callable[[str], TextModel]
Preference = tuple[int, int]  # numbers of the better and of the worse candidate
_EXAMPLE = "0.7*green:rules+0.3*findings.f1.side"


@dataclass(frozen=True)
class Verdict:
    """Judgement of the candidates of one study."""

    rewards: tuple[float, ...]  # per candidate, higher is better; NaN where it has none
    parts: tuple[Mapping[str, float], ...]  # per candidate the metric values behind its reward
    # Numbers of the better and the worse candidate, of a pairwise judge; else None.
    preferred: tuple[Preference, ...] | None = None


@dataclass(frozen=True)
class Opinion:
    """Comparisons of the candidates of one study by a pairwise judge."""

    parts: tuple[Mapping[str, float], ...]  # per candidate the values behind the comparisons
    preferred: tuple[Preference, ...]  # numbers of the better and the worse candidate; ties are left out
    # Numbers of candidates whose comparisons were all unreadable: no win, loss or tie.
    unread: frozenset[int] = frozenset()


class Judge(Protocol):
    """Gives candidates their rewards."""

    @property
    def name(self) -> str:
        """As a user types it."""

    @property
    def signature(self) -> str:
        """Everything that must agree before two rewards may be compared."""

    @property
    def pairwise(self) -> bool:
        """Whether it compares two reports."""

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict per study; `groups` are the places of each study's candidates in the batch."""


class PairwiseJudge(Protocol):
    """Compares two reports of a study; for the members see `Judge`."""

    @property
    def name(self) -> str:
        """Its name in the table."""

    @property
    def signature(self) -> str:
        """Name and conventions."""

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """One opinion per study."""


def load_judge(
    name: str,
    extras: MetricResources | None = None,
    seed: int = 7,
    models: Models | None = None,
    judging: JudgeSettings | None = None,
) -> Judge:
    """The judge of this name.

    Args:
        name: A metric, a mix of metrics, a row of `PAIRWISE`, or `pairwise:MODEL`.
        extras: The user's own graphs and weights, for metrics that need them.
        seed: For judges that draw.
        models: Opens language models; a judge that needs one is refused when None.
        judging: Prompts and longest answers of language models; the defaults when None.
    """
    if name in PAIRWISE:
        return _Pairwise(PAIRWISE.load(name)(seed))
    if name.startswith(BY_MODEL):
        return _Pairwise(PairwiseModelJudge(_opener(name, models)(name.removeprefix(BY_MODEL)), judging))
    return metric_judge(name, extras, models, judging)


def _opener(name: str, models: Models | None) -> Models:
    if models is None:
        raise ConfigError(
            f"the judge '{name}' needs a language model, which only 'cxrlab prefer judge' and 'prefer train' can use."
        )
    return models


def metric_judge(
    name: str,
    extras: MetricResources | None = None,
    models: Models | None = None,
    judging: JudgeSettings | None = None,
) -> MetricJudge:
    """The judge of a metric or a mix of metrics; for the arguments see `load_judge`."""
    extras = extras or MetricResources()
    weights = parse_mix(name)
    by_model = [metric for metric in weights if split_judge_name(metric) is not None]
    further = [metric for metric in weights if metric not in cards() and metric not in by_model]
    # A wrong name is refused without loading weights.
    unknown = [metric for metric in further if extras == MetricResources() or _needs(metric) is None]
    if unknown:
        raise _refused(unknown[0], in_mix=bool(by_model))
    if not further and extras != MetricResources():
        raise ConfigError(f"the judge '{name}' needs nothing of --extras; leave it out, or name a metric that does.")
    judges = [judge.family for judge in build_judges(by_model, _opener(name, models), judging)] if by_model else []
    return MetricJudge(name, weights, [*judges, *(build_extra_families(extras) if further else ())])


def parse_mix(name: str) -> dict[str, float]:
    """Metric → weight of `WEIGHT*METRIC` joined with `+`; a metric alone weighs 1."""
    weights: dict[str, float] = {}
    for term in name.split("+"):
        number, star, metric = (part.strip() for part in term.rpartition("*"))
        try:
            weight = float(number) if star else 1.0
        except ValueError:
            weight = math.nan
        if not metric or not 0.0 < weight < math.inf:
            raise ConfigError(
                f"'{name}' is not a judge: '{term.strip()}' is not WEIGHT*METRIC with a weight above 0; write it as "
                f"{_EXAMPLE}."
            )
        if metric in weights:
            raise ConfigError(f"the judge '{name}' names '{metric}' twice; give it one weight.")
        weights[metric] = weight
    return weights


class MetricJudge:
    """The weighted sum of metrics, each with the sign that makes higher better; `extra` are further metric families."""

    pairwise = False

    def __init__(self, name: str, weights: Mapping[str, float], extra: Sequence[Family] = ()) -> None:
        known = {**cards(), **{card.name: card for family in extra for card in family.metrics}}
        for metric in weights:
            if metric not in known:
                raise _refused(metric)
            card = known[metric]
            if not card.by_pair:
                raise ConfigError(
                    f"'{card.name}' cannot judge: it is an average over labels, and its value for a single report means "
                    "nothing; choose a metric with a value per report, such as green:rules."
                )
            if card.conventions.get("idf") == "references-of-this-batch":
                raise ConfigError(
                    f"'{card.name}' cannot judge: its value for a report depends on the other reports of a batch; choose "
                    "a metric of one report, such as rougeL:google."
                )
        self.name, self.weights = name, dict(weights)
        self._families = [
            family
            for family in (*ready().values(), *extra)
            if any(card.name in self.weights for card in family.metrics)
        ]
        parts = [(weight, known[metric].signature) for metric, weight in self.weights.items()]
        self.signature = " + ".join(f"{weight!r}*{one}" if len(parts) > 1 else one for weight, one in parts)

    def rewards(self, pairs: Sequence[Pair]) -> Matrix:
        """The reward of each pair [N]; NaN where a metric of the mix has no value."""
        return self._judged(Batch(pairs))[0]

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict per study; see `Judge`."""
        rewards, values = self._judged(batch)
        columns = {metric: column.tolist() for metric, column in values.items()}
        return [
            Verdict(
                rewards=tuple(rewards[group.start : group.stop].tolist()),
                parts=tuple({metric: column[place] for metric, column in columns.items()} for place in group),
            )
            for group in groups
        ]

    def _judged(self, batch: Batch) -> tuple[Matrix, dict[str, Matrix]]:
        """Rewards [N], and the metrics' own values in the order of the mix."""
        tallies = {
            tally.metric.name: tally
            for family in self._families
            for tally in family.tallies(batch)
            if tally.metric.name in self.weights
        }
        total = np.zeros(len(batch))  # a cost of nothing, −0, becomes 0 on the way
        for metric, weight in self.weights.items():
            total += weight * higher_is_better(tallies[metric])
        return total, {metric: tallies[metric].by_pair for metric in self.weights}


class _Pairwise:
    """A pairwise judge as a `Judge`, with wins − losses as rewards."""

    pairwise = True

    def __init__(self, judge: PairwiseJudge) -> None:
        self._judge = judge
        self.name, self.signature = judge.name, f"{judge.signature}|score:wins-losses"

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict per study; see `Judge`."""
        found = []
        for group, opinion in zip(groups, self._judge.opinions(batch, groups), strict=True):
            pairs = [batch.pairs[place] for place in group]
            scores = copeland([pair.candidate or "" for pair in pairs], opinion.preferred)
            rewards = [
                math.nan if pair.reference is None or number in opinion.unread else score
                for number, (pair, score) in enumerate(zip(pairs, scores, strict=True))
            ]
            found.append(Verdict(tuple(rewards), opinion.parts, opinion.preferred))
        return found


def copeland(reports: Sequence[str], preferred: Collection[Preference]) -> list[float]:
    """Wins − losses of each report of a study; NaN for one without a word.

    Reports that are equal up to case and white space count as one and share the value of the first of them.
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


def _needs(metric: str) -> str | None:
    """The flags that give what a metric needs; None when there is no such metric."""
    flags = next(
        (flags for family, flags in list_gated_families() if any(c.name == metric for c in family.metrics)), None
    )
    return None if flags is None else flags.replace("--", "--extras.")


def _refused(metric: str, *, in_mix: bool = False) -> ConfigError:
    """The error for an unknown metric; `in_mix` where the mix has a language model, whose name may hold + or *."""
    if metric in PAIRWISE or metric.startswith(BY_MODEL):
        return ConfigError(f"'{metric}' compares two reports and cannot be part of a mix; name it alone.")
    if _needs(metric) or metric not in cards():
        if (explained := explain_unknown_metric(metric, "--extras.")) is not None:
            return UnknownName(explained)
    needy = [card for family, _ in list_gated_families() for card in family.metrics]
    usable = [card.name for card in (*cards().values(), *needy) if card.by_pair]
    torn = " A model whose name holds + or * cannot be part of a mix." if in_mix else ""
    return UnknownName(
        f"there is no judge '{metric}'.{did_you_mean(metric, [*usable, *PAIRWISE])}{torn} Any metric of 'cxrlab metrics ls' "
        f"with a value per report can judge, or a mix such as {_EXAMPLE}, or {', '.join(PAIRWISE)}, or {BY_MODEL}MODEL."
    )


_LARGEST = 700.0  # exp of more is infinite


@dataclass(frozen=True)
class ReaderNoise:
    """How one reader departs from a metric.

    A reader prefers report A to report B with probability lapse / 2 + (1 − lapse) · σ((r(A) − r(B)) / scale), where r is
    the metric. The noise covers slips of the reader, and what the reader considers and the metric does not.
    """

    scale: float  # difference of two rewards at which the better report wins 73 % of comparisons, lapses aside; above 0
    lapse: float  # share of comparisons that are decided by chance; 0 to 1

    def __post_init__(self) -> None:
        if not self.scale > 0 or not 0 <= self.lapse <= 1:
            raise ValueError(f"scale={self.scale} must be above 0 and lapse={self.lapse} from 0 to 1.")

    def probability(self, differences: ArrayLike) -> Matrix:
        """P(first over second) for differences r(first) − r(second) [N]."""
        lapse = np.array(self.lapse)
        steep = np.clip(np.asarray(differences, dtype=np.float64) / self.scale, -_LARGEST, _LARGEST)
        found: Matrix = lapse / 2 + (1 - lapse) / (1 + np.exp(-steep))
        return found


_WON, _LOST, _TIED = "wins", "losses", "ties"
# Verdict → what it is for the first report, and for the second.
_COUNTED = (_WON, _LOST, _TIED, UNDECIDED)
_SIDES = {
    PairVerdict.BETTER: (_WON, _LOST),
    PairVerdict.WORSE: (_LOST, _WON),
    PairVerdict.EQUAL: (_TIED, _TIED),
    PairVerdict.UNDECIDED: (UNDECIDED, UNDECIDED),
}


class PairwiseModelJudge:
    """Prefers the report that a language model prefers in both orders; where these disagree it is a tie.

    Reports without a word, or equal to an earlier one up to case and white space, are not compared. A comparison with an
    unreadable answer is undecided: it is no tie, and a report with no other comparison has no reward.
    """

    def __init__(self, model: TextModel, judging: JudgeSettings | None = None) -> None:
        judging = judging or JudgeSettings()
        self._model = PairwiseModel(model, judging.prompt(PAIRWISE_PROMPT), judging.max_tokens)

    @property
    def name(self) -> str:
        """`pairwise:MODEL`."""
        return self._model.name

    @property
    def signature(self) -> str:
        """Name, wording and conventions."""
        return self._model.signature

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """Wins, losses, ties and undecided comparisons of each candidate; see `PairwiseJudge`."""
        compared: list[list[tuple[int, int]]] = []
        for group in groups:
            first: dict[str, int] = {}
            for place in group:
                if not wordless(batch.candidates[place]):
                    first.setdefault(same_text(batch.candidates[place]), place)
            compared.append(list(combinations(first.values(), 2)))
        items = [
            (batch.pairs[one].reference, batch.candidates[one], batch.candidates[other])
            for pairs in compared
            for one, other in pairs
        ]
        choices = iter(self._model.compare(items))
        found = []
        for group, pairs in zip(groups, compared, strict=True):
            counts: dict[str, Counter[str]] = {same_text(batch.candidates[place]): Counter() for place in group}
            preferred: list[Preference] = []
            for pair in pairs:
                verdict = next(choices).verdict
                for place, side in zip(pair, _SIDES[verdict], strict=True):
                    counts[same_text(batch.candidates[place])][side] += 1
                if verdict in (PairVerdict.BETTER, PairVerdict.WORSE):
                    better, worse = pair if verdict is PairVerdict.BETTER else pair[::-1]
                    preferred.append((better - group.start, worse - group.start))
            own = [counts[same_text(batch.candidates[place])] for place in group]  # equal texts share their counts
            parts = tuple({side: float(count[side]) for side in _COUNTED} if count else {} for count in own)
            unread = frozenset(number for number, count in enumerate(own) if count and set(count) == {UNDECIDED})
            found.append(Opinion(parts, tuple(preferred), unread))
        return found


class ErrorCountJudge:
    """Prefers the report with fewer significant errors by rule, then the one with fewer errors; else a tie.

    A report without findings makes few errors and is no report: it loses to any with findings.
    """

    name = "errors:rules"
    signature = "errors:rules|kinds:rexval-6|reader:rules|silent:loses|v:1"

    def __init__(self, seed: int = 7) -> None:
        del seed

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """The error counts of each candidate, and every preference; see `PairwiseJudge`."""
        found = []
        for group in groups:
            # Without findings, significant errors, all errors: smaller is better, in this order.
            counts: list[tuple[bool, int, int] | None] = []
            for compared in (batch.comparisons[place] for place in group):
                errors = [] if compared is None else compared.errors
                significant = sum(error.significant for error in errors)
                counts.append(None if compared is None else (compared.states_nothing, significant, len(errors)))
            preferred = [
                (one, other)
                for one, other in permutations(range(len(counts)), 2)
                if (mine := counts[one]) is not None and (theirs := counts[other]) is not None and mine < theirs
            ]
            parts = tuple(
                {} if count is None else {"errors.significant": float(count[1]), "errors.total": float(count[2])}
                for count in counts
            )
            found.append(Opinion(parts, tuple(preferred)))
        return found


# The three radiologists of RadPref, and the metric that explains them best:
#     python experiments/radpref_reader.py --root RADPREF
BASE = "clinical:rules"
READERS = (ReaderNoise(0.15, 0.0), ReaderNoise(0.16, 0.0), ReaderNoise(0.12, 0.0))


class SimulatedReader:
    """Prefers by the rewards of a metric with the noise of a reader; see `ReaderNoise`.

    One of the readers is drawn for each study and compares each pair of its reports once. Equal rewards are decided by
    chance; reports with the same text, or without a reward, are not compared. A draw depends on the seed, the study and
    the two texts alone. Pairs are drawn independently, so that a reader may prefer A to B, B to C and C to A.
    """

    name = "reader:rules"

    def __init__(self, seed: int = 7, readers: Sequence[ReaderNoise] = READERS, base: str = BASE) -> None:
        self._seed, self._readers, self._base = seed, tuple(readers), metric_judge(base)
        noise = ",".join(f"{one.scale:g}/{one.lapse:g}" for one in self._readers)
        self.signature = f"{self.name}|noise:{noise}|by:study|ties:coin|v:1|base:{self._base.signature}"

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """The metric's values of each candidate, and every preference; see `PairwiseJudge`."""
        found = []
        for group, verdict in zip(groups, self._base.verdicts(batch, groups), strict=True):
            texts = [same_text(batch.candidates[place]) for place in group]
            study = ""
            if texts:  # a pair's id is the study's, or `study#k`
                key = batch.pairs[group.start].id
                study = key.rpartition("#")[0] if "#" in key else key
            found.append(Opinion(verdict.parts, self._preferred(study, texts, verdict.rewards)))
        return found

    def reader_of(self, study: str) -> ReaderNoise:
        """The reader of a study."""
        return self._readers[int(generator(self._seed, self.name, "who", study).integers(len(self._readers)))]

    def _preferred(self, study: str, texts: Sequence[str], rewards: Sequence[float]) -> tuple[Preference, ...]:
        reader = self.reader_of(study)
        found = []
        for pair in combinations(range(len(texts)), 2):
            # By text: the result must not depend on the order of the reports.
            one, other = sorted(pair, key=lambda number: texts[number])
            difference = rewards[one] - rewards[other]
            if texts[one] == texts[other] or math.isnan(difference):
                continue
            drawn = uniform(self._seed, self.name, study, texts[one], texts[other])
            found.append((one, other) if drawn < float(reader.probability(difference)) else (other, one))
        return tuple(found)

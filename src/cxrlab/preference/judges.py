"""Judges: what a candidate report is worth beside the reference, or which of two is better.

A judge is named by a metric (`green:rules`), a mix of them (`0.7*green:rules+0.3*findings.f1.side`), or a row of
`PAIRWISE`, whose judges compare two reports and give no number to one. Language models judge under the names of their
metrics (`green:MODEL`), alone or in a mix, and two reports as `pairwise:MODEL`. Judges see the texts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.protocols import TextModel
from cxrlab.core.tables import Table
from cxrlab.evaluation.config import MetricResources
from cxrlab.evaluation.metric_choice import (
    build_extra_families,
    build_judges,
    explain_unknown_metric,
    list_gated_families,
    split_judge_name,
)
from cxrlab.evaluation.validate import higher_is_better
from cxrlab.metrics.families import cards, ready
from cxrlab.metrics.finding_scores import length_controlled as length_controlled
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.pairs import Batch, Pair, wordless
from cxrlab.metrics.tally import Family, Matrix, Metric
from cxrlab.preference.candidates import same_text

# Each row makes a `PairwiseJudge` from a seed, which a judge that draws nothing leaves aside.
PAIRWISE = Table(
    "pairwise judge",
    {
        "errors:rules": "cxrlab.preference.pairwise_judges:ErrorCountJudge",
        "reader:rules": "cxrlab.preference.pairwise_judges:SimulatedReader",
    },
)
BY_MODEL = "pairwise:"  # before the name of a language model that compares two reports
Models = Callable[[str], TextModel]
Preference = tuple[int, int]  # numbers of the better and of the worse candidate
_EXAMPLE = "0.7*green:rules+0.3*findings.f1.side"


@dataclass(frozen=True)
class Verdict:
    """What a judge says of the candidates of one study.

    Args:
        rewards: One a candidate, higher is better; not-a-number where it has none.
        parts: Of each candidate the values behind its reward, as the metrics give them.
        preferred: Numbers of the better and the worse candidate, where the judge compares two; else None.
    """

    rewards: tuple[float, ...]
    parts: tuple[Mapping[str, float], ...]
    preferred: tuple[Preference, ...] | None = None


@dataclass(frozen=True)
class Opinion:
    """What a pairwise judge says of the candidates of one study.

    Args:
        parts: Of each candidate the values behind the opinion.
        preferred: Numbers of the better and the worse candidate; ties are left out.
        unheard: Numbers of candidates that were compared and of which nothing could be read: no win, loss or tie.
    """

    parts: tuple[Mapping[str, float], ...]
    preferred: tuple[Preference, ...]
    unheard: frozenset[int] = frozenset()


class Judge(Protocol):
    """What gives candidates their rewards."""

    @property
    def name(self) -> str:
        """As a user types it."""
        ...

    @property
    def signature(self) -> str:
        """Everything that must agree before two rewards may be compared."""
        ...

    @property
    def pairwise(self) -> bool:
        """Whether it compares two reports instead of valuing one."""
        ...

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict a group.

        Args:
            batch: Candidates with their references.
            groups: Places in the batch of the candidates of each study.
        """
        ...


class PairwiseJudge(Protocol):
    """What a row of `PAIRWISE` makes."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    @property
    def signature(self) -> str:
        """Name and conventions."""
        ...

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """One opinion a group; see `Judge.verdicts`."""
        ...


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
        extras: Graphs and weights of the user's, for metrics that need them.
        seed: For judges that draw.
        models: Opens language models; a judge that needs one is refused when None.
        judging: Wordings and longest answers of language models; the usual ones when None.
    """
    if name in PAIRWISE:
        return _Pairwise(PAIRWISE.load(name)(seed))
    if name.startswith(BY_MODEL):
        from cxrlab.preference.pairwise_judges import PairwiseModelJudge

        return _Pairwise(PairwiseModelJudge(_opener(name, models)(name.removeprefix(BY_MODEL)), judging))
    return metric_judge(name, extras, models, judging)


def _opener(name: str, models: Models | None) -> Models:
    if models is None:
        raise ConfigError(f"the judge '{name}' asks a language model, which 'cxrlab prefer judge' alone does.")
    return models


def metric_judge(
    name: str,
    extras: MetricResources | None = None,
    models: Models | None = None,
    judging: JudgeSettings | None = None,
) -> MetricJudge:
    """The judge of a metric or a mix of metrics; anything else is refused with the reason.

    Args:
        name: Such as `green:rules` or `0.7*green:rules+0.3*findings.f1.side`.
        extras: Graphs and weights of the user's, for metrics that need them.
        models: Opens language models; a judge that needs one is refused when None.
        judging: As for `load_judge`.
    """
    extras = extras or MetricResources()
    weights = parse_mix(name)
    asked = [metric for metric in weights if split_judge_name(metric) is not None]
    further = [metric for metric in weights if metric not in cards() and metric not in asked]
    # Weights are loaded for a metric that needs them, never to learn that a name is wrong.
    unknown = [metric for metric in further if extras == MetricResources() or _needs(metric) is None]
    if unknown:
        raise _refused(unknown[0], in_mix=bool(asked))
    if not further and extras != MetricResources():
        raise ConfigError(f"the judge '{name}' needs nothing of --extras; leave it out, or name a metric that does.")
    judges = [judge.family for judge in build_judges(asked, _opener(name, models), judging)] if asked else []
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
                f"'{name}' is no judge: '{term.strip()}' is not WEIGHT*METRIC with a weight above 0; write it as "
                f"{_EXAMPLE}."
            )
        if metric in weights:
            raise ConfigError(f"the judge '{name}' names '{metric}' twice; give it one weight.")
        weights[metric] = weight
    return weights


class MetricJudge:
    """The weighted sum of metrics, each turned so that higher is better.

    Args:
        name: As the user typed it.
        weights: Metric → weight.
        extra: Families beside those that are ready.
    """

    pairwise = False

    def __init__(self, name: str, weights: Mapping[str, float], extra: Sequence[Family] = ()) -> None:
        known = {**cards(), **{card.name: card for family in extra for card in family.metrics}}
        for metric in weights:
            if metric not in known:
                raise _refused(metric)
            _check_card(known[metric])
        self.name, self.weights = name, dict(weights)
        self._families = [
            family
            for family in (*ready().values(), *extra)
            if any(card.name in self.weights for card in family.metrics)
        ]
        parts = [(weight, known[metric].signature) for metric, weight in self.weights.items()]
        self.signature = " + ".join(f"{weight!r}*{told}" if len(parts) > 1 else told for weight, told in parts)

    def rewards(self, pairs: Sequence[Pair]) -> Matrix:
        """The reward of each pair [N]; not-a-number where a metric of the mix has no value."""
        return self._judged(Batch(pairs))[0]

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict a group; see `Judge`."""
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
    """A pairwise judge whose rewards are wins − losses.

    Args:
        judge: What compares.
    """

    pairwise = True

    def __init__(self, judge: PairwiseJudge) -> None:
        self._judge = judge
        self.name, self.signature = judge.name, f"{judge.signature}|score:wins-losses"

    def verdicts(self, batch: Batch, groups: Sequence[range]) -> list[Verdict]:
        """One verdict a group; see `Judge`."""
        found = []
        for group, opinion in zip(groups, self._judge.opinions(batch, groups), strict=True):
            pairs = [batch.pairs[place] for place in group]
            scores = copeland([pair.candidate or "" for pair in pairs], opinion.preferred)
            told = [
                math.nan if pair.reference is None or number in opinion.unheard else score
                for number, (pair, score) in enumerate(zip(pairs, scores, strict=True))
            ]
            found.append(Verdict(tuple(told), opinion.parts, opinion.preferred))
        return found


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


def _needs(metric: str) -> str | None:
    """The flags that give what a metric needs; None when there is no such metric."""
    flags = next(
        (flags for family, flags in list_gated_families() if any(c.name == metric for c in family.metrics)), None
    )
    return None if flags is None else flags.replace("--", "--extras.")


def _check_card(card: Metric) -> None:
    """Refuse a metric whose value for one report means nothing, or depends on what else is judged."""
    if not card.by_pair:
        raise ConfigError(
            f"'{card.name}' cannot judge: it is an average over labels, and its value for a single report means "
            "nothing; choose a metric with a value a report, such as green:rules."
        )
    if card.conventions.get("idf") == "references-of-this-batch":
        raise ConfigError(
            f"'{card.name}' cannot judge: its value for a report depends on which others are scored beside it; choose "
            "a metric of one report, such as rougeL:google."
        )


def _refused(metric: str, *, in_mix: bool = False) -> ConfigError:
    """The error for what is no metric; `in_mix` where a language model stands beside it, whose name may be torn."""
    if metric in PAIRWISE or metric.startswith(BY_MODEL):
        return ConfigError(f"'{metric}' compares two reports and has no reward to be mixed; name it alone.")
    if _needs(metric) or metric not in cards():
        if (told := explain_unknown_metric(metric, "--extras.")) is not None:
            return UnknownName(told)
    needy = [card for family, _ in list_gated_families() for card in family.metrics]
    usable = [card.name for card in (*cards().values(), *needy) if card.by_pair]
    torn = " A model whose name holds + or * cannot stand in a mix, which these signs part." if in_mix else ""
    return UnknownName(
        f"there is no judge '{metric}'.{did_you_mean(metric, [*usable, *PAIRWISE])}{torn} Any metric of 'cxrlab metrics ls' "
        f"with a value a report can judge, or a mix such as {_EXAMPLE}, or {', '.join(PAIRWISE)}, or {BY_MODEL}MODEL."
    )

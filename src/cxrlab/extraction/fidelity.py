"""How much of the victim a copy has: both against the references, and the copy against the victim's own reports.

    victim_scored/ surrogate_scored/   both against the references of the corpus, as `score` writes them
    victim_reports.jsonl               the victim's reports as references
    fidelity_scored/                   the surrogate against them
    fidelity.json                      values, paired ratio and difference by metric, labels by observation

Intervals are 95 % by patient. Ratio and difference of surrogate and victim are paired by patient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.randomness import generator
from cxrlab.core.registry import Registry
from cxrlab.core.runs import Run, finished
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.evaluation.compare import ComparisonResult, compare
from cxrlab.evaluation.config import MetricResources, ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS
from cxrlab.evaluation.score import run_score
from cxrlab.evaluation.score_inputs import load_inputs, read_predictions, read_references
from cxrlab.evaluation.scored_runs import INDEX, ScoredRun, align_runs, read_tallies
from cxrlab.evaluation.select_metrics import (
    lacking_settings,
    list_default_cards,
    list_gated_families,
    list_given_families,
)
from cxrlab.extraction.config import FidelityConfig
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.finding_scores import FindingsF1
from cxrlab.metrics.report_pairs import Batch
from cxrlab.metrics.statistics.intervals import METHOD, Resamples
from cxrlab.metrics.statistics.paired_tests import paired_difference

RESULT, REPORTS = "fidelity.json", "victim_reports.jsonl"
VICTIM, SURROGATE, COPY = "victim", "surrogate", "fidelity"
_KEPT = ("value", "low", "high", "n", "undefined")
_OF_DIFFERENCE = ("difference", "low", "high", "p", "p_holm", "verdict", "by_study")


def measure_fidelity(
    victim_run: Path,
    surrogate_run: Path,
    data: Path,
    out: Path,
    settings: FidelityConfig | None = None,
    victim_in: Path | None = None,
) -> dict[str, Any]:
    """Measure a copy; returns the content of fidelity.json.

    Args:
        victim_run: Folder of a finished `generate` of the victim.
        surrogate_run: The same of the surrogate, on the same studies.
        data: Corpus folder with the references.
        out: Run folder; an interrupted run is resumed, a finished one of the same reports is left as it is.
        settings: Metrics and statistics; the defaults when left out.
        victim_in: Folder for the victim's scores, which surrogates of one victim may share; `out` when left out.
    """
    settings = settings or FidelityConfig()
    config = {
        **{"victim": str(victim_run), "surrogate": str(surrogate_run), "data": str(data), "settings": settings},
        # A regenerated run is another input, though its folder has the same name.
        "content": [sha256_of(run / PREDICTIONS) for run in (victim_run, surrogate_run)],
    }
    if finished(out, config, seed=settings.seed):
        return dict(read_json(out / RESULT))
    with Run.open(out, config, seed=settings.seed) as run:
        victim = scored(victim_run, data, (victim_in or out) / f"{VICTIM}_scored", settings)
        surrogate = scored(surrogate_run, data, out / f"{SURROGATE}_scored", settings)
        run.write(REPORTS, victim_reports(victim_run, data, settings.section))
        copied = scored(surrogate_run, run.path(REPORTS), out / f"{COPY}_scored", settings)
        compared = _compare([victim, surrogate], settings)
        names = [one.metric for one in compared.metrics]
        one, two = align_runs([read_tallies(victim), read_tallies(surrogate)])
        copy = read_tallies(copied)
        labelers = ("chexpert", *(("chexbert",) if settings.extras.chexbert else ()))
        found = plain(
            {
                "n": compared.n,
                "patients": compared.patients,
                "interval": METHOD,
                VICTIM: values_of(compared, 0),
                SURROGATE: values_of(compared, 1),
                COPY: values(copy, names, settings.seed),
                "ratio": ratios(one, two, names, settings.seed),
                "difference": differences_of(compared, 0),
                "observations": {
                    labeler: {
                        name: observations(tallies, labeler, settings.seed)
                        for name, tallies in ((VICTIM, one), (SURROGATE, two), (COPY, copy))
                    }
                    for labeler in labelers
                },
                "left_out": left_out(settings.extras),
            }
        )
        run.write(RESULT, found)
    return dict(found)


def compare_surrogates(
    runs: Mapping[str, Path], data: Path, out: Path, settings: FidelityConfig | None = None
) -> dict[str, Any]:
    """Several surrogates against the first of them, paired by study; returns the content of fidelity.json.

    Args:
        runs: Name → folder of a finished `generate`, or of `score`; the baseline (such as Knockoff) first.
        data: Corpus folder with the references.
        settings: Metrics and statistics; the defaults when left out.
    """
    settings = settings or FidelityConfig()
    check_names(runs, least=2)
    is_scored = {name: (run / INDEX).is_file() for name, run in runs.items()}
    config = {
        **{"runs": {name: str(run) for name, run in runs.items()}, "data": str(data), "settings": settings},
        "content": [sha256_of(run / (INDEX if is_scored[name] else PREDICTIONS)) for name, run in runs.items()],
    }
    if finished(out, config, seed=settings.seed):
        return dict(read_json(out / RESULT))
    with Run.open(out, config, seed=settings.seed) as run:
        folders = [
            folder if is_scored[name] else scored(folder, data, out / name, settings) for name, folder in runs.items()
        ]
        found = _compare(folders, settings)
        result = {
            **{"baseline": next(iter(runs)), "n": found.n, "patients": found.patients, "tests": found.tests},
            "values": {name: values_of(found, place) for place, name in enumerate(runs)},
            "difference": {name: differences_of(found, place) for place, name in enumerate(list(runs)[1:])},
            "left_out": left_out(settings.extras),
        }
        run.write(RESULT, result)
    return dict(plain(result))


def check_names(runs: Mapping[str, Path], least: int) -> None:
    """Refuse too few runs, and names that cannot be a folder."""
    if len(runs) < least:
        raise ConfigError(f"{len(runs)} runs were given; name at least {least}.")
    for name in runs:
        if not name or Path(name).name != name or name.startswith("."):
            raise ConfigError(f"'{name}' cannot be the name of a folder; choose a plain word.")


def _compare(folders: Sequence[Path], settings: FidelityConfig) -> ComparisonResult:
    names = (*settings.metrics, *(name for name in extra_names(settings.extras) if not name.startswith("chexbert.")))
    return compare(folders, seed=settings.seed, metrics=names, trials=settings.swaps)


def values_of(found: ComparisonResult, place: int) -> dict[str, Any]:
    """Metric → value with its interval, n and undefined of one run of a comparison."""
    label = found.runs[place]
    return {
        one.metric: {"direction": one.direction} | {key: getattr(one.values[label], key) for key in _KEPT}
        for one in found.metrics
    }


def differences_of(found: ComparisonResult, place: int) -> dict[str, Any]:
    """Metric → the difference of run `place` + 1 to the baseline, with interval, p and verdict."""
    label = found.runs[place + 1]
    metrics: Mapping[str, Any] = found.to_json()["metrics"]
    return {
        name: {"direction": one["direction"]} | {key: one["against"][label][key] for key in _OF_DIFFERENCE}
        for name, one in metrics.items()
    }


def scored(predictions: Path, references: Path, out: Path, settings: FidelityConfig) -> Path:
    """Score a run with these settings, labels by observation included; returns the folder of the scores."""
    run_score(score_config(predictions, references, settings), out)
    return out


def score_config(predictions: Path, references: Path, settings: FidelityConfig) -> ScoreConfig:
    """How a side of an audit is scored."""
    labels = (f"chexpert.{name}.f1:uncertain-positive" for name in CHEXPERT_14)
    extras = settings.extras
    return ScoreConfig(
        references,
        predictions,
        section=settings.section,
        metrics=tuple(dict.fromkeys((*settings.metrics, *labels, *extra_names(extras)))),
        floors=False,
        slices=False,
        seed=settings.seed,
        **vars(extras),
    )


def extra_names(extras: MetricResources) -> list[str]:
    """Metrics that these graphs and weights add."""
    return [card.name for family in list_given_families(extras) for card in list_default_cards(family)]


def left_out(extras: MetricResources) -> dict[str, str]:
    """First metric of each family that is not counted → the settings that it needs."""
    return {
        list_default_cards(family)[0].name: f"not counted: it needs {', '.join(lacking)} of the user"
        for family, flags in list_gated_families()
        if (lacking := lacking_settings(flags, extras))
    }


def victim_reports(victim_run: Path, data: Path, section: str) -> str:
    """The victim's reports as JSONL of references, each with patient, age and indication of its study."""
    studies = read_references(data, section).items
    rows = []
    for key, text in read_predictions(victim_run).items.items():
        study = studies[key]
        known = {"age": study.context.age, "indication": study.context.indication}
        row = {"id": key, "patient": study.patient, "report": text}
        rows.append(row | {name: value for name, value in known.items() if value is not None})
    return "".join(dumps(row) + "\n" for row in rows)


TRIALS, LEVEL = 1000, 0.95


def values(run: ScoredRun, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Metric → value with its interval by patient, n and undefined."""
    tallies = [run.tallies[name] for name in names]
    draws = Resamples(run.patients, trials=TRIALS, rng=generator(seed, "fidelity", "values"))
    return {
        tally.metric.name: {
            "direction": tally.metric.direction,
            **{"value": tally.value, "low": ends.low, "high": ends.high, "n": tally.n, "undefined": tally.undefined},
        }
        for tally, ends in zip(tallies, draws.estimates(tallies, LEVEL), strict=True)
    }


def ratios(victim: ScoredRun, surrogate: ScoredRun, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Metric → surrogate ÷ victim, both on the same resampled patients, for aligned runs.

    `value` is not-a-number if the victim is at 0 or below. Resamples in which that happens are left out and counted
    (`left_out`); the interval is unknown if they are more than one in twenty. `natural_zero` is False for metrics that
    may be negative, for which a ratio has no meaning.
    """
    draws = Resamples(victim.patients, trials=TRIALS, rng=generator(seed, "fidelity", "ratios"))
    mine, yours = [[run.tallies[name] for name in names] for run in (victim, surrogate)]
    resampled = draws.resample([*mine, *yours])
    rows = {}
    for name, one, two, below, above in zip(names, mine, yours, resampled, resampled[len(names) :], strict=False):
        ratio = above.over(below)
        ends = ratio.estimate(LEVEL)
        rows[name] = {
            "value": ratio.value,
            **{"low": ends.low, "high": ends.high, "n": int((one.defined & two.defined).sum())},
            "left_out": int((~(below.draws > 0) | np.isnan(above.draws)).sum()),
            **{"natural_zero": one.metric.range[0] >= 0, "direction": one.metric.direction},
        }
    return rows


def observations(run: ScoredRun, labeler: str, seed: int) -> dict[str, Any]:
    """CheXpert observation → F1 with its interval, positives among references and among candidates.

    `labeler` is chexpert (rules) or chexbert. F1 is unknown if an observation is positive on neither side; an uncertain
    label counts as positive.
    """
    names = [f"{labeler}.{name}.f1:uncertain-positive" for name in CHEXPERT_14]
    found = values(run, names, seed)
    rows = {}
    for observation, name in zip(CHEXPERT_14, names, strict=True):
        hit, extra, lost, _ = (int(count) for count in run.tallies[name].rows.sum(axis=0))
        rows[observation] = found[name] | {"support": hit + lost, "claimed": hit + extra}
    return rows


JUDGES = Registry("pairwise judge", {"rules": "cxrlab.extraction.fidelity:RulesJudge"})
OUTCOMES = {"a_better": 1, "equal": 0, "b_better": -1}


class PairwiseJudge(Protocol):
    """Prefers one of two reports of the same study."""

    @property
    def signature(self) -> str:
        """Everything that must agree before two tables of wins may be compared."""
        ...

    def opinions(self, first: Batch, second: Batch) -> Matrix:
        """[N]: 1 if the first report is better, -1 if the second is, 0 if neither, not-a-number without opinion.

        Both batches have the same references in the same order.
        """
        ...


class RulesJudge:
    """Prefers the report with fewer significant errors by rule, then the one with the higher F1 of findings.

    A report that states nothing about the image loses to any that does. The seed is unused.
    """

    signature = "rules|errors:significant|then:findings.f1|reader:rules|silent:loses|v:1"

    def __init__(self, seed: int = 7) -> None:
        del seed

    def opinions(self, first: Batch, second: Batch) -> Matrix:
        """See `PairwiseJudge`; a study without a reference has no opinion."""
        pairs = zip(_ranks(first), _ranks(second), strict=True)
        return np.array([np.nan if a is None or b is None else float(a < b) - float(b < a) for a, b in pairs])


def _ranks(batch: Batch) -> list[tuple[bool, int, float] | None]:
    """The sort key of each report, smaller is better; None without a reference."""
    f1 = next(tally for tally in FindingsF1().tallies(batch) if tally.metric.name == "findings.f1").by_pair
    return [
        None if one is None else (one.states_nothing, sum(error.significant for error in one.errors), -float(f1[place]))
        for place, one in enumerate(batch.comparisons)
    ]


def pairwise_wins(
    a_run: Path, b_run: Path, data: Path, judge: str = "rules", seed: int = 7, section: str = "findings"
) -> dict[str, Any]:
    """How often the reports of one run are better than those of another.

    A run is the folder of a finished `generate`, or a file of predictions; both have the same studies.

    Returns:
        `a_better`, `equal` and `b_better` as shares of the `n` studies with an opinion, each {value, low, high,
        count}; `net`, the share of a minus that of b with interval and p of swapping the two within patients;
        `contradicted`, studies whose verdict turned with the order; `undefined`, studies without an opinion.
    """
    judging: PairwiseJudge = JUDGES.load(judge)(seed)
    first, second = (Batch(load_inputs(data, run, section=section).pairs) for run in (a_run, b_run))
    if [pair.id for pair in first.pairs] != [pair.id for pair in second.pairs]:
        raise DataError(f"{a_run} and {b_run} have different studies; generate both on the same ones.")
    there, back = judging.opinions(first, second), -judging.opinions(second, first)
    verdicts = np.where(there == back, there, 0.0)
    verdicts[np.isnan(there) | np.isnan(back)] = np.nan
    found = counted(verdicts, [pair.patient or pair.id for pair in first.pairs], seed)
    contradicted = int(((there != back) & ~np.isnan(verdicts)).sum())
    return {"judge": judge, "signature": judging.signature, **found, "contradicted": contradicted}


def counted(verdicts: Matrix, patients: Sequence[str], seed: int) -> dict[str, Any]:
    """Verdicts [N] of 1, 0, -1 and not-a-number as shares with intervals by patient; see `pairwise_wins`."""
    shares = {name: _share(name, verdicts, value) for name, value in OUTCOMES.items()}
    ends = Resamples(patients, rng=generator(seed, "pairwise", "intervals")).estimates(list(shares.values()))
    # The shares of wins as two systems of one metric.
    lost, won = (_share("wins", verdicts, OUTCOMES[name]) for name in ("b_better", "a_better"))
    net = paired_difference(lost, won, patients, rng=generator(seed, "pairwise", "net"))
    found = {
        name: {"value": tally.value, "low": end.low, "high": end.high, "count": int((verdicts == OUTCOMES[name]).sum())}
        for (name, tally), end in zip(shares.items(), ends, strict=True)
    }
    summary = {"value": net.difference, "low": net.low, "high": net.high, "p": net.p, "too_few": net.too_few}
    return dict(plain({**found, "net": summary, "n": won.n, "undefined": won.undefined}))


def _share(name: str, verdicts: Matrix, value: int) -> Tally:
    card = Metric(name, "higher", (0.0, 1.0), None, "studies without an opinion")
    return mean_tally(card, np.where(np.isnan(verdicts), np.nan, verdicts == value))

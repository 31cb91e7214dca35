"""RadPref: pairs of candidate reports that radiologists rated from 1 to 5.

    preference_data.json   a list: id, ground_truth_report, C1_report, C2_report, PatientAge, Indication, …
    user_*.json            (or radiologist_annotations/user_*.json) annotations by id: C1, C2 → rating, …

Intervals are by study: the candidates of a study share one reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.randomness import generator
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.metric_choice import OpenJudge
from cxrlab.evaluation.report_files import parse_age, parse_report
from cxrlab.evaluation.validate import compare_with_raters, score_pairs
from cxrlab.metrics.pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.bootstrap import METHOD
from cxrlab.metrics.tally import Matrix

DATA, FOLDER = "preference_data.json", "radiologist_annotations"
PEER = "rougeL:google"  # what a new metric is asked to beat
_CANDIDATE = re.compile(r"(C\d+)_report")


@dataclass(frozen=True)
class RadPref:
    """The benchmark as read.

    Args:
        pairs: One a candidate that someone rated; `patient` is the study.
        raters: Names of the raters.
        ratings: [pairs, raters], not-a-number where a rater gave none.
        unrated: Candidates without any rating, which stay out.
    """

    pairs: tuple[Pair, ...]
    raters: tuple[str, ...]
    ratings: Matrix
    unrated: int = 0

    @property
    def mean(self) -> Matrix:
        """Mean rating of each pair [pairs]."""
        found: Matrix = np.nanmean(self.ratings, axis=1)
        return found

    @property
    def studies(self) -> tuple[str, ...]:
        """The study of each pair."""
        return tuple(pair.patient for pair in self.pairs)


def read_radpref(root: Path) -> RadPref:
    """Read the folder; a layout that is not RadPref's is a `DataError` that names file and entry."""
    file = root / DATA
    cases = read_json(file)
    if not isinstance(cases, list) or not cases:
        raise DataError(f"{file} must hold a list of studies; is {root} the folder of RadPref?")
    raters = {name: _annotations(path) for name, path in _rater_files(root).items()}
    ids = [case.get("id") if isinstance(case, dict) else None for case in cases]
    if twice := [key for key in ids if key is not None and ids.count(key) > 1]:
        raise DataError(f"{file} has the study {short_repr(twice[0])} twice; its ratings would count twice.")
    pairs, ratings, unrated = [], [], 0
    for number, case in enumerate(cases):
        place = f"{file}, entry {number + 1}"
        for key, pair in _pairs(case, place):
            row = [_rating(given, pair.patient, key, name) for name, given in raters.items()]
            if all(np.isnan(value) for value in row):
                unrated += 1
            else:
                pairs.append(pair)
                ratings.append(row)
    if not pairs:
        raise DataError(f"no candidate of {file} is rated in {', '.join(raters)}; the files do not belong together.")
    return RadPref(tuple(pairs), tuple(raters), np.array(ratings), unrated)


class RadPrefBenchmark:
    """Kendall τ-b of every metric against the mean rating, preferences, and what the raters reach themselves.

    Args:
        config: Settings; the files are read at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # the settings see to it
        self._config, self._data = config, read_radpref(config.root)
        self.batch = Batch(self._data.pairs)

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures; see `validate.Benchmark`."""
        from cxrlab.metrics.statistics.agreement import leave_one_out_tau

        data = self._data
        values = score_pairs(self.batch, names, judges)
        found = {name: self._agreement(name, values) for name in values}
        return {
            "benchmark": "radpref",
            "interval": METHOD,
            "n": len(data.pairs),
            "studies": len(set(data.studies)),
            "unrated": data.unrated,
            "metrics": found,
            "ceiling": {"leave_one_out_tau": leave_one_out_tau(data.ratings) if len(data.raters) > 1 else []},
            "raters": compare_raters(data, values, found, [judge.metrics[0] for judge in judges]),
        }

    def _agreement(self, name: str, values: Mapping[str, Matrix]) -> dict[str, Any]:
        from cxrlab.metrics.statistics.agreement import preference_accuracy, tau_difference, tau_with_interval

        data, seed, trials = self._data, self._config.seed, self._config.trials
        rng = generator(seed, "radpref")  # the same resamples for every metric
        tau = tau_with_interval(values[name], data.mean, data.studies, trials=trials, rng=rng)
        preference = preference_accuracy(values[name], data.mean, data.studies)
        found = {**asdict(tau), "preference_accuracy": preference.accuracy, "preferences": preference.n}
        if PEER in values and name != PEER:
            rng = generator(seed, "radpref", "peer")
            above = tau_difference(values[name], values[PEER], data.mean, data.studies, trials=trials, rng=rng)
            found[f"above {PEER}"] = {key: getattr(above, key) for key in ("difference", "low", "high")}
        return found


def compare_raters(
    data: RadPref,
    values: Mapping[str, Matrix],
    found: Mapping[str, Mapping[str, Any]],
    judges: Sequence[str] = (),
) -> dict[str, Any]:
    """Each rater's mean absolute difference to the mean of the others, beside that of the best metric.

    A metric does not speak in ratings from 1 to 5, so a straight line from value to mean rating is
    fitted on all studies but the one in question.

    Args:
        data: The ratings.
        values: Metric → value of each pair, higher better.
        found: Metric → its agreement, by which the best is found.
        judges: Metrics of judges by language models, which have a table each under "judges".
    """
    if len(data.raters) < 2:
        return {}
    each = {name: _beside_raters(data, name, values[name]) for name in judges}
    told: dict[str, Any] = {"judges": each} if each else {}
    taus = {name: row["tau"] for name, row in found.items() if not np.isnan(row["tau"])}
    if not taus:
        return told
    best = max(taus, key=lambda name: taus[name])
    scale = "a straight line from value to mean rating, fitted without the study in question"
    return {**_beside_raters(data, best, values[best]), "scale": scale, **told}


def _beside_raters(data: RadPref, name: str, values: Matrix) -> dict[str, Any]:
    return compare_with_raters(data.ratings, data.raters, name, predict_ratings(values, data.mean, data.studies))


def predict_ratings(values: Matrix, ratings: Matrix, studies: Sequence[str]) -> Matrix:
    """Ratings predicted from values by least squares on the other studies [N]; not-a-number where undefined."""
    groups = np.array(studies)
    known = ~np.isnan(values)
    judged = np.full(len(values), np.nan)
    for study in dict.fromkeys(studies):
        others, own = known & (groups != study), known & (groups == study)
        if others.sum() < 2 or not own.any():
            continue
        x, y = values[others], ratings[others]
        spread = float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
        judged[own] = y.mean() + slope * (values[own] - x.mean())
    return judged


def _rater_files(root: Path) -> dict[str, Path]:
    places = [root, root / FOLDER]
    files = next((found for place in places if (found := sorted(place.glob("user_*.json")))), [])
    if not files:
        raise DataError(f"{root} has no user_*.json, nor has its folder {FOLDER}; name the folder of RadPref.")
    return {file.stem: file for file in files}


def _annotations(file: Path) -> Mapping[str, Any]:
    value = read_json(file)
    found = value.get("annotations") if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise DataError(f"{file} has no object 'annotations'; it is not a rater's file of RadPref.")
    return found


def _pairs(case: Any, place: str) -> list[tuple[str, Pair]]:
    if not isinstance(case, dict) or not isinstance(case.get("id"), str):
        raise DataError(f"{place} must be an object with a text 'id', not {short_repr(case)}.")
    if "ground_truth_report" not in case:
        raise DataError(f"{place} ('{case['id']}') has no 'ground_truth_report'.")
    indication = case.get("Indication")
    context = Context(parse_age(case.get("PatientAge"), place), indication if isinstance(indication, str) else None)
    told = parse_report(case["ground_truth_report"], f"{place}, 'ground_truth_report'")
    keys = [found[1] for key in case if (found := _CANDIDATE.fullmatch(key))]
    if not keys:
        raise DataError(f"{place} ('{case['id']}') has no candidate such as 'C1_report'.")
    texts = {key: parse_report(case[f"{key}_report"], f"{place}, '{key}_report'") for key in keys}
    return [(key, Pair(f"{case['id']}:{key}", told, text, case["id"], context=context)) for key, text in texts.items()]


def _rating(given: Mapping[str, Any], study: str, candidate: str, rater: str) -> float:
    entry = given.get(study)
    judged = entry.get(candidate) if isinstance(entry, dict) else None
    rating = judged.get("rating") if isinstance(judged, dict) else None
    if rating is None:
        return float("nan")
    if isinstance(rating, bool) or not isinstance(rating, (int, float)):
        raise DataError(
            f"the rating of {rater} for '{study}', {candidate}, is {short_repr(rating)}; it must be a number."
        )
    return float(rating)

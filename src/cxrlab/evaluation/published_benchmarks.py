"""Published benchmarks of metrics: RadPref and ReXVal (radiologists' ratings), RadJudge (ranking cases)."""

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
from cxrlab.evaluation.report_files import Row, parse_age, parse_report, read_rows
from cxrlab.evaluation.select_metrics import OpenJudge
from cxrlab.evaluation.validate_metrics import compare_with_raters, score_pairs
from cxrlab.metrics.base import Family, Matrix
from cxrlab.metrics.report_pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.agreement import preference_accuracy, tau_difference, tau_per_rater, tau_with_interval
from cxrlab.metrics.statistics.intervals import METHOD

DATA, FOLDER = "preference_data.json", "radiologist_annotations"
PEER = "rougeL:google"  # every metric is compared with this one
_CANDIDATE = re.compile(r"(C\d+)_report")


@dataclass(frozen=True)
class RadPref:
    """The rated candidates as pairs, whose `patient` is the study, and ratings [pairs, raters].

    A missing rating is not-a-number; `unrated` candidates without any rating stay out.
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
    files = sorted(root.glob("user_*.json")) or sorted((root / FOLDER).glob("user_*.json"))
    if not files:
        raise DataError(f"{root} has no user_*.json, nor has its folder {FOLDER}; name the folder of RadPref.")
    raters: dict[str, dict[str, Any]] = {}
    for path in files:
        value = read_json(path)
        annotations = value.get("annotations") if isinstance(value, dict) else None
        if not isinstance(annotations, dict):
            raise DataError(f"{path} has no object 'annotations'; it is not a rater's file of RadPref.")
        raters[path.stem] = annotations
    ids = [case.get("id") if isinstance(case, dict) else None for case in cases]
    if twice := [key for key in ids if key is not None and ids.count(key) > 1]:
        raise DataError(f"{file} has the study {short_repr(twice[0])} twice; its ratings would count twice.")
    pairs, ratings, unrated = [], [], 0
    for number, case in enumerate(cases):
        place = f"{file}, entry {number + 1}"
        for key, pair in _radpref_pairs(case, place):
            row = []
            for name, given in raters.items():
                entry = given.get(pair.patient)
                answer = entry.get(key) if isinstance(entry, dict) else None
                rating = answer.get("rating") if isinstance(answer, dict) else None
                if rating is not None and (isinstance(rating, bool) or not isinstance(rating, (int, float))):
                    raise DataError(
                        f"the rating of {name} for '{pair.patient}', {key}, is {short_repr(rating)}; it must be a "
                        "number."
                    )
                row.append(float("nan") if rating is None else float(rating))
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

    The files are read at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # checked by ValidateConfig
        self._config, self._data = config, read_radpref(config.root)
        self.batch = Batch(self._data.pairs)

    def measure(
        self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = (), extra: Sequence[Family] = ()
    ) -> dict[str, Any]:
        """The content of `validation.json`; see `validate_metrics.Benchmark`."""
        data = self._data
        values = score_pairs(self.batch, names, judges, extra)
        found = {name: self._agreement(name, values) for name in values}
        return {
            "benchmark": "radpref",
            "interval": METHOD,
            "n": len(data.pairs),
            "studies": len(set(data.studies)),
            "unrated": data.unrated,
            "metrics": found,
            "ceiling": {"leave_one_out_tau": tau_per_rater(data.ratings) if len(data.raters) > 1 else []},
            "raters": compare_raters(data, values, found, [judge.metrics[0] for judge in judges]),
        }

    def _agreement(self, name: str, values: Mapping[str, Matrix]) -> dict[str, Any]:
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

    A metric is not on the raters' scale from 1 to 5, so a straight line from value to mean rating is fitted on all
    studies but the one in question.

    `values` has each metric's value of every pair, `found` its agreement, by which the best is chosen. Each of the
    `judges` has a table under "judges".
    """
    if len(data.raters) < 2:
        return {}
    taus = {name: row["tau"] for name, row in found.items() if not np.isnan(row["tau"])}
    best = max(taus, key=lambda name: taus[name], default=None)
    tables = {}
    for name in dict.fromkeys([*judges, *([] if best is None else [best])]):
        predicted = predict_ratings(values[name], data.mean, data.studies)
        tables[name] = compare_with_raters(data.ratings, data.raters, name, predicted)
    of_judges: dict[str, Any] = {"judges": {name: tables[name] for name in judges}} if judges else {}
    if best is None:
        return of_judges
    scale = "a straight line from value to mean rating, fitted without the study in question"
    return {**tables[best], "scale": scale, **of_judges}


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


def _radpref_pairs(case: Any, place: str) -> list[tuple[str, Pair]]:
    if not isinstance(case, dict) or not isinstance(case.get("id"), str):
        raise DataError(f"{place} must be an object with a text 'id', not {short_repr(case)}.")
    if "ground_truth_report" not in case:
        raise DataError(f"{place} ('{case['id']}') has no 'ground_truth_report'.")
    indication = case.get("Indication")
    context = Context(parse_age(case.get("PatientAge"), place), indication if isinstance(indication, str) else None)
    reference = parse_report(case["ground_truth_report"], f"{place}, 'ground_truth_report'")
    keys = [found[1] for key in case if (found := _CANDIDATE.fullmatch(key))]
    if not keys:
        raise DataError(f"{place} ('{case['id']}') has no candidate such as 'C1_report'.")
    texts = {key: parse_report(case[f"{key}_report"], f"{place}, '{key}_report'") for key in keys}
    return [
        (key, Pair(f"{case['id']}:{key}", reference, text, case["id"], context=context)) for key, text in texts.items()
    ]


REPORTS = "50_samples_gt_and_candidates.csv"
COUNTS = "6_valid_raters_per_rater_error_categories.csv"
_NEEDED = ("study_number", "candidate_type", "rater_index", "clinically_significant", "num_errors")
_NOT_CANDIDATES = ("study_id", "gt_report", "")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# Counts in the raters' own unit, errors per report: by rule, and by the judge that counts.
RULES = {"total": "errors.total", "significant": "errors.significant"}
COUNTING = "chexprompt"


@dataclass(frozen=True)
class RexVal:
    """The candidates as pairs, whose `patient` is the study, and counts of (significant) errors [pairs, raters]."""

    pairs: tuple[Pair, ...]
    raters: tuple[str, ...]
    total: Matrix
    significant: Matrix

    @property
    def studies(self) -> tuple[str, ...]:
        """The study of each pair."""
        return tuple(pair.patient for pair in self.pairs)


def read_rexval(root: Path) -> RexVal:
    """Read the folder; a layout that is not ReXVal's is a `DataError` that names file and line."""
    reports, counts = (tuple(row for _, row in read_rows(root / name)) for name in (REPORTS, COUNTS))
    if missing := [key for key in _NEEDED if key not in counts[0].values]:
        raise DataError(f"{root / COUNTS} has no column '{missing[0]}'; it needs {', '.join(_NEEDED)}.")
    kinds = [key for key in reports[0].values if key not in _NOT_CANDIDATES]
    if not kinds:
        raise DataError(f"{reports[0].place} has no column with candidates beside gt_report.")
    pairs = [
        Pair(f"{number}:{kind}", row.text("gt_report"), row.text(kind), str(number))
        for number, row in enumerate(reports)
        for kind in kinds
    ]
    place = {pair.id: index for index, pair in enumerate(pairs)}
    names = _study_names(reports, counts)
    raters = sorted({_cell(row, "rater_index") for row in counts}, key=lambda name: (len(name), name))
    total, significant = np.zeros((len(pairs), len(raters))), np.zeros((len(pairs), len(raters)))
    for row in counts:
        key = f"{names[_cell(row, 'study_number')]}:{_cell(row, 'candidate_type').lower()}"
        if key not in place:
            raise DataError(f"{row.place}: there is no candidate '{_cell(row, 'candidate_type')}' in {root / REPORTS}.")
        try:
            number = float(_cell(row, "num_errors"))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise DataError(
                f"{row.place}: 'num_errors' is {row.values['num_errors']!r}; it must be a number of at least 0."
            )
        word = _cell(row, "clinically_significant").lower()
        if word not in _TRUTH:
            raise DataError(f"{row.place}: 'clinically_significant' is {word!r}; it must be True or False.")
        cell = (place[key], raters.index(_cell(row, "rater_index")))
        total[cell] += number
        if _TRUTH[word]:
            significant[cell] += number
    return RexVal(tuple(pairs), tuple(raters), total, significant)


class RexValBenchmark:
    """Kendall τ-b of every metric with the mean counts, and rules and judges that count errors beside the raters.

    The files are read at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # checked by ValidateConfig
        self._config, self._data = config, read_rexval(config.root)
        self._truths = {"": self._data.total, "_significant": self._data.significant}
        self.batch = Batch(self._data.pairs)

    def measure(
        self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = (), extra: Sequence[Family] = ()
    ) -> dict[str, Any]:
        """The content of `validation.json`; see `validate_metrics.Benchmark`."""
        data = self._data
        values = score_pairs(self.batch, names, judges, extra)
        several = len(data.raters) > 1
        counting = [judge for judge in judges if judge.kind == COUNTING]
        return {
            "benchmark": "rexval",
            "interval": METHOD,
            "n": len(data.pairs),
            "studies": len(set(data.studies)),
            "metrics": {name: self._agreement(scores) for name, scores in values.items()},
            "ceiling": {
                "leave_one_out_tau": tau_per_rater(-data.total) if several else [],
                "leave_one_out_tau_significant": tau_per_rater(-data.significant) if several else [],
            },
            "raters": self._raters(values, counting) if several else {},
            "differences": self._differences(values, counting),
        }

    def _agreement(self, scores: Matrix) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for suffix, counts in self._truths.items():
            rng = generator(self._config.seed, "rexval")
            # Fewer errors are better, as higher values are: both sides must point the same way.
            tau = tau_with_interval(
                scores, -counts.mean(axis=1), self._data.studies, trials=self._config.trials, rng=rng
            )
            row |= {f"{key}{suffix}": getattr(tau, key) for key in ("tau", "low", "high")} | {"n": tau.n}
        return row

    def _raters(self, values: Mapping[str, Matrix], judges: Sequence[OpenJudge]) -> dict[str, Any]:
        """Counts by rule and by each judge beside the raters: `total` or `significant` → table, for chosen metrics."""
        tables: dict[str, dict[str, Any]] = {
            counter: {
                which: compare_with_raters(getattr(self._data, which), self._data.raters, name, -values[name])
                for which, name in metrics.items()
                if name in values
            }
            for counter, metrics in {"": RULES, **{judge.name: list_count_metrics(judge) for judge in judges}}.items()
        }
        rules = tables.pop("")
        return {**rules, "judges": tables} if tables else rules

    def _differences(self, values: Mapping[str, Matrix], judges: Sequence[OpenJudge]) -> dict[str, Any]:
        """How much better each further judge that counts orders the reports than the first, on the same resamples."""
        found: dict[str, Any] = {}
        for judge in judges[1:]:
            found[judge.name] = {"above": judges[0].name}
            for which, name in list_count_metrics(judge).items():
                first = list_count_metrics(judges[0])[which]
                if name not in values or first not in values:
                    continue
                rng = generator(self._config.seed, "rexval", "judges")
                truth = -getattr(self._data, which).mean(axis=1)
                trials, studies = self._config.trials, self._data.studies
                gap = tau_difference(values[name], values[first], truth, studies, trials=trials, rng=rng)
                found[judge.name][which] = {key: getattr(gap, key) for key in ("difference", "low", "high", "n")}
        return found


def list_count_metrics(judge: OpenJudge) -> dict[str, str]:
    """`total` and `significant` → what a judge that counts errors calls them."""
    model = judge.name.partition(":")[2]
    return {"total": f"{COUNTING}:{model}", "significant": f"{COUNTING}.significant:{model}"}


def _study_names(reports: tuple[Row, ...], counts: tuple[Row, ...]) -> dict[str, str]:
    """The counts' name of each study → its row, counted from 0."""
    wanted = {_cell(row, "study_number") for row in counts}
    by_row = {str(number): str(number) for number in range(len(reports))}
    by_id = {str(row.values.get("study_id")): str(number) for number, row in enumerate(reports)}
    for names in (by_row, by_id):
        if wanted <= names.keys():
            return names
    stray = min(wanted - by_row.keys())
    row = next(row for row in counts if _cell(row, "study_number") == stray)
    raise DataError(f"{row.place}: there is no study '{stray}' among the {len(reports)} of {REPORTS} (from 0).")


def _cell(row: Row, key: str) -> str:
    value = str(row.values[key] or "").strip()
    if not value:
        raise DataError(f"{row.place}: '{key}' is empty.")
    return value.removesuffix(".0")


CASES = "cases.json"
_RELATION = re.compile(r"\s*(>|=|==|<)\s*")


@dataclass(frozen=True)
class Relation:
    """Two candidates of a case, the first better than the second or as good."""

    first: str
    second: str
    equal: bool

    def holds(self, values: Mapping[str, float], tie: float) -> bool:
        """Whether values (higher better) agree; an undefined one never does."""
        gap = values[self.first] - values[self.second]
        return abs(gap) <= tie if self.equal else gap > tie


@dataclass(frozen=True)
class Case:
    """One case: its pairs by candidate, and what must hold between them."""

    id: str
    category: str
    pairs: Mapping[str, Pair]
    relations: tuple[Relation, ...]


def read_radjudge(root: Path) -> list[Case]:
    """Read the cases; one that cannot be understood is a `DataError` that names it."""
    file = root / CASES
    found = read_json(file)
    if not isinstance(found, list) or not found:
        raise DataError(f"{file} must hold a list of cases; is {root} the folder of RadJudge?")
    cases = [_ranking_case(item, f"{file}, case {number}") for number, item in enumerate(found, 1)]
    ids = [case.id for case in cases]
    if len(set(ids)) < len(ids):
        raise DataError(f"{file} has two cases '{next(key for key in ids if ids.count(key) > 1)}'; ids must differ.")
    return cases


class RadJudgeBenchmark:
    """How many cases each metric ranks as expected. The cases are read at once."""

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # checked by ValidateConfig
        self._tie, self._cases = config.tie, read_radjudge(config.root)
        self._places = [(case, key) for case in self._cases for key in case.pairs]
        self.batch = Batch([case.pairs[key] for case, key in self._places])

    def measure(
        self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = (), extra: Sequence[Family] = ()
    ) -> dict[str, Any]:
        """The content of `validation.json`; see `validate_metrics.Benchmark`."""
        metrics = {}
        for name, column in score_pairs(self.batch, names, judges, extra).items():
            scored: dict[str, dict[str, float]] = {}
            for (case, key), value in zip(self._places, column.tolist(), strict=True):
                scored.setdefault(case.id, {})[key] = value
            passed = {
                case.id: all(relation.holds(scored[case.id], self._tie) for relation in case.relations)
                for case in self._cases
            }
            metrics[name] = {"passed": sum(passed.values()), "of": len(self._cases), "cases": passed}
        return {
            "benchmark": "radjudge",
            "tie": self._tie,
            "categories": {case.id: case.category for case in self._cases},
            "metrics": metrics,
        }


def parse_ranking(ranking: Any, candidates: Mapping[str, Any], place: str) -> tuple[Relation, ...]:
    """The relations in `C1 > C2 = C3` or a list of such; of a chain also those between its ends."""
    lines = ranking if isinstance(ranking, list) else [ranking]
    if not lines or not all(isinstance(line, str) and line.strip() for line in lines):
        raise DataError(f"{place}: the expected ranking is {short_repr(ranking)}; write it as 'C1 > C2 = C3'.")
    found: list[Relation] = []
    for line in (part for text in lines for part in re.split(r"[,;\n]", text) if part.strip()):
        words = _RELATION.split(line.strip())
        names, signs = words[::2], words[1::2]
        if unknown := [name for name in names if name not in candidates]:
            known = ", ".join(candidates)
            raise DataError(f"{place}: the ranking '{line.strip()}' names '{unknown[0]}'; candidates are {known}.")
        if not signs or {">", "<"} <= set(signs):
            raise DataError(f"{place}: '{line.strip()}' is not a ranking; write it as 'C1 > C2 = C3'.")
        if "<" in signs:
            names, signs = names[::-1], [sign.replace("<", ">") for sign in signs[::-1]]
        for first in range(len(names)):
            for second in range(first + 1, len(names)):
                equal = ">" not in signs[first:second]
                found.append(Relation(names[first], names[second], equal))
    return tuple(found)


def _ranking_case(item: Any, place: str) -> Case:
    if not isinstance(item, dict):
        raise DataError(f"{place} must be an object, not {short_repr(item)}.")
    needed = ("id", "ground_truth", "candidates", "expected_ranking")
    if missing := [key for key in needed if key not in item]:
        raise DataError(f"{place} has no '{missing[0]}'; a case needs {', '.join(needed)}.")
    key, candidates = str(item["id"]), item["candidates"]
    place = f"{place} ('{key}')"
    if not isinstance(candidates, dict) or len(candidates) < 2:
        raise DataError(f"{place} needs an object of two or more candidates.")
    reference = parse_report(item["ground_truth"], f"{place}, 'ground_truth'")
    shared = item.get("context")
    pairs = {}
    for name, entry in candidates.items():
        spot = f"{place}, candidate {name}"
        entry = entry if isinstance(entry, dict) else {"text": entry}
        if "text" not in entry:
            raise DataError(f"{spot} has no 'text'.")
        given = entry.get("context") or shared
        if given is not None and not isinstance(given, dict):
            raise DataError(
                f"{spot}: the context is {short_repr(given)}; it must be an object with age and indication."
            )
        fields = {str(k).lower().removeprefix("patient").strip("_ "): item for k, item in (given or {}).items()}
        indication = fields.get("indication")
        context = Context(parse_age(fields.get("age"), spot), indication if isinstance(indication, str) else None)
        pairs[name] = Pair(f"{key}:{name}", reference, parse_report(entry["text"], spot), key, context=context)
    found = parse_ranking(item["expected_ranking"], candidates, place)
    return Case(key, str(item.get("category", "")), pairs, found)

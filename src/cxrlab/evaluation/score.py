"""Predictions against references: every metric with interval, floors, slices and the errors behind it.

scores.json       the numbers, with what they mean and what nonsense would score
per_study.jsonl   each study: both texts, what became of it, its values, its errors, and what judges said of it
tallies.json/.npz sufficient statistics, from which runs are compared without scoring again

With judges by language models also answers.sqlite and requests.jsonl, see `models.asked_once`.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.llm import LLMConfig, llm_operational_fields
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, ReportError
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import Group, observation
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS
from cxrlab.evaluation.image_dependence import ImageDependence, measure_image_dependence, pair_with_other_patients
from cxrlab.evaluation.metric_choice import (
    Evidence,
    MetricSelection,
    OpenJudge,
    build_extra_families,
    collect_evidence,
    count_answers,
    evidence_for_pair,
    list_default_cards,
    list_gated_families,
    open_judges,
    select_metrics,
    separate_judges,
)
from cxrlab.evaluation.score_inputs import Attributes, Inputs, Unit, load_inputs
from cxrlab.metrics.families import families
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.radgraph import by_package
from cxrlab.metrics.statistics.bootstrap import Place, Resamples, memory_key
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.metrics.tally import Matrix, Tally
from cxrlab.models.baselines import REPORTS

if TYPE_CHECKING:
    from cxrlab.evaluation.score_inputs import Texts
    from cxrlab.metrics.tally import Family, Metric, Tally

SCORES, PER_STUDY = "scores.json", "per_study.jsonl"


def score(
    references: Texts,
    predictions: Texts | None = None,
    *,
    metrics: Sequence[str] | None = None,
    section: str = "findings",
    split: str | None = None,
    unit: Unit = "auto",
    allow_missing: bool = False,
    floors: bool = True,
    slices: bool = True,
    trials: int = 1000,
    level: float = 0.95,
    seed: int = 7,
    extra: Sequence[Family] = (),
    llm: LLMConfig | None = None,
    judging: JudgeSettings | None = None,
    columns: Sequence[str] = (),
    by_row: bool = False,
) -> ScoreSheet:
    """Score predictions against references.

    Args:
        references: Corpus folder, file, list of reports, or mapping of id to report.
        predictions: Run folder, file, list or mapping; None when the references' file has a `candidate` beside each.
        metrics: Names or groups of metrics, and judges by language models; the default metrics when None.
        section: Of the reference report, where it has sections; several joined with `+`.
        split: Of a corpus; left out, every split that holds a predicted study.
        unit: `study`, or `image` for predictions with ids `study#k`; `auto` looks at the ids.
        allow_missing: Score a missing prediction as an empty report instead of refusing.
        floors: Score the controls too.
        slices: Score by view, sex, age band and device too, where they are known.
        trials: Bootstrap resamples behind each interval.
        level: Share of resamples inside the interval.
        seed: Decides the resamples and the shuffled control.
        extra: Further families (`extra_families`), scored without floors.
        llm: How the models of judges are asked; as usual when None.
        judging: Other wordings for judges, and their longest answers; the usual ones when None.
        columns: `ROLE=NAME` (candidate, reference, id), for files with columns of other names.
        by_row: Match two files row by row, whatever ids they have.
    """
    inputs = load_inputs(
        references,
        predictions,
        section=section,
        split=split,
        unit=unit,
        allow_missing=allow_missing,
        columns=columns,
        by_row=by_row,
    )
    names, judges = separate_judges(metrics)
    with open_judges(judges, llm or LLMConfig(), inputs.egress_data, judging=judging) as opened:
        return score_inputs(
            inputs,
            names,
            floors=floors,
            slices=slices,
            trials=trials,
            level=level,
            seed=seed,
            extra=extra,
            judges=opened,
        )


def score_inputs(
    inputs: Inputs,
    metrics: Sequence[str] | None = None,
    *,
    floors: bool = True,
    slices: bool = True,
    trials: int = 1000,
    level: float = 0.95,
    seed: int = 7,
    extra: Sequence[Family] = (),
    judges: Sequence[OpenJudge] = (),
) -> ScoreSheet:
    """Score pairs that were matched before; see `score`. Judges are named apart from the metrics, and open."""
    from cxrlab.metrics.statistics.bootstrap import Resamples

    chosen = _chosen(metrics, extra, judges)
    batch = Batch(inputs.pairs)
    others, notes = _control_batches(batch, seed) if floors else ({}, ())
    counted = _tallies({"": batch, **others}, chosen.ready)
    tallies = counted.pop("")
    if all(pair.reference is None for pair in batch.pairs):
        notes = (*notes, "no reference has a text, so nothing has a value; is --section the right one?")
    for family in track(extra, "scoring with what you gave"):
        tallies += [tally for tally in family.tallies(batch) if tally.metric.name in chosen.extra]
    for judge in track(judges, "asking judges"):
        tallies += judge.tallies(batch)
    evidence = collect_evidence(judges, batch)
    patients = [pair.patient or pair.id for pair in batch.pairs]
    resamples = Resamples(patients, trials=trials, rng=generator(seed, "score", "intervals"))
    scores = {
        tally.metric.name: MetricScore(tally.metric, tally.value, ends.low, ends.high, tally.n, tally.undefined)
        for tally, ends in zip(tallies, resamples.estimates(tallies, level), strict=True)
    }
    return ScoreSheet(
        metrics=scores,
        floors={name: {tally.metric.name: tally.value for tally in found} for name, found in counted.items()},
        statuses=Counter(status.value for status in batch.statuses),
        studies=tuple(_studies(batch, tallies, evidence)),
        slices=_slices(batch, tallies, patients, inputs.attributes, trials, level, seed) if slices else {},
        tallies=tuple(tallies),
        batch=batch,
        digest=inputs.digest,
        notes=notes,
        image_dependence=measure_image_dependence(
            batch,
            inputs.control_reports,
            chosen.ready,
            trials=trials,
            level=level,
            rng=generator(seed, "score", "image dependence"),
        ),
        judges=count_answers(evidence),
        matching=inputs.matching,
        cautions=inputs.cautions,
    )


def run_score(config: ScoreConfig, out: Path | None = None) -> Mapping[str, Any]:
    """Score as the settings say and write the run folder; returns the content of `scores.json`.

    A finished run with the same settings and the same texts is left as it is; one of other texts is refused. A run
    that was stopped scores again what needs no model, and asks judges only what has no answer yet.
    """
    inputs = load_inputs(
        config.references,
        config.predictions,
        section=config.section,
        split=config.split,
        unit=config.unit,
        allow_missing=config.allow_missing,
        columns=config.columns,
        by_row=config.by_row,
    )
    # A file of graphs that was drawn again under the same name is another input.
    if config.graphs is not None and not by_package(config.graphs):
        content = hashlib.sha256(read_bytes(config.graphs)).hexdigest()
        inputs = replace(inputs, digest=hashlib.sha256(f"{inputs.digest} {content}".encode()).hexdigest())
    if out is not None and finished(out, config, seed=config.seed, operational=llm_operational_fields()):
        return _stored(out, inputs.digest)
    if out is not None and (out / PREDICTIONS).exists():
        raise RunError(f"{out} holds the run that wrote predictions; choose another folder for the scores.")
    names, judges = separate_judges(("all",) if config.all else config.metrics or None)
    # Before the folder is made: a wrong name, or a model that may not be shown these texts, leaves nothing behind.
    if judges:  # and before weights are loaded
        select_metrics(names, [family for family, _ in list_gated_families()], beside_judges=True)
    with open_judges(judges, config.llm, inputs.egress_data, out, config.judging) as opened:
        return _run(config, inputs, names, opened, out)


def _run(
    config: ScoreConfig, inputs: Inputs, names: Sequence[str] | None, judges: Sequence[OpenJudge], out: Path | None
) -> Mapping[str, Any]:
    extra = build_extra_families(config.extras)
    _chosen(names, extra, judges)
    asked: dict[str, Any] = {
        "extra": extra,
        "judges": judges,
        "floors": config.floors,
        "slices": config.slices,
        "trials": config.trials,
        "level": config.level,
        "seed": config.seed,
    }
    if out is None:
        return _plain(score_inputs(inputs, names, **asked))
    with Run.open(out, config, seed=config.seed, operational=llm_operational_fields()) as run:
        sheet = score_inputs(inputs, names, **asked)
        write_sheet(run, sheet)
    return _plain(sheet)


def write_sheet(run: Run, sheet: ScoreSheet) -> None:
    """Write evidence first, conclusions last."""
    from cxrlab.evaluation.scored_runs import write_tallies

    run.write(PER_STUDY, "".join(dumps(study) + "\n" for study in sheet.studies))
    write_tallies(run, sheet.batch, sheet.tallies)
    run.write(SCORES, sheet.to_json())


def _stored(out: Path, digest: str) -> Mapping[str, Any]:
    """What a finished run wrote, if it is of these texts."""
    stored = read_json(out / SCORES)
    if not isinstance(stored, dict) or not {"metrics", "floors", "statuses", "n"} <= stored.keys():
        raise DataError(f"{out / SCORES} is damaged; choose another folder and score again.")
    if stored.get("inputs_sha256") != digest:
        raise RunError(f"{out} holds scores of other texts under the same paths; choose another folder.")
    return stored


def _chosen(names: Sequence[str] | None, extra: Sequence[Family], judges: Sequence[OpenJudge] = ()) -> MetricSelection:
    """What to count beside the judges; of extra families their own choice where none of their metrics is named.

    Nobody gives a file of graphs to see nothing of it.
    """
    found = select_metrics(names, extra)
    if not found.extra:
        found = replace(found, extra=tuple(card.name for family in extra for card in list_default_cards(family)))
    if not (found.ready or found.extra or judges):
        raise ConfigError("no metric was chosen; 'cxrlab metrics ls' lists their names.")
    return found


def _plain(sheet: ScoreSheet) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plain(sheet.to_json())
    return found


def _control_batches(batch: Batch, seed: int) -> tuple[dict[str, Batch], tuple[str, ...]]:
    made, notes = {}, []
    for name, control in FLOORS.items():
        candidates = control(batch, generator(seed, "control", name))
        if candidates is None:
            notes.append(f"no floor '{name}': it needs studies of several patients, none with more than half of them")
        else:
            made[name] = batch.with_candidates(candidates)
    return made, tuple(notes)


def _tallies(batches: Mapping[str, Batch], names: Sequence[str]) -> dict[str, list[Tally]]:
    """Of each batch every metric, family by family, so that what a family knows of the references is used again."""
    wanted = set(names)
    found: dict[str, list[Tally]] = {key: [] for key in batches}
    for family, key in track([(family, key) for family in families(names) for key in batches], "scoring"):
        found[key] += [tally for tally in family.tallies(batches[key]) if tally.metric.name in wanted]
    return found


def _studies(
    batch: Batch, tallies: Sequence[Tally], evidence: Mapping[str, Sequence[Evidence]]
) -> Iterator[StudyScore]:
    columns = {tally.metric.name: tally.by_pair.tolist() for tally in tallies}
    for index, pair in enumerate(batch.pairs):
        comparison = batch.comparisons[index]
        errors = () if comparison is None else tuple(comparison.errors)
        values = {name: column[index] for name, column in columns.items()}
        yield StudyScore(pair, values, errors, evidence_for_pair(evidence, index))


def _slices(
    batch: Batch,
    tallies: Sequence[Tally],
    patients: Sequence[str],
    attributes: Sequence[Attributes],
    trials: int,
    level: float,
    seed: int,
) -> Mapping[str, Mapping[str, SliceScore]]:
    devices = [
        None if pair.reference is None else mentions_device(findings)
        for pair, findings in zip(batch.pairs, batch.reference_findings, strict=True)
    ]
    known = [replace(item, device=device) for item, device in zip(attributes, devices, strict=True)]
    rng = generator(seed, "score", "slices")
    return score_slices(tallies, patients, known, trials=trials, level=level, rng=rng)


@dataclass(frozen=True)
class MetricScore:
    """One metric over all pairs.

    Args:
        metric: Its card.
        value: Not-a-number when no pair has a value.
        low: Lower end of the interval; not-a-number with fewer than two patients.
        high: Upper end.
        n: Pairs that entered the value.
        undefined: Pairs without a value.
    """

    metric: Metric
    value: float
    low: float
    high: float
    n: int
    undefined: int

    def to_json(self) -> dict[str, Any]:
        """As the contract of `scores.json` has it; a bound that does not exist is null."""
        card = self.metric
        bounds = [None if math.isinf(bound) else bound for bound in card.range]
        return {
            "value": self.value, "low": self.low, "high": self.high, "n": self.n, "undefined": self.undefined,
            "direction": card.direction, "range": bounds, "identity": card.identity, "signature": card.signature,
        }  # fmt: skip


@dataclass(frozen=True)
class StudyScore:
    """One pair: what became of it, its value by each metric, what is wrong with the candidate, and what judges said."""

    pair: Pair
    values: Mapping[str, float]
    errors: tuple[ReportError, ...] = ()
    judged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One line of `per_study.jsonl`."""
        pair = self.pair
        return {
            "id": pair.id, "patient": pair.patient or pair.id, "status": pair.status,
            "reference": pair.reference, "candidate": pair.candidate, "values": self.values,
            "errors": [error.to_json() for error in self.errors],
            **({"judged": self.judged} if self.judged else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class ScoreSheet(Mapping[str, MetricScore]):
    """What a scoring came to; as a mapping it gives each metric's score by name.

    Args:
        metrics: Name → score.
        floors: Control → metric → value of that control against the same references.
        statuses: Status → number of pairs.
        studies: Each pair, in order.
        slices: `view=AP` → metric → score of those pairs.
        tallies: The sufficient statistics behind it all.
        batch: What was scored.
        digest: SHA-256 of the inputs.
        notes: Controls that could not be made, and why.
        image_dependence: The same studies with wrong images, where the run of predictions has them.
        judges: Judge by a language model → how many of its answers could be read, and why the others could not.
        matching: How the rows of references and predictions were matched, and how many.
        cautions: Those of the run that wrote the predictions.
    """

    metrics: Mapping[str, MetricScore]
    floors: Mapping[str, Mapping[str, float]]
    statuses: Mapping[str, int]
    studies: tuple[StudyScore, ...]
    slices: Mapping[str, Mapping[str, SliceScore]]
    tallies: tuple[Tally, ...] = field(repr=False)
    batch: Batch = field(repr=False)
    digest: str = ""
    notes: tuple[str, ...] = ()
    image_dependence: ImageDependence | None = None
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    matching: Mapping[str, Any] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.studies)

    def __getitem__(self, name: str) -> MetricScore:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def best_floor(self, name: str) -> tuple[str, float] | None:
        """The control that does best under a metric, and its value; None when there is none."""
        sign = 1 if self.metrics[name].metric.direction == "higher" else -1
        found = [(control, values.get(name, math.nan)) for control, values in self.floors.items()]
        known = [(control, value) for control, value in found if not math.isnan(value)]
        return max(known, key=lambda item: sign * item[1], default=None)

    def to_json(self) -> dict[str, Any]:
        """The content of `scores.json`."""
        measured = self.image_dependence
        return {
            "n": self.n, "statuses": self.statuses, "matching": self.matching,
            "metrics": {name: score.to_json() for name, score in self.metrics.items()},
            "floors": self.floors, "controls": {"image_dependence": {} if measured is None else measured.to_json()},
            "slices": self.slices, "judges": self.judges, "notes": self.notes, "cautions": self.cautions,
            "interval": METHOD, "inputs_sha256": self.digest,
        }  # fmt: skip


# From fewer patients than this an interval is rough; docs/scoring.md has how often it holds the truth.
SMALL = 30
AGE_BANDS = ((0, "<18"), (18, "18-39"), (40, "40-59"), (60, "60-79"), (80, "80+"))
UNKNOWN = "unknown"


@dataclass(frozen=True)
class SliceScore:
    """One metric on one slice.

    Args:
        value: Over the slice; not-a-number when no pair has a value.
        low: Lower end of its interval by patient; not-a-number with fewer than two patients.
        high: Upper end.
        n: Pairs that entered the value.
        undefined: Pairs of the slice without a value.
        patients: Patients in the slice.
        small: True with fewer than 30 patients.
    """

    value: float
    low: float
    high: float
    n: int
    undefined: int
    patients: int
    small: bool


def get_age_band(age: float) -> str:
    """The band of an age in years: <18, 18-39, 40-59, 60-79 or 80+."""
    return [name for start, name in AGE_BANDS if age >= start][-1] if age >= 0 else UNKNOWN


def mentions_device(findings: Iterable[Finding]) -> bool:
    """Whether any device is stated to be there."""
    return any(finding.present and observation(finding.observation).group is Group.DEVICE for finding in findings)


def select_slices(attributes: Sequence[Attributes]) -> dict[str, NDArray[np.bool_]]:
    """Name of each slice → which pairs are in it [N].

    Names are `view=PA`, `sex=F`, `age=60-79`, `device=present`, and `…=unknown` for the rest where some
    are known. An attribute that is known of no pair, or the same for all, makes no slice.
    """
    columns = {
        "view": [one.view for one in attributes],
        "sex": [one.sex for one in attributes],
        "age": [None if one.age is None else get_age_band(one.age) for one in attributes],
        "device": [None if one.device is None else "present" if one.device else "absent" for one in attributes],
    }
    order = {name: place for place, (_, name) in enumerate(AGE_BANDS)}
    masks: dict[str, NDArray[np.bool_]] = {}
    for attribute, told in columns.items():
        values = np.array([UNKNOWN if value is None else value for value in told], dtype=np.str_)
        kinds = sorted(set(values.tolist()), key=lambda kind: (kind == UNKNOWN, order.get(kind, 0), kind))
        if len(kinds) > 1:
            masks |= {f"{attribute}={kind}": values == kind for kind in kinds}
    return masks


def score_slices(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    attributes: Sequence[Attributes],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> dict[str, dict[str, SliceScore]]:
    """Every metric on every slice, by name of the slice and of the metric.

    Args:
        tallies: Of the whole test set.
        patients: One name a pair, as for the intervals of the whole.
        attributes: One a pair.
        trials: Resamples for each slice.
        level: Of the intervals.
        rng: Source of the resamples.
    """
    if len(patients) != len(attributes):
        raise ValueError(f"{len(attributes)} attributes do not fit {len(patients)} patients")
    return {
        name: _scores(tallies, patients, mask, trials, level, rng) for name, mask in select_slices(attributes).items()
    }


def _scores(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    mask: NDArray[np.bool_],
    trials: int,
    level: float,
    rng: np.random.Generator,
) -> dict[str, SliceScore]:
    inside = [patient for patient, kept in zip(patients, mask, strict=True) if kept]
    parts = _parts(tallies, mask)
    draws = Resamples(inside, trials=trials, rng=rng)
    count = draws.clusters.count
    return {
        part.metric.name: SliceScore(part.value, ends.low, ends.high, part.n, part.undefined, count, count < SMALL)
        for part, ends in zip(parts, draws.estimates(parts, level), strict=True)
    }


def _parts(tallies: Sequence[Tally], mask: NDArray[np.bool_]) -> list[Tally]:
    """The tallies of the slice; those that share their rows go on sharing them."""
    cut: dict[Place, Matrix] = {}
    parts = []
    for tally in tallies:
        memory = memory_key(tally.rows)
        if memory not in cut:
            cut[memory] = tally.rows[mask]
        parts.append(replace(tally, rows=cut[memory], defined=tally.defined[mask]))
    return parts


# None where the control cannot be made of these references.
Floor = Callable[[Batch, np.random.Generator], list[str] | None]

# Of another world, with no word that an image could show.
UNRELATED = (
    "The ferry leaves the harbour at seven and reaches the island before noon. On board there is coffee, bread and a "
    "shelf of old novels. Children count gulls from the upper deck while the captain talks about the weather of the "
    "coming week. In spring the meadows behind the village are yellow, and the bakery opens its garden for guests. "
    "Whoever wants to stay overnight should ask at the post office, where the keys of the cottages are kept."
)


def repeated_word(batch: Batch, rng: np.random.Generator) -> list[str]:
    """The commonest word of the references, as often as each reference has words."""
    words = Counter(word for text in batch.references for word in text.lower().split() if word.isalpha())
    # The first in the alphabet among equals, so that the order of the studies does not matter.
    word = min(words, key=lambda word: (-words[word], word), default="the")
    return [" ".join([word] * len(text.split())) for text in batch.references]


def empty(batch: Batch, rng: np.random.Generator) -> list[str]:
    """No word at all."""
    return [""] * len(batch)


def unrelated(batch: Batch, rng: np.random.Generator) -> list[str]:
    """Prose about a ferry, cut or repeated to the length of each reference."""
    words = UNRELATED.split()
    lengths = [len(text.split()) for text in batch.references]
    return [" ".join((words * (length // len(words) + 1))[:length]) for length in lengths]


def constant_normal(batch: Batch, rng: np.random.Generator) -> list[str]:
    """The same normal report for everyone: `stub:normal`."""
    return [REPORTS["normal"]] * len(batch)


def shuffled(batch: Batch, rng: np.random.Generator) -> list[str] | None:
    """Another patient's reference for each; None when one patient has more than half of the studies."""
    patients = [pair.patient or pair.id for pair in batch.pairs]
    partners = pair_with_other_patients(patients, [pair.id for pair in batch.pairs], rng)
    return None if partners is None else [batch.references[place] for place in partners]


FLOORS: Mapping[str, Floor] = MappingProxyType(
    {
        "repeated-word": repeated_word,
        "empty": empty,
        "unrelated": unrelated,
        "constant-normal": constant_normal,
        "shuffled": shuffled,
    }
)

"""Score predictions against references: every metric with interval, floors, slices and errors of each study.

    scores.json       the numbers, their metric cards, and the scores of the controls (floors)
    per_study.jsonl   each study: both texts, status, values, errors, and the answers of judges
    tallies.json/.npz sufficient statistics, from which runs are compared without scoring again

With judges by language models also answers.sqlite and requests.jsonl, see `models.llm_cache`.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.headline_metrics import best_floor
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.llm_requests import LLMConfig, llm_operational_fields
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, ReportError
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import as_html, as_text, output_width
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import Group, observation
from cxrlab.core.workers import Engine, Workers, open_workers
from cxrlab.data.parallel import ordered_map
from cxrlab.evaluation.config import ScoreConfig, ScoreSettings
from cxrlab.evaluation.generate import PREDICTIONS
from cxrlab.evaluation.image_dependence import ImageDependence, measure_image_dependence, pair_with_other_patients
from cxrlab.evaluation.metric_presets import preset_metrics
from cxrlab.evaluation.score_inputs import Attributes, Inputs, Texts, Unit, load_inputs
from cxrlab.evaluation.score_tables import score_table, short_form
from cxrlab.evaluation.scored_runs import write_tallies
from cxrlab.evaluation.select_metrics import (
    Evidence,
    MetricSelection,
    OpenJudge,
    build_extra_families,
    collect_evidence,
    count_answers,
    evidence_for_pair,
    list_gated_families,
    list_given_families,
    open_judges,
    select_metrics,
    separate_judges,
)
from cxrlab.metrics.base import Family, Matrix, Memory, Metric, Tally, families, join_tallies, memory_key
from cxrlab.metrics.chexpert_labels import Support, observation_support
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.radgraph import by_package
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.statistics.intervals import METHOD, Resamples
from cxrlab.models.baselines import REPORTS

SCORES, PER_STUDY = "scores.json", "per_study.jsonl"
_OPERATIONAL = ("workers", *llm_operational_fields())


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
    workers: int = 0,
) -> ScoreSheet:
    """Score predictions against references.

    Args:
        references: Corpus folder, file, list of reports, or mapping of id to report.
        predictions: Run folder, file, list or mapping; None when the references' file has a `candidate` beside each.
        metrics: Names or groups of metrics, and judges by language models; the default metrics when None.
        section: Of the reference report, where it has sections; several joined with `+`.
        split: Of a corpus; left out, every split that holds a predicted study.
        unit: `study`, or `image` for predictions with ids `study#k`; `auto` decides by the ids.
        allow_missing: Score a missing prediction as an empty report instead of refusing.
        floors: Score the controls too.
        slices: Score by view, sex, age band and device too, where they are known.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides the resamples and the shuffled control.
        extra: Further families (`build_extra_families`), scored without floors.
        llm: Cache, limits and connection of the judges' models.
        judging: Other prompts for judges, and the length of their answers.
        columns: `ROLE=NAME` (candidate, reference, id), for files with columns of other names.
        by_row: Match two files row by row, whatever ids they have.
        workers: Processes for more than 1,024 pairs; 0 for one per core.
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
        chosen = select_metrics(names, extra, beside_judges=bool(opened))
        settings = ScoreSettings(floors=floors, slices=slices, trials=trials, level=level, seed=seed, workers=workers)
        return score_inputs(inputs, chosen, settings, extra, opened)


def score_inputs(
    inputs: Inputs,
    chosen: MetricSelection,
    settings: ScoreSettings,
    extra: Sequence[Family] = (),
    judges: Sequence[OpenJudge] = (),
    workers: Workers | None = None,
) -> ScoreSheet:
    """Score matched pairs by the chosen metrics, those of `extra` families included, and by open judges.

    Args:
        workers: With a `ScoreWorker` of the same inputs and settings each; processes of this machine when None.
    """
    seed, trials, level = settings.seed, settings.trials, settings.level
    batch = Batch(inputs.pairs)
    floors = make_floors(batch, settings)
    notes = [
        f"no floor '{name}': it needs studies of several patients, none with more than half of them"
        for name in FLOORS
        if settings.floors and name not in floors
    ]
    counts = count_in_parts(batch, floors, chosen, extra, settings, workers)
    tallies = counts.tallies
    if all(pair.reference is None for pair in batch.pairs):
        notes.append("no reference has a text, so nothing has a value; is --section the right one?")
    for judge in track(judges, "asking judges"):
        tallies += judge.tallies(batch)
    evidence = collect_evidence(judges, batch)
    patients = [pair.patient or pair.id for pair in batch.pairs]
    resamples = Resamples(patients, trials=trials, rng=generator(seed, "score", "intervals"))
    scores = {
        tally.metric.name: MetricScore(
            tally.metric, tally.value, ends.low, ends.high, tally.n, tally.undefined, observation_support(tally)
        )
        for tally, ends in zip(tallies, resamples.estimates(tallies, level), strict=True)
    }
    by_slice: Mapping[str, Mapping[str, SliceScore]] = {}
    if settings.slices:
        known = [replace(one, device=device) for one, device in zip(inputs.attributes, counts.devices, strict=True)]
        rng = generator(seed, "score", "slices")
        by_slice = score_slices(tallies, patients, known, trials=trials, level=level, rng=rng)
    return ScoreSheet(
        metrics=scores,
        floors=counts.floors,
        statuses=Counter(status.value for status in batch.statuses),
        studies=StudyScores(batch.pairs, tallies, counts.errors, evidence),
        slices=by_slice,
        tallies=tuple(tallies),
        batch=batch,
        digest=inputs.digest,
        notes=tuple(notes),
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
        level=level,
    )


PART = 1024  # pairs whose readings and comparisons are in memory at a time


@dataclass(frozen=True)
class Counts:
    """What is kept of a batch when its texts have been read: counts, errors, and what slices need."""

    tallies: list[Tally]
    floors: Mapping[str, Mapping[str, float]]  # control → metric → value
    errors: Sequence[tuple[ReportError, ...]]  # of each pair
    devices: Sequence[bool | None]  # whether each reference mentions a device; None without a reference


def make_floors(batch: Batch, settings: ScoreSettings) -> dict[str, Sequence[str]]:
    """The candidates of each control that can be made."""
    made = {
        name: control(batch, generator(settings.seed, "control", name))
        for name, control in (FLOORS.items() if settings.floors else ())
    }
    return {name: candidates for name, candidates in made.items() if candidates is not None}


def count_in_parts(
    batch: Batch,
    floors: Mapping[str, Sequence[str]],
    chosen: MetricSelection,
    extra: Sequence[Family],
    settings: ScoreSettings,
    workers: Workers | None = None,
) -> Counts:
    """Count every metric and floor, a thousand pairs at a time, so that memory holds the readings of these alone.

    The first part is counted here, which fills what the others share; they are counted by `workers`, or in processes
    of this machine, besides `extra` families, whose models stay in this process, and families that need the parts in
    order.
    """
    job, here = _plan_parts(batch, floors, chosen, settings)
    several = job.several
    first = _count_part(job, 0)
    form = replace(first, tallies={key: dict(by_name) for key, by_name in first.tallies.items()})
    starts = range(PART, len(batch), PART)
    others: Generator[_Packed, None, None]
    if workers is None:
        others = ordered_map(partial(_packed_part, job), starts, settings.workers if several else 1)
    else:
        others = (packed for packed in workers.map("count", ((start,) for start in starts)))
    counted: dict[str, list[list[Tally]]] = {key: [] for key in ("", *floors)}
    errors: list[tuple[ReportError, ...]] = []
    with_device: list[bool | None] = []
    places = {name: place for place, name in enumerate(chosen.ready)}
    with closing(others):
        found = chain([first], (_unpacked(packed, form) for packed in others))
        for part in track(found, "scoring", total=len(batch), size=len, quiet=None if several else True):
            texts = _candidates(job, len(errors))
            for key, own in _tallies(here, texts, chosen.ready, quiet=True).items():
                part.tallies[key].update(own)
            for family in track(extra, "scoring with what you gave", quiet=True if several else None):
                given = [tally for tally in family.tallies(texts[""]) if tally.metric.name in chosen.extra]
                part.tallies[""].update({tally.metric.name: tally for tally in given})
            for key, by_name in part.tallies.items():
                # In the order of the table, whichever process counted them; those of `extra` follow.
                row = sorted(by_name.values(), key=lambda one: places.get(one.metric.name, len(places)))
                counted[key].append([tally.condensed for tally in row] if key else row)
            errors += part.errors
            with_device += part.devices
    tallies = join_tallies(counted.pop(""))
    values = {key: {tally.metric.name: tally.value for tally in join_tallies(found)} for key, found in counted.items()}
    return Counts(tallies, values, errors, with_device)


def _plan_parts(
    batch: Batch, floors: Mapping[str, Sequence[str]], chosen: MetricSelection, settings: ScoreSettings
) -> tuple[_Job, list[Family]]:
    """What any process may count of a part, and the families that need the parts in order."""
    several, every = len(batch) > PART, families(chosen.ready)
    here = [family for family in every if several and getattr(family, "in_order", False)]
    others = [family for family in every if family not in here]
    return _Job(batch, floors, others, chosen.ready, settings.slices, several), here


class ScoreWorker:
    """The texts and metrics of a run of `score`, in a worker."""

    def __init__(self, config: ScoreConfig) -> None:
        batch = Batch(load_inputs(config.references, config.predictions, **config.matching).pairs)
        names, judges = chosen_metrics(config)
        chosen = select_metrics(names, list_given_families(config), beside_judges=bool(judges))
        self._job, _ = _plan_parts(batch, make_floors(batch, config), chosen, config)

    def count(self, start: int) -> _Packed:
        """The counts of the part from this pair on."""
        return _packed_part(self._job, start)


@dataclass(frozen=True)
class _Job:
    """What a process needs to count a part of a batch."""

    batch: Batch
    floors: Mapping[str, Sequence[str]]
    families: Sequence[Family]
    names: Sequence[str]
    devices: bool
    several: bool


@dataclass(frozen=True)
class _Part:
    """Counts of a part: tallies by control ("" for the candidates) and metric, and errors and devices of each pair."""

    tallies: dict[str, dict[str, Tally]]
    errors: list[tuple[ReportError, ...]]
    devices: list[bool | None]

    def __len__(self) -> int:
        return len(self.errors)


def _candidates(job: _Job, start: int) -> dict[str, Batch]:
    """The pairs from `start` on, and the same references with the texts of each control."""
    part = job.batch.part(start, PART)
    return {"": part} | {
        name: part.with_candidates(texts[start : start + len(part)]) for name, texts in job.floors.items()
    }


def _tallies(
    families: Sequence[Family], batches: Mapping[str, Batch], names: Sequence[str], quiet: bool | None
) -> dict[str, dict[str, Tally]]:
    """Family by family, so that what a family computes of the references is used again for the controls."""
    found: dict[str, dict[str, Tally]] = {key: {} for key in batches}
    for family, key in track([(family, key) for family in families for key in batches], "scoring", quiet=quiet):
        found[key].update({one.metric.name: one for one in family.tallies(batches[key]) if one.metric.name in names})
    return found


def _count_part(job: _Job, start: int) -> _Part:
    batches = _candidates(job, start)
    part = batches[""]
    found = _tallies(job.families, batches, job.names, quiet=True if job.several else None)
    errors = [() if one is None else tuple(one.errors) for one in part.comparisons]
    devices: list[bool | None] = []
    if job.devices:
        devices = [
            None if pair.reference is None else mentions_device(findings)
            for pair, findings in zip(part.pairs, part.reference_findings, strict=True)
        ]
    return _Part(found, errors, devices)


_Packed = tuple[list[list[tuple[Matrix, NDArray[np.bool_]]]], list[tuple[ReportError, ...]], list[bool | None]]


def _packed_part(job: _Job, start: int) -> _Packed:
    """The counts of a part in a form that goes from process to process; arrays that metrics share are sent once."""
    part = _count_part(job, start)
    sent: dict[Memory, NDArray[Any]] = {}
    rows = [
        [tuple(sent.setdefault(memory_key(one), one) for one in (tally.rows, tally.defined)) for tally in row.values()]
        for row in part.tallies.values()
    ]
    return rows, part.errors, part.devices  # type: ignore[return-value]


def _unpacked(packed: _Packed, form: _Part) -> _Part:
    """The counts of a part, with the metrics and functions of another one."""
    rows, errors, devices = packed
    tallies = {
        key: {
            name: replace(like, rows=own, defined=defined)
            for (name, like), (own, defined) in zip(by_name.items(), arrays, strict=True)
        }
        for (key, by_name), arrays in zip(form.tallies.items(), rows, strict=True)
    }
    return _Part(tallies, errors, devices)


def run_score(config: ScoreConfig, out: Path | None = None, engine: Engine | None = None) -> Mapping[str, Any]:
    """Score and write the run folder; returns the content of `scores.json`.

    A finished run with the same settings and texts is left as it is; other texts are an error. A resumed run scores
    again what needs no model, and asks judges only what has no answer yet.

    Args:
        engine: Share the parts of a thousand pairs among workers; the files are those of one process.
    """
    with open_workers(partial(ScoreWorker, config), engine) as workers:
        return _run_score(config, out, workers)


def _run_score(config: ScoreConfig, out: Path | None, workers: Workers | None) -> Mapping[str, Any]:
    inputs = load_inputs(config.references, config.predictions, **config.matching)
    # A new file of graphs under the same name is another input.
    if config.graphs is not None and not by_package(config.graphs):
        content = hashlib.sha256(read_bytes(config.graphs)).hexdigest()
        inputs = replace(inputs, digest=hashlib.sha256(f"{inputs.digest} {content}".encode()).hexdigest())
    if out is not None and finished(out, config, seed=config.seed, operational=_OPERATIONAL):
        stored = read_json(out / SCORES)
        if not isinstance(stored, dict) or not {"metrics", "floors", "statuses", "n"} <= stored.keys():
            raise DataError(f"{out / SCORES} is damaged; choose another folder and score again.")
        if stored.get("inputs_sha256") != inputs.digest:
            raise RunError(f"{out} holds scores of other texts under the same paths; choose another folder.")
        return stored
    if out is not None and (out / PREDICTIONS).exists():
        raise RunError(f"{out} holds the run that wrote predictions; choose another folder for the scores.")
    names, judges = chosen_metrics(config)
    # Before the folder is made: a model that may not receive these texts leaves nothing behind.
    with open_judges(judges, config.llm, inputs.egress_data, out, config.judging) as opened:
        extra = build_extra_families(config)
        chosen = select_metrics(names, extra, beside_judges=bool(opened))
        if workers is not None:
            workers.start(inputs.egress_data, config.llm.connection.egress_permission)
        if out is None:
            sheet = score_inputs(inputs, chosen, config, extra, opened, workers)
        else:
            with Run.open(out, config, seed=config.seed, operational=_OPERATIONAL) as run:
                sheet = score_inputs(inputs, chosen, config, extra, opened, workers)
                write_sheet(run, sheet)
    scores: Mapping[str, Any] = plain(sheet.to_json())
    return scores


def chosen_metrics(config: ScoreConfig) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Metrics (None for the default ones) and judges of a config; a wrong name is refused before weights are loaded."""
    wanted = ("all",) if config.all else config.metrics or None
    if config.preset is not None:
        wanted = preset_metrics(config.preset, vars(config), config.metrics)
    names, judges = separate_judges(wanted)
    if judges:
        select_metrics(names, [family for family, _ in list_gated_families()], beside_judges=True)
    return names, judges


def write_sheet(run: Run, sheet: ScoreSheet) -> None:
    """Write evidence first, conclusions last."""
    run.write(PER_STUDY, (dumps(study) + "\n" for study in sheet.studies))
    write_tallies(run, sheet.batch, sheet.tallies)
    run.write(SCORES, sheet.to_json())


@dataclass(frozen=True)
class MetricScore:
    """One metric over all pairs; `n` of them entered the value, `undefined` have none.

    The value is not-a-number when no pair has one, `low` and `high` with fewer than two patients. A metric of one
    observation has its `support`, the number of positive references and candidates.
    """

    metric: Metric
    value: float
    low: float
    high: float
    n: int
    undefined: int
    support: Support | None = None

    def to_json(self) -> dict[str, Any]:
        """An entry of `scores.json`; a bound that does not exist is null."""
        card = self.metric
        bounds = [None if math.isinf(bound) else bound for bound in card.range]
        return {
            "value": self.value, "low": self.low, "high": self.high, "n": self.n, "undefined": self.undefined,
            "direction": card.direction, "range": bounds, "identity": card.identity, "signature": card.signature,
            **({"support": asdict(self.support)} if self.support else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class StudyScore:
    """One pair: its value by each metric, the errors of the candidate, and the answers of judges."""

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


class StudyScores(Sequence[StudyScore]):
    """The score of each pair, made when it is asked for."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        tallies: Sequence[Tally],
        errors: Sequence[tuple[ReportError, ...]],
        evidence: Mapping[str, Sequence[Evidence]],
    ) -> None:
        self._pairs, self._errors, self._evidence = pairs, errors, evidence
        self._columns = {tally.metric.name: tally.by_pair for tally in tallies}

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, index: int) -> StudyScore: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[StudyScore, ...]: ...

    def __getitem__(self, index: int | slice) -> StudyScore | tuple[StudyScore, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        values = {name: float(column[index]) for name, column in self._columns.items()}
        return StudyScore(self._pairs[index], values, self._errors[index], evidence_for_pair(self._evidence, index))


@dataclass(frozen=True, repr=False)
class ScoreSheet(Mapping[str, MetricScore]):
    """The result of scoring; as a mapping it gives each metric's score by name, and `print` shows a short table."""

    metrics: Mapping[str, MetricScore]
    floors: Mapping[str, Mapping[str, float]]  # control → metric → value of that control against the same references
    statuses: Mapping[str, int]  # status → number of pairs
    studies: Sequence[StudyScore]
    slices: Mapping[str, Mapping[str, SliceScore]]  # `view=AP` → metric → score of those pairs
    tallies: tuple[Tally, ...]
    batch: Batch
    digest: str = ""  # SHA-256 of the inputs
    notes: tuple[str, ...] = ()  # controls that could not be made, and why
    # The same studies with control images, where the run of predictions has them.
    image_dependence: ImageDependence | None = None
    # Judge by a language model → how many of its answers could be read, and why the others could not.
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # How the rows of references and predictions were matched, and how many.
    matching: Mapping[str, Any] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()  # of the run that generated the predictions
    level: float = 0.95  # confidence level of the intervals

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.studies)

    def __repr__(self) -> str:
        return f"ScoreSheet({self.n:,} {'pair' if self.n == 1 else 'pairs'}, {len(self.metrics)} metrics)"

    def __str__(self) -> str:
        return as_text(short_form(plain(self.to_json()), self.level), output_width())

    def _repr_html_(self) -> str:
        return as_html(short_form(plain(self.to_json()), self.level))

    def to_frame(self) -> Any:
        """A pandas data frame with a row per metric: value, interval, best floor, n, undefined."""
        return score_table(plain(self.to_json()), self.metrics, self.level).to_frame()

    def __getitem__(self, name: str) -> MetricScore:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def best_floor(self, name: str) -> tuple[str, float] | None:
        """The best control under a metric, and its value; None when there is none."""
        return best_floor(name, self.metrics[name].metric.direction, self.floors)

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


# With fewer patients an interval is rough; docs/scoring.md has its coverage.
SMALL = 30
AGE_BANDS = ((0, "<18"), (18, "18-39"), (40, "40-59"), (60, "60-79"), (80, "80+"))
UNKNOWN = "unknown"


@dataclass(frozen=True)
class SliceScore:
    """One metric on one slice; see `MetricScore`. `small` is true with fewer than 30 patients."""

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
    """Whether any device is present."""
    return any(finding.present and observation(finding.observation).group is Group.DEVICE for finding in findings)


def select_slices(attributes: Sequence[Attributes]) -> dict[str, NDArray[np.bool_]]:
    """Name of each slice → which pairs are in it [N].

    Names are `view=PA`, `sex=F`, `age=60-79`, `device=present`, and `…=unknown` for the rest where some are known. An
    attribute that is unknown for all pairs, or the same for all, makes no slice.
    """
    columns = {
        "view": [one.view for one in attributes],
        "sex": [one.sex for one in attributes],
        "age": [None if one.age is None else get_age_band(one.age) for one in attributes],
        "device": [None if one.device is None else "present" if one.device else "absent" for one in attributes],
    }
    order = {name: place for place, (_, name) in enumerate(AGE_BANDS)}
    masks: dict[str, NDArray[np.bool_]] = {}
    for attribute, column in columns.items():
        values = np.array([UNKNOWN if value is None else value for value in column], dtype=np.str_)
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
    """Slice → metric → score, from tallies of the whole test set with one patient and one set of attributes per pair."""
    if len(patients) != len(attributes):
        raise ValueError(f"{len(attributes)} attributes do not fit {len(patients)} patients")
    scores: dict[str, dict[str, SliceScore]] = {}
    for name, mask in select_slices(attributes).items():
        cut: dict[Memory, Matrix] = {}  # tallies that share their rows still share them in the slice
        parts = []
        for tally in tallies:
            memory = memory_key(tally.rows)
            if memory not in cut:
                cut[memory] = tally.rows[mask]
            parts.append(replace(tally, rows=cut[memory], defined=tally.defined[mask]))
        inside = [patient for patient, kept in zip(patients, mask, strict=True) if kept]
        resamples = Resamples(inside, trials=trials, rng=rng)
        count = resamples.clusters.count
        scores[name] = {
            part.metric.name: SliceScore(part.value, ends.low, ends.high, part.n, part.undefined, count, count < SMALL)
            for part, ends in zip(parts, resamples.estimates(parts, level), strict=True)
        }
    return scores


# None where the control cannot be made of these references.
Floor = Callable[[Batch, np.random.Generator], list[str] | None]

# Unrelated prose, without a word about images.
UNRELATED = (
    "The ferry leaves the harbour at seven and reaches the island before noon. On board there is coffee, bread and a "
    "shelf of old novels. Children count gulls from the upper deck while the captain talks about the weather of the "
    "coming week. In spring the meadows behind the village are yellow, and the bakery opens its garden for guests. "
    "Whoever wants to stay overnight should ask at the post office, where the keys of the cottages are kept."
)


def repeated_word(batch: Batch, rng: np.random.Generator) -> list[str]:
    """The commonest word of the references, repeated to the length of each."""
    words = Counter(word for text in batch.references for word in text.lower().split() if word.isalpha())
    # Ties go to the first in the alphabet, so that the order of the studies does not matter.
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

"""Predictions against references: every metric with interval, floors, slices and the errors behind it.

scores.json       the numbers, with what they mean and what nonsense would score
per_study.jsonl   each study: both texts, what became of it, its values, its errors, and what judges said of it
tallies.json/.npz sufficient statistics, from which runs are compared without scoring again

With judges by language models also answers.sqlite and requests.jsonl, see `models.asked_once`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.asking import Asking, free_asking
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.json_form import dumps, plain
from cxrlab.core.progress import track
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.controls import CONTROLS, measure
from cxrlab.evaluation.generate import PREDICTIONS
from cxrlab.evaluation.judges import Evidence, OpenJudge, answer_counts, by_pair, judge_evidence, open_judges, parted
from cxrlab.evaluation.metric_choice import Chosen, chosen_metrics, default_cards, extra_families, with_needs
from cxrlab.evaluation.score_inputs import Inputs, Unit, load_inputs
from cxrlab.evaluation.score_results import MetricScore, ScoreSheet, StudyScore
from cxrlab.metrics.families import families
from cxrlab.metrics.judging.table import JudgeSettings
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.radgraph import by_package

if TYPE_CHECKING:
    from cxrlab.evaluation.score_results import Attributes, SliceScore
    from cxrlab.evaluation.score_sources import Texts
    from cxrlab.metrics.tally import Family, Tally

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
    asking: Asking | None = None,
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
        asking: How the models of judges are asked; as usual when None.
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
    names, judges = parted(metrics)
    with open_judges(judges, asking or Asking(), inputs.shown, judging=judging) as opened:
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
    evidence = judge_evidence(judges, batch)
    patients = [pair.patient or pair.id for pair in batch.pairs]
    resamples = Resamples(patients, trials=trials, rng=generator(seed, "score", "intervals"))
    scores = {
        tally.metric.name: MetricScore(tally.metric, tally.value, ends.low, ends.high, tally.n, tally.undefined)
        for tally, ends in zip(tallies, resamples.intervals(tallies, level), strict=True)
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
        image_dependence=measure(
            batch,
            inputs.wrong_images,
            chosen.ready,
            trials=trials,
            level=level,
            rng=generator(seed, "score", "image dependence"),
        ),
        judges=answer_counts(evidence),
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
    if out is not None and finished(out, config, seed=config.seed, free=free_asking()):
        return _stored(out, inputs.digest)
    if out is not None and (out / PREDICTIONS).exists():
        raise RunError(f"{out} holds the run that wrote predictions; choose another folder for the scores.")
    names, judges = parted(("all",) if config.all else config.metrics or None)
    # Before the folder is made: a wrong name, or a model that may not be shown these texts, leaves nothing behind.
    if judges:  # and before weights are loaded
        chosen_metrics(names, [family for family, _ in with_needs()], beside_judges=True)
    with open_judges(judges, config.asking, inputs.shown, out, config.judging) as opened:
        return _run(config, inputs, names, opened, out)


def _run(
    config: ScoreConfig, inputs: Inputs, names: Sequence[str] | None, judges: Sequence[OpenJudge], out: Path | None
) -> Mapping[str, Any]:
    extra = extra_families(config.extras)
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
    with Run.open(out, config, seed=config.seed, free=free_asking()) as run:
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


def _chosen(names: Sequence[str] | None, extra: Sequence[Family], judges: Sequence[OpenJudge] = ()) -> Chosen:
    """What to count beside the judges; of extra families their own choice where none of their metrics is named.

    Nobody gives a file of graphs to see nothing of it.
    """
    found = chosen_metrics(names, extra)
    if not found.extra:
        found = replace(found, extra=tuple(card.name for family in extra for card in default_cards(family)))
    if not (found.ready or found.extra or judges):
        raise ConfigError("no metric was chosen; 'cxrlab metrics ls' lists their names.")
    return found


def _plain(sheet: ScoreSheet) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plain(sheet.to_json())
    return found


def _control_batches(batch: Batch, seed: int) -> tuple[dict[str, Batch], tuple[str, ...]]:
    made, notes = {}, []
    for name, control in CONTROLS.items():
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
        yield StudyScore(pair, values, errors, by_pair(evidence, index))


def _slices(
    batch: Batch,
    tallies: Sequence[Tally],
    patients: Sequence[str],
    attributes: Sequence[Attributes],
    trials: int,
    level: float,
    seed: int,
) -> Mapping[str, Mapping[str, SliceScore]]:
    from cxrlab.evaluation.score_results import has_device, score_slices

    devices = [
        None if pair.reference is None else has_device(findings)
        for pair, findings in zip(batch.pairs, batch.reference_findings, strict=True)
    ]
    known = [replace(item, device=device) for item, device in zip(attributes, devices, strict=True)]
    rng = generator(seed, "score", "slices")
    return score_slices(tallies, patients, known, trials=trials, level=level, rng=rng)

"""A robustness audit from beginning to end, in a run folder.

    truth.jsonl        what is known of each study
    answers.jsonl      what each model returned for each image: clean, corrupted, perturbed for itself or for another
    controls.jsonl     what it returned for control images
    certificates.jsonl of smoothed models the radius within which each clean answer holds
    triptychs.jsonl    a few studies to look at; images in triptychs/
    robustness.json    the conclusions
    summary.json       counts, duration, warnings
    batch.json         the smaller batch size, only where a batch did not fit in memory

A stopped audit continues where it stopped and ends with the same lines; a finished one is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.batch_size import BatchSize
from cxrlab.core.egress import check_egress, check_encrypted, check_key_recipients
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.metrics.base import Matrix
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.robustness.audit_metrics import Evidence, Outputs, read_evidence
from cxrlab.robustness.audit_records import (
    ANSWERS_FILE,
    CLEAN,
    TRUTH_FILE,
    WORST,
    StudyTruth,
    read_answers,
    read_truth,
)
from cxrlab.robustness.audited_models import AuditedModel, AuditedSmoothedModel, load_audited_model
from cxrlab.robustness.audited_studies import Cases, group_by_shape, image_tensor
from cxrlab.robustness.comparison import compare_all
from cxrlab.robustness.condition_results import (
    TRIALS,
    Outcome,
    Outcomes,
    by_label,
    curves,
    describe,
    smallest_harmful,
    wrong_answers_by_study,
)
from cxrlab.robustness.config import ALL, OPERATIONAL, RobustnessConfig, parse_smoothed
from cxrlab.robustness.smoothing import certified_accuracy, write_certificates
from cxrlab.robustness.sweep import PARTLY_WHITE_BOX, Sweep, attacks_with_goals
from cxrlab.robustness.triptychs import write_triptychs
from cxrlab.robustness.validity_checks import (
    examine_control_images,
    image_dependence,
    randomness_warning,
    refusal_warnings,
    weak_attack_warnings,
)

ROBUSTNESS, SUMMARY = "robustness.json", "summary.json"
FEW = 30  # patients; intervals from fewer are rough
_EXAMINED_TWICE = 4  # images that are examined twice, to see whether a model is random


def audit(config: RobustnessConfig, out: Path) -> dict[str, Any]:
    """Attack every model, measure the results, and write the conclusions to RUN/robustness.json."""
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        conclusions: dict[str, Any] = read_json(out / ROBUSTNESS)
        return conclusions
    corpus = load_corpus(config.data)
    cases = Cases(corpus, select_studies(corpus, config.split, config.n, config.seed), config)
    targets = load_audited_models(config, cases)
    for target in targets:
        attacks, notes = attacks_with_goals(target, config)
        if config.attacks and not attacks and not config.corrupted:
            raise ConfigError(f"{' '.join(notes)} Nothing is left to try; add random-report or noise to --attacks.")
        if config.against == "reference" and target.scores and any(one.aim == "report" for one in attacks):
            cases.check_references()
    cases.check_images()
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        done, asked = run.done(TRUTH_FILE), {label.name for label in cases.labels}
        for case in cases.all:
            if case.id not in done:
                truth = {name: value for name, value in case.truth.items() if name in asked}
                run.append(TRUTH_FILE, StudyTruth(case.id, case.patient, case.reference, case.findings, truth))
        Sweep(run, cases, targets, config).sweep()
        examine_control_images(run, cases, targets, config)
        conclusions = _conclude_run(run, cases, targets, config)
        run.write(ROBUSTNESS, conclusions)
        summary = {
            "about": f"{len(targets)} models, {len(cases)} studies, attacks {', '.join(config.attacks) or 'none'}.",
            "models": {target.key: target.name for target in targets},
            "studies": len(cases),
            "warnings": len(conclusions["warnings"]),
        }
        run.write(SUMMARY, summary)
    return conclusions


def load_audited_models(config: RobustnessConfig, cases: Cases) -> list[AuditedModel]:
    """The model under audit, with the key a, and those compared with it."""
    names = (config.model, *config.versus)
    if len(names) > len(ascii_lowercase):
        raise ConfigError(f"{len(names)} models are too many for one audit; name at most {len(ascii_lowercase)}.")
    inner = [smoothed[1] if (smoothed := parse_smoothed(name)) else name for name in names]
    egress = [cases.corpus.egress_data]
    for name in inner:  # all of them before the first is opened
        check_egress(name, egress, config.loading.connection.egress_permission)
        check_encrypted(name, config.loading.connection)
    check_key_recipients(inner, config.loading.connection.key_variable)
    return [
        load_audited_model(key, name, cases.labels, config, egress=egress)
        for key, name in zip(ascii_lowercase, names, strict=False)
    ]


def _conclude_run(run: Run, cases: Cases, targets: Sequence[AuditedModel], config: RobustnessConfig) -> dict[str, Any]:
    """The content of robustness.json from the files of the run, with triptychs and certificates written on the way."""
    names = {target.key: target.name for target in targets}
    answers = list(read_answers(run.path(ANSWERS_FILE)))
    clean = {(one.model, one.study): one for one in answers if one.condition == CLEAN}
    write_triptychs(run, answers, clean, config)
    found = conclude(read_evidence(run.folder), names, trials=config.trials, seed=config.seed)
    truths = list(read_truth(run.path(TRUTH_FILE)))
    for row in found["models"].values():
        target = next(one for one in targets if one.key == row["key"])
        if isinstance(target, AuditedSmoothedModel):
            own = {study: one.image for (key, study), one in clean.items() if key == target.key}
            write_certificates(run, target.key, own, target.smoothing)
            certified = certified_accuracy(
                run, target.key, truths, target.smoothing, trials=config.trials, seed=config.seed
            )
            row["certified"] = plain(certified)
    dependence = image_dependence(run, cases, {key: one.image for key, one in clean.items()}, targets, config)
    found["controls"]["image_dependence"] = dependence
    batch_size = BatchSize(config.batch_size, run.folder)
    warnings = [batch_size.note] if batch_size.note else []
    for key, row in dependence.items():
        if row["verdict"] == "blind":
            warnings.append(
                f"{names[key]} does not look at the image, so that its robustness means nothing: a model that ignores "
                f"pixels cannot be fooled by them. {row['sentence']}"
            )
        elif row["verdict"] == "unclear":
            warnings.append(
                f"{names[key]} is not shown to look at the image, and a model that ignores pixels cannot be fooled by "
                f"them: do not take few changes for robustness. {row['sentence']}"
            )
    warnings += [
        *(line for target in targets for line in attacks_with_goals(target, config)[1]),
        *_random_models(targets, cases, batch_size),
        *refusal_warnings(answers, names),
        *weak_attack_warnings(answers, names),
        *found["warnings"],
    ]
    return {
        "threat": threat(config, targets),
        **found,
        "warnings": warnings,
        "protocol": {
            "labels": cases.kind,
            "labels_asked": [label.name for label in cases.labels],
            "studies": len(cases),
            "split": config.split,
            "norm": config.norm,
            "against": config.against,
            "region": config.region,
            "trials": config.trials,
            "corpus": cases.corpus.card.name,
        },
    }


def _random_models(targets: Sequence[AuditedModel], cases: Cases, batch_size: BatchSize) -> Iterator[str]:
    few = cases.all[:_EXAMINED_TWICE]
    images = [cases.image(case) for case in few]

    def warning(target: AuditedModel, places: Sequence[int]) -> list[str | None]:
        tensors = torch.stack([image_tensor(images[place]) for place in places]).to(target.device)
        return [randomness_warning(target, [few[place] for place in places], tensors)]

    for target in targets:
        found = batch_size.map(group_by_shape(images)[0], partial(warning, target))
        yield from [one for one in found if one][:1]


def threat(config: RobustnessConfig, targets: Sequence[AuditedModel]) -> str:
    """What the attacker sees, can change and may spend, in one sentence; and who permits the test."""
    permission = config.i_am_authorised or "local models, none required"
    if not config.attacks:
        return f"No attacker: images are corrupted as they are in practice. Authorisation: {permission}."
    settings, names = config.attack, set(config.attacks)
    kinds = {name: ATTACKS.load(name) for name in names}
    effort = []
    sees = "answers only"
    if any(kind.needs_scores for kind in kinds.values()) and any(target.scores for target in targets):
        sees = "answers with their probabilities"
    white_box = any(kind.white_box or name in PARTLY_WHITE_BOX for name, kind in kinds.items())
    if white_box and any(target.gradients for target in targets):
        sees = "weights, gradients and answers"
        effort.append(f"{settings.steps} gradient steps × {settings.restarts} starts")
    if names & {"square", "random", "square-report", "random-report", "ensemble"}:
        effort.append(f"{settings.queries} queries")
    unit = "each pixel by at most" if config.norm == "linf" else "the image by a Euclidean length of at most"
    where = "" if config.region == ALL else f" within the region {config.region}"
    return (
        f"The attacker sees {sees}, may change {unit} {', '.join(config.eps)} (pixels from 0 to 1){where}, and may spend "
        f"{' or '.join(effort) or 'nothing'} on each image and radius; prompt and indication are not changed. "
        f"Authorisation: {permission}."
    )


def conclude(
    evidence: Evidence, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7
) -> dict[str, Any]:
    """Every model under every condition, and the models compared: plain values, null where undefined.

    Args:
        names: Key → name of each model; the key itself where it is not given.
        trials: Resamples of patients for every interval.
        seed: Decides resamples and swaps.
    """
    outcomes = Outcomes(evidence, trials=trials, seed=seed)
    given = {key: (names or {}).get(key, key) for key in evidence.models}
    repeated = [name for name in given.values() if list(given.values()).count(name) > 1]
    named = {key: f"{name} ({key})" if name in repeated else name for key, name in given.items()}
    models = {named[key]: _model_results(outcomes, key) for key in track(evidence.models, "concluding")}
    first, *others = evidence.models
    compared = compare_all(outcomes, first, others) if others else {}
    for key, one in compared.items():
        one["names"] = {model: named[model] for model in key.split(":")}
    warnings = []
    if (patients := outcomes.resamples.clusters.count) < FEW:
        warnings.append(f"There are few patients ({patients}); intervals from fewer than {FEW} are rough.")
    content = {"models": models, "comparison": compared, "controls": {}, "warnings": warnings, "interval": METHOD}
    found: dict[str, Any] = plain(content)
    return found


def _model_results(outcomes: Outcomes, model: str) -> dict[str, Any]:
    """One model: clean, under every condition, by label, the smallest harmful radius, and curves."""
    evidence, clean, tables = outcomes.evidence, outcomes.clean(model), outcomes.tables(model)
    row: dict[str, Any] = {"key": model, "clean": describe(clean.image, None)}
    if clean.uint8 is not None:
        row["clean_uint8"] = describe(clean.uint8, None)
    row |= {"attacks": {}, "corruptions": {}, "worst": {}}
    changed = {condition: outcomes.outcome(table) for condition, table in tables.items()}
    for text, outcome in changed.items():
        condition = outcome.table.condition
        if condition.name == WORST:
            row["worst"][condition.eps_text] = _condition_results(outcome, clean)
        else:
            row[f"{condition.kind}s"][text] = _condition_results(outcome, clean)
    row["labels"] = {
        condition: by_label(evidence, table.image, clean.table.image, outcomes.resamples)
        for condition, table in tables.items()
    }
    harms: dict[str, Callable[[Outputs], Matrix]] = {
        "report": outcomes.scores.errors,
        "closed_questions": partial(wrong_answers_by_study, truth=evidence.truth),
    }
    row["smallest_eps"] = {
        name: smallest_harmful(clean.table, outcomes.worst(model), harm, f"harmed.{name}", outcomes.resamples)
        for name, harm in harms.items()
    }
    row["curves"] = curves(clean.image, changed.values())
    return row


def _condition_results(outcome: Outcome, clean: Outcome) -> dict[str, Any]:
    """Quantities, and how the attacks went over the images of which that is known."""
    row = describe(outcome.image, clean.image)
    if outcome.uint8 is not None:
        row["uint8"] = describe(outcome.uint8, clean.uint8 or clean.image)
    known = {name: column[~np.isnan(column)] for name, column in outcome.table.trace.items()}
    if known:
        means = {name: float(column.mean()) if len(column) else None for name, column in known.items()}
        row["realised"] = {
            name: {"mean": means[name], "max": float(known[name].max()) if len(known[name]) else None}
            for name in ("linf", "l2")
        }
        row |= {name: means[name] for name in ("passes", "broken", "zero_gradients")}
    return row

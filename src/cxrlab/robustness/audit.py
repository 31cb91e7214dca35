"""A robustness audit from beginning to end, in a run folder.

    truth.jsonl        what is known of each study
    answers.jsonl      what each model returned for each image: clean, corrupted, perturbed for itself or for another
    controls.jsonl     what it returned for control images
    calibration.jsonl  closed answers about the val split, to which temperatures are fitted
    certificates.jsonl of smoothed models the radius within which each clean answer holds
    triptychs.jsonl    a few studies to look at; images in triptychs/
    robustness.json    the conclusions
    summary.json       counts, duration, warnings
    batch.json         the smaller batch size, only where a batch did not fit in memory

A stopped audit continues where it stopped and ends with the same lines; a finished one is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.egress import check_egress, check_encrypted, check_key_recipients
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.core.workers import Engine, Workers, open_workers
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.robustness.audit_metrics import Evidence, read_evidence
from cxrlab.robustness.audit_records import ANSWERS_FILE, CLEAN, TRUTH_FILE, StudyTruth, read_answers, read_truth
from cxrlab.robustness.audited_models import AuditedModel, load_audited_model
from cxrlab.robustness.audited_studies import Cases
from cxrlab.robustness.calibration import FittedTemperature, fit_temperatures
from cxrlab.robustness.comparison import compare_all
from cxrlab.robustness.condition_results import TRIALS, Outcomes, answers_by_condition, model_results
from cxrlab.robustness.config import ALL, OPERATIONAL, RobustnessConfig, undefended
from cxrlab.robustness.input_defences import input_defence_results, input_defence_warnings
from cxrlab.robustness.micro_batches import MicroBatches
from cxrlab.robustness.shared_audit import AuditWorker, models_of_workers
from cxrlab.robustness.smoothing import certified_accuracy, write_certificates
from cxrlab.robustness.sweep import PARTLY_WHITE_BOX, UNIVERSAL, Sweep, attacks_with_goals, follows_gradients
from cxrlab.robustness.triptychs import write_triptychs
from cxrlab.robustness.validity_checks import (
    examine_control_images,
    image_dependence,
    randomness_warnings,
    refusal_warnings,
    weak_attack_warnings,
)

ROBUSTNESS, SUMMARY = "robustness.json", "summary.json"
FEW = 30  # patients; intervals from fewer are rough


def audit(config: RobustnessConfig, out: Path, engine: Engine | None = None) -> dict[str, Any]:
    """Attack every model, measure the results, and write the conclusions to RUN/robustness.json.

    Args:
        engine: Share the batches of studies among workers; the files are those of one process.
    """
    if engine is not None:
        for name in _inner_names(config):
            engine.check_local(name)
    with open_workers(partial(open_audit_worker, config, out), engine) as workers:
        return _audit(config, out, workers)


def open_audit_worker(config: RobustnessConfig, out: Path) -> AuditWorker:
    """The worker of an audit."""
    cases = _cases(config)
    return AuditWorker(config, cases, load_audited_models(config, cases), out)


def _cases(config: RobustnessConfig) -> Cases:
    corpus = load_corpus(config.data)
    return Cases(corpus, select_studies(corpus, config.split, config.n, config.seed), config)


def _audit(config: RobustnessConfig, out: Path, workers: Workers | None) -> dict[str, Any]:
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        conclusions: dict[str, Any] = read_json(out / ROBUSTNESS)
        return conclusions
    cases, models = prepare_audit(config, workers)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        done, labels = run.done(TRUTH_FILE), {label.name for label in cases.labels}
        for case in cases.all:
            if case.id not in done:
                truth = {name: value for name, value in case.truth.items() if name in labels}
                blank = tuple(name for name in case.blank if name in labels)
                run.append(TRUTH_FILE, StudyTruth(case.id, case.patient, case.reference, case.findings, truth, blank))
        Sweep(run, cases, models, config).sweep(workers)
        examine_control_images(run, cases, models, config, workers)
        temperatures = fit_temperatures(run, cases, models, config, workers)
        conclusions = _conclude_run(run, cases, models, config, temperatures, workers)
        run.write(ROBUSTNESS, conclusions)
        summary = {
            "about": f"{len(models)} models, {len(cases)} studies, attacks {', '.join(config.attacks) or 'none'}.",
            "models": {model.key: model.name for model in models},
            "studies": len(cases),
            "warnings": len(conclusions["warnings"]),
        }
        run.write(SUMMARY, summary)
    return conclusions


def prepare_audit(config: RobustnessConfig, workers: Workers | None = None) -> tuple[Cases, list[AuditedModel]]:
    """The studies and models of an audit; whatever can be refused is refused here."""
    cases = _cases(config)
    if workers is None:
        models = load_audited_models(config, cases)
    else:
        models = models_of_workers(workers, cases, config.loading.connection.egress_permission)
    aims: dict[AuditedModel, set[str]] = {}  # that gradients are taken of
    for model in models:
        attacks, notes = attacks_with_goals(model, config)
        if config.attacks and not attacks and not config.corrupted:
            raise ConfigError(f"{' '.join(notes)} Nothing is left to try; add random-report or noise to --attacks.")
        if config.against == "reference" and model.scores and any(one.aim == "report" for one in attacks):
            cases.check_references()
        aims[model] = {one.aim for one in attacks if model.gradients and one.aim and follows_gradients(one.attack)}
    cases.check_images()
    height, width = cases.image(cases.all[0]).shape[:2]
    for model, names in aims.items():
        for aim in sorted(names):
            if workers is None:
                MicroBatches(cases, config).plan(model, aim, (height, width))  # raises where one image does not fit
            else:
                workers.call("check_memory", model.key, aim, (height, width))
    return cases, models


def load_audited_models(config: RobustnessConfig, cases: Cases) -> list[AuditedModel]:
    """The model under audit, with the key a, and those compared with it."""
    names = config.models
    if len(names) > len(ascii_lowercase):
        raise ConfigError(f"{len(names)} models are too many for one audit; name at most {len(ascii_lowercase)}.")
    inner = _inner_names(config)
    egress = [cases.corpus.egress_data]
    for name in inner:  # all of them before the first is opened
        check_egress(name, egress, config.loading.connection.egress_permission)
        check_encrypted(name, config.loading.connection)
    check_key_recipients(inner, config.loading.connection.key_variable)
    return [
        load_audited_model(key, name, cases.labels, config, egress=egress)
        for key, name in zip(ascii_lowercase, names, strict=False)
    ]


def _inner_names(config: RobustnessConfig) -> list[str]:
    """The models by the names under which they are loaded."""
    return [undefended(name) for name in config.models]


def _conclude_run(
    run: Run, cases: Cases, models: Sequence[AuditedModel], config: RobustnessConfig,
    temperatures: Mapping[str, FittedTemperature], workers: Workers | None,
) -> dict[str, Any]:  # fmt: skip
    """The content of robustness.json from the files of the run, with triptychs and certificates written on the way."""
    names = {model.key: model.name for model in models}
    answers = list(read_answers(run.path(ANSWERS_FILE)))
    clean = {(one.model, one.study): one for one in answers if one.condition == CLEAN}
    write_triptychs(run, answers, clean, config)
    by_model = {key: one.temperature for key, one in temperatures.items()}
    evidence = read_evidence(run.folder)
    found = conclude(evidence, names, trials=config.trials, seed=config.seed, temperatures=by_model)
    truths = list(read_truth(run.path(TRUTH_FILE)))
    for row in found["models"].values():
        model = next(one for one in models if one.key == row["key"])
        if model.key in temperatures:
            row["temperature"] = plain(temperatures[model.key])
        if model.smoothing is not None:
            own = {study: one.image for (key, study), one in clean.items() if key == model.key}
            write_certificates(run, model.key, own, model.smoothing)
            certified = certified_accuracy(
                run, model.key, truths, model.smoothing, trials=config.trials, seed=config.seed
            )
            row["certified"] = plain(certified)
    dependence = image_dependence(run, cases, {key: one.image for key, one in clean.items()}, models, config)
    found["controls"]["image_dependence"] = dependence
    batch_size = BatchSize(config.batch_size, run.folder)
    warnings = [batch_size.note] if batch_size.note else []
    for key, row in dependence.items():
        if row["verdict"] == "ignores_image":
            warnings.append(
                f"{names[key]} does not use the image, so that its robustness means nothing: a model that ignores "
                f"pixels cannot be fooled by them. {row['sentence']}"
            )
        elif row["verdict"] == "unclear":
            warnings.append(
                f"{names[key]} is not shown to use the image, and a model that ignores pixels cannot be fooled by "
                f"them: do not take few changes for robustness. {row['sentence']}"
            )
    warnings += [
        *(line for model in models for line in attacks_with_goals(model, config)[1]),
        *(workers.call("randomness_warnings") if workers else randomness_warnings(models, cases, batch_size)),
        *refusal_warnings(answers, names),
        *weak_attack_warnings(answers, names),
        *input_defence_warnings(found.get("input_defences", {}), config.aims[0]),
        *found["warnings"],
    ]
    return {
        "threat": threat(config, models),
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
            "rounded": config.rounded,
            "blanks": config.blanks,
            "corpus": cases.corpus.card.name,
        },
    }


def threat(config: RobustnessConfig, models: Sequence[AuditedModel]) -> str:
    """What the attacker sees, can change and may spend, in one sentence; and who permits the test."""
    permission = config.i_am_authorised or "local models, none required"
    if not config.attacks:
        return f"No attacker: images are corrupted as they are in practice. Authorisation: {permission}."
    settings, kinds = config.attack, {name: ATTACKS.load(name) for name in config.attacks}
    effort = []
    sees = "answers only"
    if any(kind.needs_scores for kind in kinds.values()) and any(model.scores for model in models):
        sees = "answers with their probabilities"
    white_box = any(kind.white_box or name in PARTLY_WHITE_BOX for name, kind in kinds.items())
    if white_box and any(model.gradients for model in models):
        sees = "weights, gradients and answers"
        effort.append(f"{settings.steps} gradient steps × {settings.restarts} starts")
    if any(not (kind.white_box or kind.is_control) and name != UNIVERSAL for name, kind in kinds.items()):
        effort.append(f"{settings.queries} queries")
    unit = "each pixel by at most" if config.norm == "linf" else "the image by a Euclidean length of at most"
    where = "" if config.region == ALL else f" within the region {config.region}"
    return (
        f"The attacker sees {sees}, may change {unit} {', '.join(config.eps)} (pixels from 0 to 1){where}, and may spend "
        f"{' or '.join(effort) or 'nothing'} on each image and radius; prompt and indication are not changed. "
        f"Authorisation: {permission}."
    )


def conclude(
    evidence: Evidence, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7,
    temperatures: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """Every model under every condition, and the models compared: plain values, null where undefined.

    Args:
        names: Key → name of each model; the key itself where it is not given.
        trials: Resamples of patients for every interval.
        seed: Decides resamples and swaps.
        temperatures: Key → temperature of the model's closed answers, for those that have one.
    """
    outcomes = Outcomes(evidence, trials=trials, seed=seed, temperatures=temperatures)
    given = {key: (names or {}).get(key, key) for key in evidence.models}
    repeated = [name for name in given.values() if list(given.values()).count(name) > 1]
    named = {key: f"{name} ({key})" if name in repeated else name for key, name in given.items()}
    models = {named[key]: model_results(outcomes, key) for key in track(evidence.models, "concluding")}
    if any(study.blank for study in evidence.studies):
        negative = Outcomes(evidence.with_blanks_negative, trials=trials, seed=seed)
        for key in evidence.models:
            models[named[key]]["blanks_negative"] = answers_by_condition(negative, key)
    first, *others = evidence.models
    compared = compare_all(outcomes, first, others) if others else {}
    for key, one in compared.items():
        one["names"] = {model: named[model] for model in key.split(":")}
    warnings = []
    if (patients := outcomes.resamples.clusters.count) < FEW:
        warnings.append(f"There are few patients ({patients}); intervals from fewer than {FEW} are rough.")
    content = {"models": models, "comparison": compared, "controls": {}, "warnings": warnings, "interval": METHOD}
    if behind := input_defence_results(outcomes, given):
        content["input_defences"] = behind
    found: dict[str, Any] = plain(content)
    return found

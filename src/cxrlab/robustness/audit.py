"""A whole audit in a run folder.

    truth.jsonl        what is known of each study
    answers.jsonl      what each model said of each image: clean, corrupted, perturbed, made for itself or for another
    controls.jsonl     what it said of wrong images
    certificates.jsonl of smoothed models the radius inside which each clean answer holds
    triptychs.jsonl    a few studies for a person to look at; pictures in triptychs/
    robustness.json    the conclusions
    summary.json       how many, how long, what was left out
    batch.json         only where a batch did not fit in memory: the smaller one that was used

A stopped audit goes on where it stopped and ends with the same lines; a finished one is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.endpoints import check_egress, check_encrypted, check_key_recipients, connection_operational_fields
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.memory import BatchSize
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.cases import Case, Cases, image_tensor, refuse_unreadable, refuse_without_reference, stacked
from cxrlab.robustness.comparison import compare_all
from cxrlab.robustness.controls import attack_doubts, examine_wrong_images, image_dependence, randomness_doubt, refusals
from cxrlab.robustness.evidence import (
    ANSWERS,
    CLEAN,
    TRUTH,
    WORST,
    Answer,
    Evidence,
    ImageAnswer,
    Said,
    StudyTruth,
    Table,
    parse_condition,
    read_answers,
    read_evidence,
    read_truth,
)
from cxrlab.robustness.outcomes import (
    TRIALS,
    Audit,
    Outcome,
    SmallestEps,
    by_label,
    curves,
    described,
    smallest_harmful,
    wrong_answers,
)
from cxrlab.robustness.settings import RobustnessConfig, parse_smoothed
from cxrlab.robustness.smoothing import certified, keep_certificates
from cxrlab.robustness.sweep import UNIVERSAL, Sweep, aimed_attacks
from cxrlab.robustness.targets import SmoothedTarget, Target, load_target
from cxrlab.robustness.triptychs import TRIPTYCHS, triptych

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image


ROBUSTNESS, SUMMARY = "robustness.json", "summary.json"
USES_GRADIENTS = (UNIVERSAL, "ensemble")  # beside the white-box attacks
OPERATIONAL = (
    "batch_size",
    "smoothing.batch_size",
    *connection_operational_fields("loading.connection"),
)  # may change when a run is continued
_TRIED = 4  # images that are shown twice, to see whether a model is random


def audit(config: RobustnessConfig, out: Path) -> dict[str, Any]:
    """Attack every model, measure what came of it, and conclude into RUN/robustness.json.

    Args:
        config: Settings.
        out: Run folder.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        told: dict[str, Any] = read_json(out / ROBUSTNESS)
        return told
    corpus = load_corpus(config.data)
    cases = Cases(corpus, select_studies(corpus, config.split, config.n, config.seed), config)
    targets = load_targets(config, cases)
    _refuse(config, cases, targets)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        done = run.done(TRUTH)
        for case in cases.all:
            if case.id not in done:
                truth = _asked(case.truth, cases)
                run.append(TRUTH, StudyTruth(case.id, case.patient, case.reference, case.findings, truth))
        Sweep(run, cases, targets, config).sweep()
        examine_wrong_images(run, cases, targets, config)
        conclusions = _concluded(run, cases, targets, config)
        run.write(ROBUSTNESS, conclusions)
        run.write(SUMMARY, _summary(conclusions, cases, targets, config))
    return conclusions


def load_targets(config: RobustnessConfig, cases: Cases) -> list[Target]:
    """The model under audit and those beside it, by the letters that the evidence names them with."""
    names = (config.model, *config.versus)
    if len(names) > len(ascii_lowercase):
        raise ConfigError(f"{len(names)} models are too many for one audit; name at most {len(ascii_lowercase)}.")
    inner = [smoothed[1] if (smoothed := parse_smoothed(name)) else name for name in names]
    shown = [cases.corpus.egress_data]
    for name in inner:  # all of them before the first is opened
        check_egress(name, shown, config.loading.connection.egress_permission)
        check_encrypted(name, config.loading.connection)
    check_key_recipients(inner, config.loading.connection.key_variable)
    return [
        load_target(key, name, cases.labels, config, shown=shown)
        for key, name in zip(ascii_lowercase, names, strict=False)
    ]


def _refuse(config: RobustnessConfig, cases: Cases, targets: Sequence[Target]) -> None:
    """What cannot be audited is told before the first image."""
    for target in targets:
        chosen, left = aimed_attacks(target, config)
        if config.attacks and not chosen and not config.corrupted:
            raise ConfigError(f"{' '.join(left)} Nothing would be tried; add random-report or noise.")
        white = any(one.aim == "report" for one in chosen) and target.scores
        if white and config.against == "reference":
            refuse_without_reference(cases.all, config.section)
    refuse_unreadable(cases)


def _asked(truth: Mapping[str, int], cases: Cases) -> dict[str, int]:
    """The truth of the labels that are asked about."""
    names = {label.name for label in cases.labels}
    return {name: value for name, value in truth.items() if name in names}


def _concluded(run: Run, cases: Cases, targets: Sequence[Target], config: RobustnessConfig) -> dict[str, Any]:
    names = {target.key: target.name for target in targets}
    answers = list(read_answers(run.path(ANSWERS)))
    clean = {(one.model, one.study): one for one in answers if one.condition == CLEAN}
    _keep_triptychs(run, answers, clean, config)
    found = conclude(read_evidence(run.folder), names, trials=config.trials, seed=config.seed)
    right = {key: one.image for key, one in clean.items()}
    _certify(run, found, right, targets, config)
    looks = image_dependence(run, cases, right, targets, config)
    batch_size = BatchSize(config.batch_size, run.folder)
    found["controls"]["image_dependence"] = looks
    warnings = [
        *([batch_size.note] if batch_size.note else []),
        *_blind(looks, names),
        *(line for target in targets for line in aimed_attacks(target, config)[1]),
        *_random(targets, cases, batch_size),
        *refusals(answers, names),
        *attack_doubts(answers, names),
        *found["warnings"],
    ]
    return {
        "threat": threat(config, targets),
        **found,
        "warnings": warnings,
        "protocol": {
            "labels": cases.kind,
            "asked": [label.name for label in cases.labels],
            "studies": len(cases),
            "split": config.split,
            "norm": config.norm,
            "against": config.against,
            "region": config.region,
            "trials": config.trials,
            "corpus": cases.corpus.card.name,
        },
    }


def _certify(
    run: Run, found: Mapping[str, Any], clean: Mapping[tuple[str, str], ImageAnswer], targets: Sequence[Target],
    config: RobustnessConfig,
) -> None:  # fmt: skip
    """Smoothed models get what their votes on clean images certify."""
    by_key = {model["key"]: model for model in found["models"].values()}
    truths = list(read_truth(run.path(TRUTH)))
    for target in targets:
        if isinstance(target, SmoothedTarget):
            said = {study: image for (key, study), image in clean.items() if key == target.key}
            keep_certificates(run, target.key, said, target.smoothing)
            row = certified(run, target.key, truths, target.smoothing, trials=config.trials, seed=config.seed)
            by_key[target.key]["certified"] = plain(row)


def _blind(looks: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> Iterator[str]:
    for key, row in looks.items():
        if row["verdict"] == "blind":
            yield (
                f"{names[key]} does not look at the image, so that its robustness means nothing: a model that ignores "
                f"pixels cannot be fooled by them. {row['sentence']}"
            )
        elif row["verdict"] == "unclear":
            yield (
                f"{names[key]} is not shown to look at the image, and a model that ignores pixels cannot be fooled by "
                f"them: do not take few changes for robustness. {row['sentence']}"
            )


def _random(targets: Sequence[Target], cases: Cases, batch_size: BatchSize) -> Iterator[str]:
    few = cases.all[:_TRIED]
    images = [cases.image(case) for case in few]
    places = stacked(images)[0]
    for target in targets:
        doubts = batch_size.map(places, partial(_doubts, target, few, images))
        yield from [doubt for doubt in doubts if doubt][:1]


def _doubts(target: Target, cases: Sequence[Case], images: Sequence[Image], places: Sequence[int]) -> list[str | None]:
    shown = torch.stack([image_tensor(images[place]) for place in places]).to(target.device)
    return [randomness_doubt(target, [cases[place] for place in places], shown)]


def threat(config: RobustnessConfig, targets: Sequence[Target]) -> str:
    """What the attacker sees, can change and may spend, in one sentence; and who allowed it."""
    sees = _seen(config.attacks, targets)
    sizes = ", ".join(config.eps)
    unit = "each pixel by at most" if config.norm == "linf" else "the image by a Euclidean length of at most"
    where = "" if config.region == "all" else f" within the region {config.region}"
    spends = _spent(config, sees)
    allowed = config.i_am_authorised or "models on this machine, opened by whoever holds them"
    if not config.attacks:
        return f"No attacker: images are corrupted as they are in practice. Leave to test: {allowed}."
    return (
        f"The attacker sees {sees}, may change {unit} {sizes} (pixels from 0 to 1){where}, and may spend {spends} on "
        f"each image and radius; prompt and indication stay. Leave to test: {allowed}."
    )


def _spent(config: RobustnessConfig, sees: str) -> str:
    """What the named attacks may spend on an image."""
    settings, names = config.attack, set(config.attacks)
    parts = []
    if "gradients" in sees:
        parts.append(f"{settings.steps} gradient steps × {settings.restarts} starts")
    if names & {"square", "random", "square-report", "random-report", "ensemble"}:
        parts.append(f"{settings.queries} queries")
    return " or ".join(parts) or "nothing"


def _seen(attacks: Sequence[str], targets: Sequence[Target]) -> str:
    """What the named attacks make use of, as far as any of the models gives it."""
    kinds = {name: ATTACKS.load(name) for name in attacks}
    if any(kind.white_box or name in USES_GRADIENTS for name, kind in kinds.items()):
        if any(target.gradients for target in targets):
            return "weights, gradients and answers"
    if any(kind.needs_scores for kind in kinds.values()) and any(target.scores for target in targets):
        return "answers with their probabilities"
    return "answers alone"


def _keep_triptychs(
    run: Run, answers: Sequence[Answer], clean: Mapping[tuple[str, str], Answer], config: RobustnessConfig
) -> None:
    """Of the studies whose images were kept those with changed findings first, at the middle radius of one attack."""
    condition = _shown(answers, config)
    if condition is None or not config.triptychs:
        return
    truths = {one.id: one for one in read_truth(run.path(TRUTH))}
    lines = [
        line
        for one in answers
        if one.condition == condition and one.model == "a" and one.crafted_on in ("a", None)
        if (line := triptych(run, truths[one.study], clean[one.model, one.study], one)) is not None
    ]
    lines.sort(key=lambda line: -len(line["spans"]["before"]) - len(line["spans"]["after"]) - len(line["label_flips"]))
    text = run.done(TRIPTYCHS)
    for line in lines[: config.triptychs]:
        if line["id"] not in text:
            run.append(TRIPTYCHS, line)


def _shown(answers: Sequence[Answer], config: RobustnessConfig) -> str | None:
    """The condition that people look at: the strongest attack with the first aim, at the middle radius."""
    middle = config.budgets[len(config.budgets) // 2].label if config.budgets else None
    there = {one.condition for one in answers if one.model == "a" and one.attack is not None}
    order = ("apgd", "ensemble", "pgd", "mi-fgsm", "fgsm", *ATTACKS.names())
    found = [text for text in there if (one := parse_condition(text)).eps_text == middle and one.objective is None]
    return min(found, key=lambda text: order.index(parse_condition(text).name), default=None)


def _summary(
    found: Mapping[str, Any], cases: Cases, targets: Sequence[Target], config: RobustnessConfig
) -> dict[str, Any]:
    return {
        "about": f"{len(targets)} models, {len(cases)} studies, attacks {', '.join(config.attacks) or 'none'}.",
        "models": {target.key: target.name for target in targets},
        "studies": len(cases),
        "warnings": len(found["warnings"]),
    }


FEW = 30  # patients; from fewer an interval is rough


def conclude_folder(
    folder: Path, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7
) -> dict[str, Any]:
    """The content of robustness.json from the evidence files of a run folder; see `conclude`."""
    return conclude(read_evidence(folder), names, trials=trials, seed=seed)


def conclude(
    evidence: Evidence, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7
) -> dict[str, Any]:
    """The content of robustness.json: plain values, null where undefined.

    Args:
        evidence: All lines of the audit.
        names: Key → name of each model; the key itself where it is not given.
        trials: Resamples of patients for every interval.
        seed: Decides resamples and swaps.
    """
    audit = Audit(evidence, trials=trials, seed=seed)
    named = _names(evidence, names or {})
    models = {named[key]: _model(audit, key) for key in track(evidence.models, "concluding")}
    first, *others = evidence.models
    compared = compare_all(audit, first, others) if others else {}
    for key, one in compared.items():
        one["names"] = {model: named[model] for model in key.split(":")}
    content = {"models": models, "comparison": compared, "controls": {}, "warnings": _warnings(audit)}
    content["interval"] = METHOD
    told: dict[str, Any] = plain(content)
    return told


def _names(evidence: Evidence, names: Mapping[str, str]) -> dict[str, str]:
    """A name for each model; one that is borne twice gets its key behind it."""
    given = {key: names.get(key, key) for key in evidence.models}
    borne = list(given.values())
    return {key: name if borne.count(name) == 1 else f"{name} ({key})" for key, name in given.items()}


def _model(audit: Audit, model: str) -> dict[str, Any]:
    clean, tables = audit.clean(model), audit.tables(model)
    outcomes = {condition: audit.outcome(table) for condition, table in tables.items()}
    told: dict[str, Any] = {"key": model, "clean": described(clean.image, None)}
    if clean.uint8 is not None:
        told["clean_uint8"] = described(clean.uint8, None)
    told |= {"attacks": {}, "corruptions": {}, "worst": {}}
    for condition, outcome in outcomes.items():
        kind = outcome.table.condition
        if kind.name == WORST:
            told["worst"][kind.eps_text] = _condition(outcome, clean)
        else:
            told[f"{kind.kind}s"][condition] = _condition(outcome, clean)
    told["labels"] = {
        condition: by_label(audit.evidence, table.image, clean.table.image, audit.resamples)
        for condition, table in tables.items()
    }
    told["smallest_eps"] = _smallest(audit, model)
    told["curves"] = curves(clean.image, outcomes.values())
    return told


def _condition(outcome: Outcome, clean: Outcome) -> dict[str, Any]:
    told = described(outcome.image, clean.image)
    if outcome.uint8 is not None:
        told["uint8"] = described(outcome.uint8, clean.uint8 or clean.image)
    return {**told, **_traced(outcome.table)}


def _traced(table: Table) -> dict[str, Any]:
    """How the attacks went, over the images of which it is known; nothing where no image was attacked."""
    known = {name: column[~np.isnan(column)] for name, column in table.trace.items()}
    found = {name: float(column.mean()) if len(column) else None for name, column in known.items()}
    if not found:
        return {}
    realised = {
        name: {"mean": found[name], "max": float(known[name].max()) if len(known[name]) else None}
        for name in ("linf", "l2")
    }
    return {"realised": realised, **{name: found[name] for name in ("passes", "broken", "zero_gradients")}}


def _smallest(audit: Audit, model: str) -> dict[str, Any]:
    """From which size on reports and answers are harmed; nothing by size without an attack."""
    clean, worst = audit.evidence.clean(model), audit.worst(model)
    harms: dict[str, Callable[[Said], Matrix]] = {
        "report": audit.scores.errors,
        "asked": partial(wrong_answers, truth=audit.evidence.truth),
    }
    found = {
        name: smallest_harmful(clean, worst, harm, f"harmed.{name}", audit.resamples) for name, harm in harms.items()
    }
    return {name: _sizes(one) for name, one in found.items()}


def _sizes(found: SmallestEps) -> dict[str, Any]:
    shares = zip(found.grid, found.sizes, found.shares, strict=True)
    return {
        "n": int((~np.isnan(found.by_study)).sum()),
        "median": found.median,
        "harmed": {text: {"eps": size, **share.to_json()} for text, size, share in shares},
    }


def _warnings(audit: Audit) -> list[str]:
    patients, found = audit.resamples.clusters.count, []
    if patients < FEW:
        found.append(f"There are few patients ({patients}); intervals from fewer than {FEW} are rough.")
    return found

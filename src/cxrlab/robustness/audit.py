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

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import torch

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.endpoints import check_egress, check_encrypted, check_key_recipients, connection_operational_fields
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.memory import BatchSize
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.robustness.cases import Case, Cases, image_tensor, refuse_unreadable, refuse_without_reference, stacked
from cxrlab.robustness.certificates import certified, keep_certificates
from cxrlab.robustness.conclude import conclude
from cxrlab.robustness.conditions import CLEAN, parse_condition
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.robustness.controls import examine_wrong_images, image_dependence
from cxrlab.robustness.evidence import ANSWERS, TRUTH, Answer, ImageAnswer, StudyTruth, read_answers, read_truth
from cxrlab.robustness.loading import load_target
from cxrlab.robustness.self_checks import attack_doubts, randomness_doubt, refusals
from cxrlab.robustness.smoothed_target import SmoothedTarget
from cxrlab.robustness.smoothing_config import parse_smoothed
from cxrlab.robustness.sweep import UNIVERSAL, Sweep, aimed_attacks
from cxrlab.robustness.tables import read_evidence
from cxrlab.robustness.targets import Target
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

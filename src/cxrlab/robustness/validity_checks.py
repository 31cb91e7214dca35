"""Checks of an audit itself: control images, and signs that its attacks were too weak.

A model that ignores pixels looks perfectly robust. Noise, a blank image and another patient's image reveal it. A model
that only hides its gradients looks robust too; as in AutoAttack, the losses reveal that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.core.workers import Workers
from cxrlab.evaluation.generate import GREY
from cxrlab.evaluation.image_dependence import MINIMUM_PATIENTS, measure_image_dependence, pair_with_other_patients
from cxrlab.metrics.base import Metric, Tally, mean_tally
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.robustness.audit_metrics import LEVEL
from cxrlab.robustness.audit_records import CLEAN, Answer, ImageAnswer, parse_condition
from cxrlab.robustness.audited_studies import Case, Cases
from cxrlab.robustness.sweep import PARTLY_WHITE_BOX, group_by_shape, image_batch

if TYPE_CHECKING:
    from cxrlab.robustness.audited_models import AuditedModel
    from cxrlab.robustness.config import RobustnessConfig

CONTROLS = "controls.jsonl"
_ACCURACY = Metric("closed_questions.accuracy", "higher", (0.0, 1.0), 1.0, "no label is known")
_EXAMINED_TWICE = 4  # images that are examined twice, to see whether a model is random
_MOST_ZERO = 0.1  # share of gradients that may be 0 everywhere
_TOLERANCE = 1e-3  # of a mean loss, relative to what the strongest attack gained

AnswersByStudy = Mapping[str, ImageAnswer]  # study → answer


def examine_control_images(
    run: Run, cases: Cases, models: Sequence[AuditedModel], config: RobustnessConfig, workers: Workers | None = None
) -> None:
    """Examine control images of some studies with every model; one line each in controls.jsonl."""
    chosen = _with_controls(cases, config)
    done = run.done(CONTROLS)
    batch_size = BatchSize(config.batch_size, run.folder)
    work = [(control, model) for control in config.controls for model in models]
    left = [
        (control, model)
        for control, model in work
        if not done.issuperset(f"{model.key}|{control}|{case.id}" for case in chosen)
    ]
    found: Iterator[dict[str, ImageAnswer] | None]
    if workers is None:
        found = (answers_to_control(control, model, cases, config, batch_size) for control, model in left)
    else:
        found = workers.map("answers_to_control", ((control, model.key) for control, model in left))
    for control, model in track(work, "examining control images", len(work) * len(chosen), size=lambda _: len(chosen)):
        keys = {case.id: f"{model.key}|{control}|{case.id}" for case in chosen}
        if done.issuperset(keys.values()) or (answers := next(found)) is None:
            continue
        for case in chosen:
            if keys[case.id] not in done:
                line = {"id": keys[case.id], "model": model.key, "control": control, "study": case.id}
                run.append(CONTROLS, {**line, "image": answers[case.id]})


def _with_controls(cases: Cases, config: RobustnessConfig) -> list[Case]:
    """The studies that get control images."""
    order = generator(config.seed, "controls").permutation(len(cases))[: config.control_studies]
    return [cases.all[place] for place in sorted(order.tolist())]


def answers_to_control(
    control: str, model: AuditedModel, cases: Cases, config: RobustnessConfig, batch_size: BatchSize
) -> dict[str, ImageAnswer] | None:
    """Study → what a model returns for its control image; None where such images cannot be made."""
    chosen = _with_controls(cases, config)
    if (images := control_images(control, cases, chosen, config.seed)) is None:
        return None
    model.clear_cache()  # as after a restart: an image that was examined in another batch may differ in the last bit
    return dict(batch_size.map(chosen, partial(_examine, model, images)))


def _examine(
    model: AuditedModel, images: Mapping[str, Any], batch: Sequence[Case]
) -> Iterator[tuple[str, ImageAnswer]]:
    for places in group_by_shape([images[case.id] for case in batch]):
        group = [batch[place] for place in places]
        tensors = image_batch([images[case.id] for case in group]).to(model.device)
        yield from zip([case.id for case in group], model.examine(tensors, group), strict=True)


def control_images(control: str, cases: Cases, chosen: Sequence[Case], seed: int) -> dict[str, Any] | None:
    """Study → control image; None where no study of another patient can be found to swap with.

    Args:
        control: noise, blank or swapped.
    """
    if control == "swapped":
        ids, patients = [case.id for case in chosen], [case.patient for case in chosen]
        partners = pair_with_other_patients(patients, ids, generator(seed, "controls", "swapped"))
        if partners is None:
            return None
        return {case.id: cases.image(chosen[place]) for case, place in zip(chosen, partners, strict=True)}
    shapes = {case.id: cases.image(case).shape for case in chosen}
    if control == "blank":
        return {key: np.full(shape, GREY, np.float32) for key, shape in shapes.items()}
    return {key: generator(seed, "noise", key).random(shape, dtype=np.float32) for key, shape in shapes.items()}


def image_dependence(
    run: Run, cases: Cases, clean: Mapping[tuple[str, str], ImageAnswer], models: Sequence[AuditedModel],
    config: RobustnessConfig,
) -> dict[str, Any]:  # fmt: skip
    """Whether each model uses the image, by its reports and by its answers.

    Args:
        run: Whose controls.jsonl is read.
        clean: (model, study) → answer to the clean image.

    Returns:
        Model's key → verdict (uses_image, ignores_image or unclear), sentence, and the two parts.
    """
    path = run.path(CONTROLS)
    lines = [record for _, record in read_jsonl(path)] if path.is_file() else []
    by_case = {case.id: case for case in cases.all}
    found = {}
    for model in models:
        controls: dict[str, dict[str, ImageAnswer]] = {}
        for line in lines:
            if line["model"] == model.key:
                controls.setdefault(line["control"], {})[line["study"]] = ImageAnswer.from_json(line["image"])
        if not controls:
            found[model.key] = {"verdict": "unclear", "sentence": "No control image was examined."}
            continue
        right = {study: clean[model.key, study] for several in controls.values() for study in several}
        parts: dict[str, Any] = {}
        if model.generates_reports:
            parts["reports"] = _dependence_of_reports(by_case, right, controls, config)
        if next(iter(right.values())).label_probs:
            parts["closed_questions"] = _dependence_of_answers(by_case, right, controls, config)
        # One verdict per model: ignoring the image in one respect is worth a warning.
        verdicts = {part["verdict"] for part in parts.values()}
        verdict = next((one for one in ("ignores_image", "unclear") if one in verdicts), "uses_image")
        names = {"reports": "Reports", "closed_questions": "Closed answers"}
        sentence = " ".join(f"{names[key]}: {part['sentence']}" for key, part in parts.items())
        found[model.key] = {"verdict": verdict, "sentence": sentence, **parts}
    return found


def _dependence_of_reports(
    by_case: Mapping[str, Case], right: AnswersByStudy, controls: Mapping[str, AnswersByStudy], config: RobustnessConfig
) -> dict[str, Any]:
    pairs = []
    for key, answer in right.items():
        case = by_case[key]
        # A study with exact findings and no text is compared by its findings.
        reference = case.reference if case.reference is not None or case.findings is None else ""
        pairs.append(Pair(key, reference, answer.report, case.patient, case.findings))
    # Control images that are mostly refused show nothing about how the model uses others.
    answered = {
        name: {key: one.report for key, one in several.items()}
        for name, several in controls.items()
        if 2 * sum(one.refused is True for one in several.values()) <= len(several)
    }
    rng = generator(config.seed, "controls", "reports")
    found = measure_image_dependence(Batch(pairs), answered, (), trials=config.trials, level=LEVEL, rng=rng)
    return found.to_json() if found is not None else {"verdict": "unclear", "sentence": "No report can be compared."}


def _dependence_of_answers(
    by_case: Mapping[str, Case], right: AnswersByStudy, controls: Mapping[str, AnswersByStudy], config: RobustnessConfig
) -> dict[str, Any]:
    """Share of right answers with the right image minus that with each control image, by patient."""

    def accuracy(answers: AnswersByStudy) -> Tally:  # the mean over the studies of their share of right answers
        shares = []
        for key in right:
            probs, truth = answers[key].label_probs, by_case[key].truth
            correct = [(probs[name] > 0.5) == bool(value) for name, value in truth.items() if name in probs]
            shares.append(float(np.mean(correct)) if correct else math.nan)
        return mean_tally(_ACCURACY, shares)

    patients = [by_case[key].patient for key in right]
    resamples = Resamples(patients, trials=config.trials, rng=generator(config.seed, "controls", "asked"))
    share = accuracy(right)
    row: dict[str, Any] = {"right": share.value, "wrong": {}}
    better = {}
    for control, answers in controls.items():
        other = accuracy(answers)
        with_right, with_control = resamples.resample([share, other])
        low, high = with_right.minus(with_control).estimate(LEVEL).ends
        better[control] = bool(low > 0)
        difference = {"difference": share.value - other.value, "low": low, "high": high}
        row["wrong"][control] = {"value": other.value, **difference}
    # Noise and blank images tell a chest from none, not its findings.
    few = len(set(patients)) < MINIMUM_PATIENTS or "swapped" not in better
    verdict = "uses_image" if better.get("swapped") else "unclear" if few else "ignores_image"
    listed = ", ".join(f"{one['value']:.3f} with {name} images" for name, one in row["wrong"].items())
    sentence = f"The share of right answers is {share.value:.3f}, against {listed}."
    return {**row, "verdict": verdict, "sentence": sentence}


def weak_attack_warnings(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every sign that the attacks on a model were too weak.

    Args:
        answers: All answers of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        groups: dict[str, list[Answer]] = defaultdict(list)
        for one in answers:
            if one.model == key and one.attack and one.crafted_on in (key, None):
                groups[one.condition].append(one)
        undefined, zero = {}, {}
        for condition, lines in groups.items():
            traces = [one.attack for one in lines if one.attack]
            if count := sum(not math.isfinite(trace.end) for trace in traces):
                undefined[condition] = count
            # An aim that does not apply to an image has a loss of 0 from start to end.
            shares = [one.zero_gradients for one in traces
                      if not math.isnan(one.zero_gradients) and not one.start == one.end == 0]  # fmt: skip
            if shares and sum(shares) / len(shares) > _MOST_ZERO:
                zero[condition] = sum(shares) / len(shares)
        if undefined:
            condition, count = max(undefined.items(), key=lambda item: item[1])
            yield (
                f"{name}: under {condition} {count} images have a loss that is not finite ({len(undefined)} conditions "
                "in all); they were not really attacked, and say nothing about robustness."
            )
        if zero:
            condition, share = max(zero.items(), key=lambda item: item[1])
            yield (
                f"{name}: {share:.0%} of the gradients under {condition} are 0 in every pixel ({len(zero)} conditions "
                "in all); gradients are masked, and white-box attacks do not show how robust it is."
            )
        yield from _better_without_gradients(name, groups)
        yield from _losses_that_fall_with_the_radius(name, groups)


def _better_without_gradients(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    """A black-box attack, or noise, that reaches more than every attack with gradients at the same radius and aim."""
    white: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    black: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        kind = ATTACKS.load(found.name)
        if found.name in PARTLY_WHITE_BOX or kind.text_only:  # made with gradients too, or by another loss
            continue
        where = (found.eps_text or "", found.objective or "")
        (white if kind.white_box else black)[where][condition] = _mean(one.attack.end for one in lines if one.attack)
    for where, values in black.items():
        if where not in white:
            continue
        best = max(white[where], key=lambda one: white[where][one])  # noqa: B023
        for condition, value in values.items():
            start = _mean(one.attack.start for one in groups[condition] if one.attack)
            gained = max(white[where][best], value) - start
            if value > white[where][best] + max(_TOLERANCE * abs(gained), 1e-6):
                control = ATTACKS.load(parse_condition(condition).name).is_control
                what = condition if control else f"the black-box attack {condition}"
                yield (
                    f"{name}: {what} reaches a higher loss ({value:.3f}) than {best} with gradients "
                    f"({white[where][best]:.3f}); gradients are masked or the white-box attack is too weak."
                )


def _losses_that_fall_with_the_radius(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    curves: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        # FGSM is left out: its one long step may overshoot.
        if ATTACKS.load(found.name).white_box and found.eps is not None and found.name != "fgsm":
            end = _mean(one.attack.end for one in lines if one.attack)
            curves[found.attack].append((found.eps, condition, end))
    for points in curves.values():
        ordered = sorted(points)
        for (_, small, low), (_, large, high) in zip(ordered, ordered[1:], strict=False):
            if high < low - max(_TOLERANCE * abs(low), 1e-6):
                yield (
                    f"{name}: {large} reaches a lower loss ({high:.3f}) than {small} ({low:.3f}), although its ball is "
                    "larger; the attack does not converge: give it more --attack.steps or --attack.restarts."
                )


def _mean(values: Iterable[float]) -> float:
    """Over the finite values."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / max(len(known), 1)


def refusal_warnings(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every model that refused to generate reports: these images count as unknown.

    Args:
        answers: All answers of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        own = [one for one in answers if one.model == key]
        refused = [one for one in own if one.image.refused]
        clean = sum(one.condition == CLEAN for one in refused)
        if refused:
            yield (
                f"{name} refused to generate a report for {len(refused)} of {len(own)} images ({clean} of them clean); "
                "these are left out of every number about reports, and no attack has succeeded on them."
            )


def randomness_warnings(models: Sequence[AuditedModel], cases: Cases, batch_size: BatchSize) -> Iterator[str]:
    """A sentence for every model that answers the same image in different ways."""
    few = cases.all[:_EXAMINED_TWICE]
    images = [cases.image(case) for case in few]

    def warning(model: AuditedModel, places: Sequence[int]) -> list[str | None]:
        tensors = image_batch([images[place] for place in places]).to(model.device)
        return [randomness_warning(model, [few[place] for place in places], tensors)]

    for model in models:
        found = batch_size.map(group_by_shape(images)[0], partial(warning, model))
        yield from [one for one in found if one][:1]


def randomness_warning(model: AuditedModel, cases: Sequence[Case], images: torch.Tensor) -> str | None:
    """A sentence when the same images get different answers: an attack then needs an average over draws."""
    model.clear_cache()
    answers = model.examine(images, cases)
    difference = ""
    if model.scores and model.aims:
        objective = model.objective(model.aims[0], cases, answers, images)
        with torch.no_grad():
            first = objective.losses(images, range(len(images)))
            model.clear_cache()
            second = objective.losses(images, range(len(images)))
        if torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)):
            return None
        largest = float((first - second).abs().nan_to_num().max())
        difference = f" (losses differ by up to {largest:.2g})"
    else:
        model.clear_cache()
        if answers == model.examine(images, cases):
            return None
    return (
        f"{model.name}: the same image gets different answers{difference}; the model is random, and an attack that "
        "follows one draw of it is too weak."
    )

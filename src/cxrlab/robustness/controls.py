"""Does a model look at all? The same questions with wrong images, beside every number of an audit.

A model that ignores pixels looks perfectly robust. Noise, a blank image and another patient's image tell.
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
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.evaluation.generate import GREY
from cxrlab.evaluation.image_dependence import MINIMUM_PATIENTS, measure_image_dependence, pair_with_other_patients
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Metric, mean_tally
from cxrlab.robustness.cases import Case, Cases, image_tensor, stacked
from cxrlab.robustness.evidence import CLEAN, Answer, AttackTrace, ImageAnswer, parse_condition
from cxrlab.robustness.measurements import LEVEL

if TYPE_CHECKING:
    from cxrlab.robustness.settings import RobustnessConfig
    from cxrlab.robustness.targets import Target


CONTROLS = "controls.jsonl"
_ACCURACY = Metric("asked.accuracy", "higher", (0.0, 1.0), 1.0, "no label is known")


def examine_wrong_images(run: Run, cases: Cases, targets: Sequence[Target], config: RobustnessConfig) -> None:
    """Show every model the wrong images of some studies; a line each in controls.jsonl."""
    chosen = _chosen(cases, config)
    done = run.done(CONTROLS)
    batch_size = BatchSize(config.batch_size, run.folder)
    looks = [(control, target) for control in config.controls for target in targets]
    total = len(looks) * len(chosen)
    for control, target in track(looks, "the same with wrong images", total, size=lambda _: len(chosen)):
        keys = {case.id: f"{target.key}|{control}|{case.id}" for case in chosen}
        if not chosen or done.issuperset(keys.values()):
            continue
        images = _wrong_images(control, cases, chosen, config.seed)
        if images is None:
            continue
        said = dict(batch_size.map(chosen, partial(_said, target, images)))
        for case in chosen:
            if keys[case.id] not in done:
                line = {"id": keys[case.id], "model": target.key, "control": control, "study": case.id}
                run.append(CONTROLS, {**line, "image": said[case.id]})


def image_dependence(
    run: Run, cases: Cases, clean: Mapping[tuple[str, str], ImageAnswer], targets: Sequence[Target],
    config: RobustnessConfig,
) -> dict[str, Any]:  # fmt: skip
    """Of each model whether it looks, by its reports and by its answers.

    Args:
        run: Whose controls.jsonl is read.
        cases: The studies.
        clean: (model, study) → what was said of the right image.
        targets: The models.
        config: Settings.

    Returns:
        Model's key → verdict (looks, blind or unclear), sentence, and the two parts.
    """
    path = run.path(CONTROLS)
    lines = [record for _, record in read_jsonl(path)] if path.is_file() else []
    by_case = {case.id: case for case in cases.all}
    found = {}
    for target in targets:
        wrong: dict[str, dict[str, ImageAnswer]] = {}
        for line in lines:
            if line["model"] == target.key:
                wrong.setdefault(line["control"], {})[line["study"]] = ImageAnswer.from_json(line["image"])
        if not wrong:
            found[target.key] = {"verdict": "unclear", "sentence": "No wrong image was shown."}
            continue
        right = {study: clean[target.key, study] for one in wrong.values() for study in one}
        parts: dict[str, Any] = {}
        if target.writes_reports:
            parts["reports"] = _by_reports(by_case, right, wrong, config)
        if next(iter(right.values())).label_probs:
            parts["asked"] = _by_answers(by_case, right, wrong, config)
        found[target.key] = {**_together(target.name, parts), **parts}
    return found


def _said(target: Target, images: Mapping[str, Any], batch: Sequence[Case]) -> Iterator[tuple[str, ImageAnswer]]:
    """What the model says of each study's wrong image."""
    for places in stacked([images[case.id] for case in batch]):
        asked = [batch[place] for place in places]
        shown = torch.stack([image_tensor(images[case.id]) for case in asked]).to(target.device)
        yield from zip([case.id for case in asked], target.examine(shown, asked), strict=True)


def _chosen(cases: Cases, config: RobustnessConfig) -> list[Case]:
    order = generator(config.seed, "controls").permutation(len(cases))[: config.control_studies]
    return [cases.all[place] for place in sorted(order.tolist())]


def _wrong_images(control: str, cases: Cases, chosen: Sequence[Case], seed: int) -> dict[str, Any] | None:
    """A wrong image for each study, grey like the right one; None where no partner can be found."""
    if control == "swapped":
        ids = [case.id for case in chosen]
        partners = pair_with_other_patients(
            [case.patient for case in chosen], ids, generator(seed, "controls", "swapped")
        )
        if partners is None:
            return None
        return {case.id: cases.image(chosen[place]) for case, place in zip(chosen, partners, strict=True)}
    shapes = {case.id: cases.image(case).shape for case in chosen}
    if control == "blank":
        return {key: np.full(shape, GREY, np.float32) for key, shape in shapes.items()}
    return {key: generator(seed, "noise", key).random(shape, dtype=np.float32) for key, shape in shapes.items()}


def _by_reports(
    by_case: Mapping[str, Case], right: Mapping[str, ImageAnswer], wrong: Mapping[str, Mapping[str, ImageAnswer]],
    config: RobustnessConfig,
) -> dict[str, Any]:  # fmt: skip
    pairs = [
        Pair(key, _reference(by_case[key]), answer.report, by_case[key].patient, by_case[key].findings)
        for key, answer in right.items()
    ]
    # A kind of wrong image that is mostly refused tells nothing of what is looked at in others.
    told = {
        name: several for name, several in wrong.items() if 2 * sum(map(_declined, several.values())) <= len(several)
    }
    answers = {control: {key: one.report for key, one in several.items()} for control, several in told.items()}
    rng = generator(config.seed, "controls", "reports")
    found = measure_image_dependence(Batch(pairs), answers, (), trials=config.trials, level=LEVEL, rng=rng)
    return found.to_json() if found is not None else {"verdict": "unclear", "sentence": "No report can be compared."}


def _declined(answer: ImageAnswer) -> bool:
    return answer.refused is True


def _reference(case: Case) -> str | None:
    """A study with exact findings and no text is compared by its findings."""
    return case.reference if case.reference is not None or case.findings is None else ""


def _by_answers(
    by_case: Mapping[str, Case], right: Mapping[str, ImageAnswer], wrong: Mapping[str, Mapping[str, ImageAnswer]],
    config: RobustnessConfig,
) -> dict[str, Any]:  # fmt: skip
    """Share of right answers with the right image minus that with each wrong one, by patient."""
    keys = list(right)
    patients = [by_case[key].patient for key in keys]
    resamples = Resamples(patients, trials=config.trials, rng=generator(config.seed, "controls", "asked"))
    share = mean_tally(_ACCURACY, [_right_share(by_case[key], right[key]) for key in keys])
    told: dict[str, Any] = {"right": share.value, "wrong": {}}
    beaten = {}
    for control, several in wrong.items():
        other = mean_tally(_ACCURACY, [_right_share(by_case[key], several[key]) for key in keys])
        mine, yours = resamples.resample([share, other])
        low, high = mine.minus(yours).estimate(LEVEL).ends
        beaten[control] = bool(low > 0)
        told["wrong"][control] = {
            "value": other.value,
            "difference": share.value - other.value,
            "low": low,
            "high": high,
        }
    few = (
        len(set(patients)) < MINIMUM_PATIENTS or "swapped" not in beaten
    )  # noise and grey tell a chest from none, not its findings
    verdict = "looks" if beaten.get("swapped") else "unclear" if few else "blind"
    listed = ", ".join(f"{row['value']:.3f} with {name} images" for name, row in told["wrong"].items())
    return {**told, "verdict": verdict, "sentence": f"Answers are right in {share.value:.3f} of all, against {listed}."}


def _right_share(case: Case, answer: ImageAnswer) -> float:
    asked = [(answer.label_probs[name] > 0.5) == bool(value) for name, value in case.truth.items()
             if name in answer.label_probs]  # fmt: skip
    return float(np.mean(asked)) if asked else float("nan")


def _together(name: str, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """One verdict a model: blind in one thing is worth a warning."""
    verdicts = [part["verdict"] for part in parts.values()]
    verdict = "blind" if "blind" in verdicts else "unclear" if "unclear" in verdicts else "looks"
    words = {"reports": "Reports", "asked": "Closed answers"}
    told = " ".join(f"{words[key]}: {part['sentence']}" for key, part in parts.items())
    return {"verdict": verdict, "sentence": told}


_ZERO = 0.1  # share of gradients that may be 0 everywhere
_SLACK = 1e-3  # of a mean loss, relative to what the strongest attack gained
_NOT_COMPARED = ("ensemble", "universal")


def attack_doubts(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every sign that the attacks on a model were too weak.

    Args:
        answers: All lines of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        told = [one for one in answers if one.model == key and one.attack and one.crafted_on in (key, None)]
        groups: dict[str, list[Answer]] = defaultdict(list)
        for one in told:
            groups[one.condition].append(one)
        yield from _undefined(name, groups)
        yield from _zero_gradients(name, groups)
        yield from _beaten(name, groups)
        yield from _not_monotone(name, groups)


def refusals(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every model that refused to write on images: they count as not answered, not as harmless or harmed.

    Args:
        answers: All lines of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        asked = [one for one in answers if one.model == key]
        refused = [one for one in asked if one.image.refused]
        clean = sum(one.condition == CLEAN for one in refused)
        if refused:
            yield (
                f"{name} refused to write on {len(refused)} of {len(asked)} images ({clean} of them clean); these are "
                "left out of every number about reports, and no attack has succeeded on them."
            )


def _zero_gradients(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    shares = {}
    for condition, lines in groups.items():
        known = [one.attack.zero_gradients for one in lines if one.attack and _tried(one.attack)]
        if known and sum(known) / len(known) > _ZERO:
            shares[condition] = sum(known) / len(known)
    if shares:
        condition, share = max(shares.items(), key=lambda item: item[1])
        yield (
            f"{name}: {share:.0%} of the gradients under {condition} are 0 in every pixel ({len(shares)} conditions in "
            "all); gradients are masked, and white-box attacks do not show how robust it is."
        )


def _undefined(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    lost = {
        condition: count
        for condition, lines in groups.items()
        if (count := sum(one.attack is not None and not math.isfinite(one.attack.end) for one in lines))
    }
    if lost:
        condition, count = max(lost.items(), key=lambda item: item[1])
        yield (
            f"{name}: under {condition} {count} images have a loss that is no number ({len(lost)} conditions in all); "
            "they were not attacked in earnest, and that they held says nothing."
        )


def _tried(trace: AttackTrace) -> bool:
    """Whether there were gradients, and something to gain: a wish that makes no sense on an image has a loss of 0."""
    return not math.isnan(trace.zero_gradients) and not trace.start == trace.end == 0


def _beaten(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    """A black-box attack, or noise, that reaches more than every attack with gradients at the same radius and aim."""
    white: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    black: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        where = (found.eps_text or "", found.objective or "")
        kind = ATTACKS.load(found.name)
        if found.name in _NOT_COMPARED or kind.text_only:  # made with gradients, or by another measure than a loss
            continue
        (white if kind.white_box else black)[where][condition] = _mean_end(lines)
    for where, values in black.items():
        if where not in white:
            continue
        best = max(white[where], key=lambda one: white[where][one])
        for condition, value in values.items():
            start = _mean_start(groups[condition])
            gained = max(white[where][best], value) - start
            if value > white[where][best] + max(_SLACK * abs(gained), 1e-6):
                control = ATTACKS.load(parse_condition(condition).name).is_control
                what = condition if control else f"the black-box attack {condition}"
                yield (
                    f"{name}: {what} reaches a higher loss ({value:.3f}) than {best} with "
                    f"gradients ({white[where][best]:.3f}); gradients are masked or the white-box attack is too weak."
                )


def _not_monotone(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    curves: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        kind = ATTACKS.load(found.name)
        if kind.white_box and found.eps is not None:
            curves[found.attack].append((found.eps, condition, _mean_end(lines)))
    for attack, points in curves.items():
        if attack.partition(":")[0] == "fgsm":  # one long step may overshoot; that is known and no sign of anything
            continue
        ordered = sorted(points)
        for (_, small, low), (_, large, high) in zip(ordered, ordered[1:], strict=False):
            if high < low - max(_SLACK * abs(low), 1e-6):
                yield (
                    f"{name}: {large} reaches a lower loss ({high:.3f}) than {small} ({low:.3f}), although its ball is "
                    "larger; the attack does not find its way: give it more steps or restarts."
                )


def randomness_doubt(target: Target, cases: Sequence[Case], images: torch.Tensor) -> str | None:
    """A sentence when the same images get different answers: an attack then needs an average over draws."""
    target.forget()
    said = target.examine(images, cases)
    if target.scores and target.aims:
        objective = target.objective(target.aims[0], cases, said, images)
        with torch.no_grad():
            first, second = (objective.losses(images, range(len(images))) for _ in range(2))
        same = torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
        return None if same else _random(target.name, float((first - second).abs().nan_to_num().max()))
    target.forget()
    return None if said == target.examine(images, cases) else _random(target.name, math.nan)


def _random(name: str, most: float) -> str:
    by = "" if math.isnan(most) else f" (losses differ by up to {most:.2g})"
    return (
        f"{name}: the same image gets different answers{by}; the model is random, and an attack that follows one draw "
        "of it is too weak."
    )


def _mean_end(lines: Sequence[Answer]) -> float:
    return _mean(one.attack.end for one in lines if one.attack)


def _mean_start(lines: Sequence[Answer]) -> float:
    return _mean(one.attack.start for one in lines if one.attack)


def _mean(values: Iterable[float]) -> float:
    """Over the values that are numbers."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / max(len(known), 1)

"""Does a model look at all? The same questions with wrong images, beside every number of an audit.

A model that ignores pixels looks perfectly robust. Noise, a blank image and another patient's image tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

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
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.quantities import LEVEL

if TYPE_CHECKING:
    from cxrlab.robustness.config import RobustnessConfig
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

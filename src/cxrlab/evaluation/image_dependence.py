"""Whether a model uses the image: its reports of right images against those of control images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cxrlab.core.headline_metrics import HEADLINES
from cxrlab.evaluation.report_files import split_image_id
from cxrlab.metrics.base import families
from cxrlab.metrics.report_pairs import Batch
from cxrlab.metrics.statistics.intervals import Estimate, Resamples


def pair_with_other_patients(patients: Sequence[str], ids: Sequence[str], rng: np.random.Generator) -> list[int] | None:
    """For each study the index of one of another patient, each used once; None when one patient has more than half.

    Patients are put in random order with their studies side by side. Every study takes the one that follows it by
    as many places as the largest patient has studies, which is never one of the same patient.
    """
    sizes = Counter(patients)
    step = max(sizes.values(), default=0)
    if 2 * step > len(patients):
        return None
    names = sorted(sizes)
    turn = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    order = sorted(range(len(patients)), key=lambda place: (turn[patients[place]], ids[place]))
    given = [0] * len(patients)
    for rank, place in enumerate(order):
        given[place] = order[(rank + step) % len(order)]
    return given


METRIC = "findings.f1.side"
SWAPPED = "swapped"  # the hardest control: the only control image that shows a chest
MINIMUM_PATIENTS = 30  # patients; from fewer an interval is rough

Verdict = Literal["uses_image", "ignores_image", "unclear"]


@dataclass(frozen=True)
class ControlResult:
    """One kind of control image."""

    metrics: Mapping[str, float]  # name → value with this image on the same studies
    # Of the deciding metric: right image minus this one, with the sign turned so that above 0 the right image is
    # better; its interval is by patient.
    difference: Estimate
    unchanged: float  # share of reports that stay word for word the same

    @property
    def beaten(self) -> bool | None:
        """Whether the right image is better; None when there is no interval."""
        return None if math.isnan(self.difference.low) else self.difference.low > 0


@dataclass(frozen=True)
class ImageDependence:
    """Right against control images."""

    n: int  # studies, or images scored one by one, with a report for the right image and for every control image
    patients: int  # of these studies
    right: Mapping[str, tuple[float, float, float]]  # metric → (value, low, high) with the right image
    wrong: Mapping[str, ControlResult]  # control image → its result
    verdict: Verdict  # uses_image, ignores_image or unclear
    sentence: str  # the verdict in words

    def to_json(self) -> dict[str, Any]:
        """`controls.image_dependence` of `scores.json`."""
        keys = ("value", "low", "high")
        return {
            "n": self.n,
            "patients": self.patients,
            "metric": METRIC,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "right": {name: dict(zip(keys, ends, strict=True)) for name, ends in self.right.items()},
            "wrong": {
                name: {
                    "metrics": image.metrics,
                    "difference": {key: getattr(image.difference, key) for key in keys},
                    "unchanged": image.unchanged,
                }
                for name, image in self.wrong.items()
            },
        }


def measure_image_dependence(
    batch: Batch,
    control_reports: Mapping[str, Mapping[str, str | None]],
    metrics: Sequence[str],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> ImageDependence | None:
    """Score right and control images on the studies that have both; None when no study has.

    Of the chosen metrics, the headline metrics are scored, and always the deciding one.
    """
    controls = {kind: texts for kind, texts in control_reports.items() if texts}
    kept = [
        pair
        for pair in batch.pairs
        if pair.candidate is not None and all(texts.get(pair.id) is not None for texts in controls.values())
    ]
    if not controls or not kept:
        return None
    right = Batch(kept)
    batches = {kind: right.with_candidates([str(texts[pair.id]) for pair in kept]) for kind, texts in controls.items()}
    names = list(dict.fromkeys([METRIC, *(name for name in HEADLINES if name in metrics)]))
    tallies = {
        kind: {tally.metric.name: tally for family in families(names) for tally in family.tallies(one)}
        for kind, one in {"": right, **batches}.items()
    }
    resamples = Resamples([pair.patient or pair.id for pair in kept], trials=trials, rng=rng)
    ends = resamples.estimates([tallies[""][name] for name in names], level)
    wrong = {}
    for kind, control in batches.items():
        with_right, with_control = resamples.resample([tallies[""][METRIC], tallies[kind][METRIC]])
        higher = tallies[""][METRIC].metric.direction == "higher"
        gain = with_right.minus(with_control) if higher else with_control.minus(with_right)
        same = [a.split() == b.split() for a, b in zip(right.candidates, control.candidates, strict=True)]
        values = {name: tallies[kind][name].value for name in names}
        wrong[kind] = ControlResult(values, gain.estimate(level), sum(same) / len(same))
    intervals = {name: (end.value, end.low, end.high) for name, end in zip(names, ends, strict=True)}
    result = ImageDependence(len(kept), resamples.clusters.count, intervals, wrong, "unclear", "")
    by_image = all(split_image_id(pair.id)[1] is not None for pair in kept)
    verdict, sentence = _decide(result, ("image", "images") if by_image else ("study", "studies"))
    return replace(result, verdict=verdict, sentence=sentence)


def _decide(found: ImageDependence, unit: tuple[str, str]) -> tuple[Verdict, str]:
    """The verdict and its sentence, by the swapped image where there is one, else by all kinds together."""
    kinds = _listed(list(found.wrong))
    where = f"{found.n:,} {unit[found.n != 1]} of "
    where += f"{found.patients:,} {'patient' if found.patients == 1 else 'patients'}"
    few = f" There are few patients ({found.patients})." if found.patients < MINIMUM_PATIENTS else ""
    # With one patient an unchanged report may be a normal one, which a model that uses the image generates for noise too.
    if found.patients > 1 and all(image.unchanged == 1 for image in found.wrong.values()):
        return "ignores_image", (
            f"This model does not use the image: on {where} every report stays word for word the same with "
            f"{kinds} images.{few}"
        )
    deciding = [found.wrong[SWAPPED]] if SWAPPED in found.wrong else list(found.wrong.values())
    known = [image.beaten for image in deciding if image.beaten is not None]
    if not known or (found.patients < MINIMUM_PATIENTS and not all(known)):
        return "unclear", f"Whether this model uses the image is unclear: the test has only {where}."
    if found.right[METRIC][0] == 0:
        same = _listed([f"{image.unchanged:.0%} with {kind} images" for kind, image in found.wrong.items()])
        return "unclear", (
            f"Whether this model uses the image is unclear: on {where} "
            f"{METRIC} is 0 with the right images too. Reports that stay the same: {same}."
        )
    right = f"{METRIC} {found.right[METRIC][0]:.3f}"
    wrong = _listed([f"{image.metrics[METRIC]:.3f} with {kind} images" for kind, image in found.wrong.items()])
    if any(known):
        as_good = [kind for kind, image in found.wrong.items() if not image.beaten]
        but = f" It is no worse with {_listed(as_good)} images." if as_good else ""
        return "uses_image", f"This model uses the image: on {where} {right} against {wrong}.{but}{few}"
    return "ignores_image", (
        f"This model does not use the image, as far as {where} can tell: {right}, no better than {wrong}."
    )


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

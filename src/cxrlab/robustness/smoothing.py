"""Randomised smoothing: closed answers by a vote over noisy copies of an image, and what the votes certify.

Each image is examined many times under Gaussian noise. The majority is the answer; where the votes are too even for a
majority, there is no answer. Whatever the model, a change of the image by less than

    σ · Φ⁻¹(share of the majority)

in Euclidean length cannot give the other answer the majority. The lower confidence bound of the share stands for the
unknown true one, so that a radius is wrong with a probability of at most alpha. Noisy pixels are clipped to [0, 1];
this counts as a part of the model and leaves the bound as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.metrics.base import Matrix
from cxrlab.metrics.statistics.intervals import Resamples, clopper_pearson
from cxrlab.robustness.audit_metrics import mean_of_cells, quantities
from cxrlab.robustness.audit_records import ImageAnswer, StudyTruth

if TYPE_CHECKING:
    from torch import Tensor

CERTIFICATES = "certificates.jsonl"
RADII = (0.0, 0.25, 0.5, 1.0)  # in standard deviations of the noise


@dataclass(frozen=True)
class Smoothing:
    """How answers are smoothed; the settings are checked by `SmoothingSettings`."""

    sigma: float = 0.1  # Standard deviation of the noise, where black is 0 and white 1
    n: int = 100  # Noisy copies of each image
    alpha: float = 0.001  # Probability with which an answer or a radius may be wrong
    seed: int = 7  # With the name of an image it decides its noise
    batch_size: int = 32  # Noisy copies per batch


@dataclass(frozen=True)
class SmoothedAnswer:
    """The vote on one question about one image."""

    yes: int  # Copies that were answered by yes
    n: int  # Copies
    answer: bool | None  # The majority; None where the votes do not decide it
    # Euclidean length of a change, in units of the pixel range, within which the majority stays; 0 without an answer
    radius: float


def over_copies(
    model: Callable[[Tensor], Tensor], images: Sequence[Tensor] | Tensor, keys: Sequence[str], copies: int,
    settings: Smoothing,
) -> Tensor:  # fmt: skip
    """Outputs for noisy copies, [images, copies, …]; differentiable, with at most one batch in memory.

    Args:
        model: Images [B, C, H, W] → [B, …].
        images: [C, H, W] each, of one shape.
        keys: Name of each image; with the seed it decides the noise of its copies.
        copies: Copies of each image; the first ones are the same for any number.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    count = len(images) * copies
    batches = max(-(-count // settings.batch_size), 1)
    drawn = _noisy_copies(images, keys, copies, settings)
    found = []
    for number in range(batches):
        noisy = torch.stack([next(drawn) for _ in range(count // batches + (number < count % batches))])
        if noisy.requires_grad:
            # Activations of a batch are dropped, and computed again when its gradient is needed.
            found.append(checkpoint(model, noisy, use_reentrant=False, preserve_rng_state=False))
        else:
            found.append(model(noisy))
    outputs = torch.cat(found)
    return outputs.reshape(len(images), copies, *outputs.shape[1:])


def _noisy_copies(
    images: Sequence[Tensor] | Tensor, keys: Sequence[str], copies: int, settings: Smoothing
) -> Iterator[Tensor]:
    """Every copy of the first image, then of the second …, clipped to [0, 1]."""
    import torch

    for image, key in zip(images, keys, strict=True):
        source = generator(settings.seed, "smoothing", key)
        for _ in range(copies):
            noise = torch.from_numpy(source.standard_normal(tuple(image.shape), dtype=np.float32))
            yield (image + noise.to(image) * settings.sigma).clamp(0, 1)


@lru_cache(maxsize=4096)
def vote(yes: int, n: int, sigma: float, alpha: float) -> SmoothedAnswer:
    """The answer and radius of `yes` of `n` votes.

    The bounds on both sides have alpha / 2 each, which is why the same votes may choose the majority and bound its
    share. They exclude one half exactly when the two-sided binomial test at alpha does.
    """
    low, high = clopper_pearson(yes, n, alpha).ends
    if low > 0.5 or high < 0.5:
        share = max(low, 1 - high)
        return SmoothedAnswer(yes, n, low > 0.5, sigma * NormalDist().inv_cdf(share))
    return SmoothedAnswer(yes, n, None, 0.0)


def vote_of_share(share: float, settings: Smoothing) -> SmoothedAnswer:
    """The vote with this share of yes."""
    return vote(round(share * settings.n), settings.n, settings.sigma, settings.alpha)


def write_certificates(run: Run, key: str, clean: Mapping[str, ImageAnswer], settings: Smoothing) -> None:
    """One line per study in certificates.jsonl: for each label the votes, the answer and its radius.

    Args:
        key: Of the smoothed model.
        clean: Study → answer to the clean image.
    """
    done = run.done(CERTIFICATES)
    for study, answer in clean.items():
        line = f"{key}|{study}"
        if line not in done:
            answers = {name: vote_of_share(share, settings) for name, share in answer.label_probs.items()}
            run.append(CERTIFICATES, {"id": line, "model": key, "study": study, "answers": answers})


def certified_accuracy(
    run: Run, key: str, truths: Iterable[StudyTruth], settings: Smoothing, *, trials: int, seed: int
) -> dict[str, Any]:
    """Shares of the known labels that are right and cannot change within a radius, and of those without an answer.

    Args:
        run: Whose certificates.jsonl is read.
        key: Of the smoothed model.
        truths: Of all studies.
        trials: Resamples of patients.
        seed: Decides them.
    """
    studies = list(truths)
    lines = {record["study"]: record["answers"] for _, record in read_jsonl(run.path(CERTIFICATES))
             if record["model"] == key}  # fmt: skip
    names = sorted({name for answers in lines.values() for name in answers})

    def cells(value: Callable[[Mapping[str, Any], int], bool]) -> Matrix:  # [studies, labels]
        known = [(study.labels, lines[study.id]) for study in studies]
        return np.array(
            [[value(answers[name], labels[name]) if name in labels and name in answers else np.nan for name in names]
             for labels, answers in known], np.float64,
        )  # fmt: skip

    def right_within(radius: float) -> Matrix:
        return cells(
            lambda vote, label: (
                vote["answer"] is not None and vote["answer"] == bool(label) and vote["radius"] >= radius
            )
        )

    sizes = [radius * settings.sigma for radius in RADII]
    tallies = {f"{size:g}": mean_of_cells("certified", right_within(size)) for size in sizes}
    tallies["abstained"] = mean_of_cells("abstained", cells(lambda vote, label: vote["answer"] is None))
    patients = [study.patient for study in studies]
    resamples = Resamples(patients, trials=trials, rng=generator(seed, "robustness", "intervals"))
    found = {name: one.to_json() for name, one in quantities(tallies, resamples).items()}
    return {
        "sigma": settings.sigma,
        "copies": settings.n,
        "alpha": settings.alpha,
        "largest": vote(settings.n, settings.n, settings.sigma, settings.alpha).radius,
        "abstained": found.pop("abstained"),
        "right_within": found,
        "sentence": (
            "Closed answers to clean images that are right and stay right under every change of at most this Euclidean "
            "length (ε in each of P pixels is ε·√P); each may be wrong with a probability of at most "
            f"{settings.alpha:g}. Reports are not smoothed."
        ),
    }

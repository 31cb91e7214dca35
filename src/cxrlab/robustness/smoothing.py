"""Closed answers by a vote over noisy copies of an image, with a radius inside which the vote cannot be turned.

An image is shown many times, each time under other Gaussian noise. The majority is the answer; where the votes are too
even to tell the majority, there is no answer. Whatever the model is, a change of the image by less than

    σ · Φ⁻¹(share of the majority)

in Euclidean length cannot give the other answer the majority. The true share is not known: its lower confidence bound
stands for it, so that a radius is wrong with a probability of at most alpha. Noisy pixels are cut to [0, 1] after the
noise is added; this counts as a part of the model and leaves the bound as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.protocols import Capabilities
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.intervals import clopper_pearson
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.evidence import ImageAnswer, StudyTruth
from cxrlab.robustness.measurements import mean_of_cells, quantities
from cxrlab.robustness.settings import least_copies

if TYPE_CHECKING:
    from torch import Tensor


class AnswersClosedQuestions(Protocol):
    """What is smoothed; `HfModel` is one."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it."""
        ...

    @property
    def device(self) -> Any:
        """Where its weights are."""
        ...

    def probability_of_yes(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        """[B] in [0, 1] for images [B, 1 or 3, H, W]."""
        ...


@dataclass(frozen=True)
class Smoothing:
    """How answers are smoothed.

    Args:
        sigma: Standard deviation of the noise, where black is 0 and white 1.
        n: Noisy copies of each image.
        alpha: Probability with which an answer or a radius may be wrong.
        seed: With the name of an image it decides its noise.
        batch_size: Noisy copies of an image at once.
    """

    sigma: float = 0.1
    n: int = 100
    alpha: float = 0.001
    seed: int = 7
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ConfigError(f"sigma={self.sigma} is not usable; give a number above 0, such as 0.1.")
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} is not usable; give a probability between 0 and 1, such as 0.001.")
        for name in ("n", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number of at least 1.")
        if self.n < least_copies(self.alpha):
            raise ConfigError(
                f"n={self.n} noisy copies cannot tell a majority at alpha={self.alpha:g} even if all agree; use n >= "
                f"{least_copies(self.alpha)}."
            )


@dataclass(frozen=True)
class SmoothedAnswer:
    """The vote on one question about one image.

    Args:
        yes: Copies that were answered by yes.
        n: Copies.
        answer: The majority; None where the votes cannot tell it.
        radius: Euclidean length of a change of the image, in units of the pixel range, within which the majority stays;
            0 where there is no answer.
    """

    yes: int
    n: int
    answer: bool | None
    radius: float

    @property
    def probability(self) -> float:
        """Share of the copies that were answered by yes."""
        return self.yes / self.n


class Smoothed:
    """A model whose closed answers are votes over noisy copies.

    Args:
        model: What is asked.
        settings: Noise, copies and confidence.
    """

    capabilities = Capabilities(batch=True)  # a vote has no gradient; see `expected_probability`

    def __init__(self, model: AnswersClosedQuestions, settings: Smoothing | None = None) -> None:
        self.model, self.settings = model, settings or Smoothing()

    @property
    def name(self) -> str:
        """`smoothed:SIGMA:MODEL`."""
        return f"smoothed:{self.settings.sigma:g}:{self.model.name}"

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self.model.device

    def answers(
        self, images: Any, questions: Sequence[str] | str, keys: Sequence[str] | None = None
    ) -> list[SmoothedAnswer]:
        """The vote on each image's question; that of an image does not depend on the others.

        Args:
            images: As `HfModel` takes them; sizes may differ.
            questions: One an image, or one for all of them.
            keys: Name of each image, which with the seed decides its noise; its own pixels when left out. A name gives
                a image before and after an attack the same noise.
        """
        import torch

        settings = self.settings
        found = []
        with torch.no_grad():
            for image, question, key in self._given(images, questions, keys):
                answered = self._over_copies(image, question, key, settings.n)
                found.append(vote(int((answered > 0.5).sum()), settings.n, settings.sigma, settings.alpha))
        return found

    def probability_of_yes(
        self, images: Any, questions: Sequence[str] | str, keys: Sequence[str] | None = None
    ) -> Tensor:
        """[B] in [0, 1], share of the copies that are answered by yes; see `answers`."""
        import torch

        found = [one.probability for one in self.answers(images, questions, keys)]
        return torch.tensor(found, dtype=torch.float32, device=self.device)

    def expected_probability(
        self, images: Any, questions: Sequence[str] | str, keys: Sequence[str] | None = None, copies: int = 8
    ) -> Tensor:
        """[B], mean probability of yes over the first copies; differentiable to the pixels.

        An attacker who knows of the noise follows this one: the vote itself has no gradient.
        """
        import torch

        given = self._given(images, questions, keys)
        return torch.stack([self._over_copies(image, question, key, copies).mean() for image, question, key in given])

    def _given(
        self, images: Any, questions: Sequence[str] | str, keys: Sequence[str] | None
    ) -> list[tuple[Tensor, str, str]]:
        """Each image with its question and its name."""
        from cxrlab.models.hf.generation import image_key
        from cxrlab.models.hf.inputs import as_images

        radiographs = as_images(images, self.device)
        asked = [questions] * len(radiographs) if isinstance(questions, str) else list(questions)
        names = [image_key(image, "") for image in radiographs] if keys is None else list(keys)
        if not len(radiographs) == len(asked) == len(names):
            raise DataError(
                f"{len(radiographs)} images came with {len(asked)} questions and {len(names)} names; give one an image."
            )
        return list(zip(radiographs, asked, names, strict=True))

    def _over_copies(self, image: Tensor, question: str, key: str, copies: int) -> Tensor:
        """Probability of yes for each noisy copy of an image, [copies]; the first ones are the same for any number."""
        return over_copies(
            lambda noisy: self.model.probability_of_yes(noisy, [question] * len(noisy)), [image], [key], copies,
            self.settings,
        )[0]  # fmt: skip


def over_copies(
    ask: Callable[[Tensor], Tensor], images: Sequence[Tensor] | Tensor, keys: Sequence[str], copies: int,
    settings: Smoothing,
) -> Tensor:  # fmt: skip
    """What is said of noisy copies, [images, copies, …]; differentiable, and never more than a batch in memory.

    Args:
        ask: Images [B, C, H, W] → a row each, [B, …].
        images: [C, H, W] each, of one shape.
        keys: Name of each image; with the seed it decides the noise of its copies.
        copies: Of each image; the first ones are the same for any number.
        settings: Noise, seed, and how many copies are shown at once.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    count = len(images) * copies
    batches = max(-(-count // settings.batch_size), 1)
    drawn = _noisy(images, keys, copies, settings)
    found = []
    for number in range(batches):
        noisy = torch.stack([next(drawn) for _ in range(count // batches + (number < count % batches))])
        if noisy.requires_grad:
            # Of every batch but one the way back is forgotten and gone again when the gradient is asked for.
            found.append(checkpoint(ask, noisy, use_reentrant=False, preserve_rng_state=False))
        else:
            found.append(ask(noisy))
    together = torch.cat(found)
    return together.reshape(len(images), copies, *together.shape[1:])


def _noisy(
    images: Sequence[Tensor] | Tensor, keys: Sequence[str], copies: int, settings: Smoothing
) -> Iterator[Tensor]:
    """Every copy of the first image, then of the second …, cut to [0, 1]."""
    import torch

    for image, key in zip(images, keys, strict=True):
        source = generator(settings.seed, "smoothing", key)
        for _ in range(copies):
            drawn = torch.from_numpy(source.standard_normal(tuple(image.shape), dtype=np.float32))
            yield (image + drawn.to(image) * settings.sigma).clamp(0, 1)


@lru_cache(maxsize=4096)
def vote(yes: int, n: int, sigma: float, alpha: float) -> SmoothedAnswer:
    """What `yes` of `n` votes come to.

    The bounds on both sides have alpha / 2 each, which is why the same votes may choose the majority and bound its
    share. They exclude one half exactly when the two-sided binomial test at alpha does.
    """
    low, high = clopper_pearson(yes, n, alpha).ends
    if low > 0.5 or high < 0.5:
        share = max(low, 1 - high)
        return SmoothedAnswer(yes, n, low > 0.5, sigma * NormalDist().inv_cdf(share))
    return SmoothedAnswer(yes, n, None, 0.0)


CERTIFICATES = "certificates.jsonl"
RADII = (0.0, 0.25, 0.5, 1.0)  # in standard deviations of the noise


def keep_certificates(run: Run, key: str, clean: Mapping[str, ImageAnswer], settings: Smoothing) -> None:
    """A line a study in certificates.jsonl: of each label the votes, the answer and its radius.

    Args:
        run: The open run.
        key: Of the smoothed model.
        clean: Study → what it said of the clean image.
        settings: Of its votes.
    """
    done = run.done(CERTIFICATES)
    for study, said in clean.items():
        line = f"{key}|{study}"
        if line not in done:
            answers = {name: voted(share, settings) for name, share in said.label_probs.items()}
            run.append(CERTIFICATES, {"id": line, "model": key, "study": study, "answers": answers})


def voted(share: float, settings: Smoothing) -> SmoothedAnswer:
    """What a share of yes among the copies comes to."""
    return vote(round(share * settings.n), settings.n, settings.sigma, settings.alpha)


def certified(
    run: Run, key: str, truths: Sequence[StudyTruth], settings: Smoothing, *, trials: int, seed: int
) -> dict[str, Any]:
    """Share of the known labels that are answered rightly and cannot be turned within a radius, and of no answers.

    Args:
        run: Whose certificates.jsonl is read.
        key: Of the smoothed model.
        truths: Of all studies.
        settings: Of its votes.
        trials: Resamples of patients.
        seed: Decides them.
    """
    lines = {record["study"]: record["answers"] for _, record in read_jsonl(run.path(CERTIFICATES))
             if record["model"] == key}  # fmt: skip
    sizes = [radius * settings.sigma for radius in RADII]
    tables = {f"{size:g}": _cells(truths, lines, size) for size in sizes}
    resamples = Resamples(
        [one.patient for one in truths], trials=trials, rng=generator(seed, "robustness", "intervals")
    )
    tallies = {name: mean_of_cells("certified", cells) for name, cells in tables.items()}
    tallies["abstained"] = mean_of_cells("abstained", _cells(truths, lines, None))
    found = {name: one.to_json() for name, one in quantities(tallies, resamples).items()}
    return {
        "sigma": settings.sigma,
        "copies": settings.n,
        "alpha": settings.alpha,
        "largest": vote(settings.n, settings.n, settings.sigma, settings.alpha).radius,
        "abstained": found.pop("abstained"),
        "right_within": found,
        "sentence": (
            f"Closed answers to clean images that are right and stay so under every change of at most this Euclidean "
            f"length (ε in each of P pixels is ε·√P), each wrongly with a probability of at most {settings.alpha:g}; "
            "reports are not smoothed."
        ),
    }


def _cells(truths: Iterable[StudyTruth], lines: Mapping[str, Mapping[str, Any]], size: float | None) -> Matrix:
    """[studies, labels]: 1 where an answer is right at this radius, or with None where there is no answer; else 0."""
    names = sorted({name for answers in lines.values() for name in answers})
    return np.array([[_cell(truth, lines[truth.id], name, size) for name in names] for truth in truths], np.float64)


def _cell(truth: StudyTruth, answers: Mapping[str, Any], name: str, size: float | None) -> float:
    if name not in truth.labels or name not in answers:
        return np.nan
    answer = answers[name]["answer"]
    if size is None:
        return float(answer is None)
    return float(answer is not None and answer == bool(truth.labels[name]) and answers[name]["radius"] >= size)

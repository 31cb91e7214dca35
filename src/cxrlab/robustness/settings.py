"""What an attacker may want, by name, and what he wishes a report to say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.attacks.config import ATTACKS, AttackSettings, Budget, Norm, parse_eps
from cxrlab.attacks.corruptions import CORRUPTIONS, SEVERITIES
from cxrlab.attacks.regions import parse_region
from cxrlab.core.endpoints import connection_operational_fields
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.core.vocabulary import observation
from cxrlab.evaluation.config import CONTROL_IMAGES
from cxrlab.models.baselines import REPORTS
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

REPORT, ANSWERS, EMBEDDING = "report", "answers", "embedding"
TARGET, REMOVE, INVENT = "target", "remove", "invent"
BY_WISH = (TARGET, REMOVE, INVENT)
AIMS = (REPORT, ANSWERS, EMBEDDING, *BY_WISH)


@dataclass(frozen=True)
class Wishes:
    """What the aims target, remove and invent want.

    Args:
        report: For target: the report that should be written.
        remove: For remove: the observation that should disappear; the first finding of each clean report when left out.
        invent: For invent: the observation that should appear.
    """

    report: str = REPORTS["normal"]
    remove: str | None = None
    invent: str = "pneumothorax"

    def __post_init__(self) -> None:
        if not self.report.strip():
            raise ConfigError("wishes.report is empty; give the report that the attacker wishes for.")
        for name in (self.remove, self.invent):
            if name is not None:
                observation(name)  # refuses what the vocabulary does not hold


def least_copies(alpha: float) -> int:
    """The fewest copies whose full agreement tells a majority: (alpha / 2)^(1 / n) must exceed one half."""
    return math.floor(1 - math.log2(alpha)) + 1


SMOOTHED = "smoothed"
_EXAMPLE = f"write it like {SMOOTHED}:0.1:builtin:reporter"


@dataclass(frozen=True)
class SmoothingSettings:
    """How models named smoothed:SIGMA:MODEL vote; SIGMA is the standard deviation of the noise.

    Args:
        copies: Noisy copies of an image that vote on each closed answer.
        attack_copies: The first of them, along whose mean an attack goes.
        alpha: Probability with which a certified answer may be wrong.
        batch_size: Noisy copies that are shown at once.
    """

    copies: int = 100
    attack_copies: int = 8
    alpha: float = 0.001
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} is not usable; give a probability between 0 and 1, such as 0.001.")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} is not usable; give a whole number of at least 1.")
        if self.copies < least_copies(self.alpha):
            raise ConfigError(
                f"copies={self.copies} cannot tell a majority at alpha={self.alpha:g} even if all agree; use copies >= "
                f"{least_copies(self.alpha)}."
            )
        if not 1 <= self.attack_copies <= self.copies:
            raise ConfigError(
                f"attack_copies={self.attack_copies} is not usable; give a whole number from 1 to copies={self.copies}."
            )


def parse_smoothed(name: str) -> tuple[float, str] | None:
    """SIGMA and MODEL of a name; None for a model that is not smoothed, a `ConfigError` where either is missing."""
    kind, _, rest = name.partition(":")
    if kind != SMOOTHED:
        return None
    text, _, model = rest.partition(":")
    try:
        sigma = float(text)
    except ValueError:
        sigma = math.nan
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError(f"'{name}' has the noise '{text}', which is no number above 0; {_EXAMPLE}.")
    if not model:
        raise ConfigError(f"'{name}' names no model to smooth; {_EXAMPLE}.")
    if model.partition(":")[0] == SMOOTHED:
        raise ConfigError(f"'{name}' smooths a model twice; {_EXAMPLE}.")
    return sigma, model


ALL = "all"


@dataclass(frozen=True)
class RobustnessConfig:
    """How reports, answers and confidence of a model change when its images are perturbed.

    For models that you own or may test. White-box attacks need open weights; a model that gives words alone gets
    black-box attacks only.

    Args:
        model: The model under audit: a report model, or a contrastive encoder; smoothed:SIGMA:MODEL lets the closed
            answers of a report model be votes over noisy copies of the image.
        data: Folder of the corpus.
        versus: Further models that are held against the first one on the same images and budgets.
        split: train, val or test.
        n: Studies drawn from the split with the seed; all when left out.
        attacks: Any of fgsm, pgd, mi-fgsm, apgd, ensemble (with gradients), square, random (by score), square-report,
            random-report (by the words alone), universal (one change for all images), noise (the control).
        eps: Radii, written as 2/255 or 0.01; pixels run from 0 to 1.
        norm: linf bounds the change of each pixel, l2 the length of the whole change.
        aims: What attacks want, in the order in which they are tried: report makes the true report unlikely, answers
            makes closed answers (of an encoder its zero-shot classes) wrong, embedding moves an encoder's vector;
            target makes a chosen report likely, remove takes a finding out of the report, invent puts one in.
        against: The report that becomes unlikely: reference, or own for what the model wrote for the clean image, where
            a corpus has no reports.
        region: Where pixels may be changed: all, off-lungs, off-findings, border:0.1, patch:LEFT,TOP,RIGHT,BOTTOM.
        corruptions: Natural corruptions that images get too, or all.
        severities: Of the corruptions, 1 to 5.
        labels: observations, chexpert or nih; read takes them from the reference reports by rule; auto looks at what
            the corpus knows.
        questions: own asks about labels by their names; drawn in the words that built-in models have learnt; none
            asks nothing, for a model that has not learnt to answer.
        only_labels: Ask about these alone; without, about each that some studies have and others have not.
        section: Of the reference report.
        image_size: Images are fitted into a square of this side before they are attacked; as stored when left out.
        batch_size: Images attacked at once; halved where they do not fit in memory.
        uint8: Show each perturbed image also after rounding to 8 bits, as a file would hold it.
        transfer: Show each model also the images that were made for the others.
        controls: Wrong images that tell whether a model looks at all: noise, blank, swapped.
        control_studies: Studies that are shown with wrong images, at most.
        triptychs: Studies whose images are kept for the page.
        trials: Bootstrap resamples behind each interval.
        seed: Decides studies, starts, noise and resamples.
        i_am_authorised: Who may test this model and why; needed for a model that runs elsewhere, kept and shown.
        wishes: What the aims target, remove and invent want.
        attack: How hard attacks try.
        smoothing: How smoothed models vote.
        decoding: How words are chosen.
        loading: How models are loaded.
    """

    model: str
    data: Path
    versus: tuple[str, ...] = ()
    split: str = "test"
    n: int | None = 200
    attacks: tuple[str, ...] = ("fgsm", "pgd", "apgd", "noise")
    eps: tuple[str, ...] = ("1/255", "2/255", "4/255")
    norm: Norm = "linf"
    aims: tuple[str, ...] = ("report", "answers")
    against: Literal["reference", "own"] = "reference"
    region: str = ALL
    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = (1, 3, 5)
    labels: Literal["auto", "observations", "chexpert", "nih", "read"] = "auto"
    questions: Literal["own", "drawn", "none"] = "drawn"
    only_labels: tuple[str, ...] = ()
    section: str = "findings"
    image_size: int | None = None
    batch_size: int = 16
    uint8: bool = True
    transfer: bool = True
    controls: tuple[str, ...] = CONTROL_IMAGES
    control_studies: int = 60
    triptychs: int = 4
    trials: int = 1000
    seed: int = 7
    i_am_authorised: str | None = None
    wishes: Wishes = Wishes()
    attack: AttackSettings = AttackSettings()
    smoothing: SmoothingSettings = SmoothingSettings()
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        self._check_names()
        self.budgets  # noqa: B018 - refuses a radius that is none
        parse_region(self.region)
        least = {"n": 1, "batch_size": 1, "image_size": 8, "control_studies": 0, "triptychs": 0, "trials": 1, "seed": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")
        if self.decoding.strategy == "sample":
            raise ConfigError(
                "decoding.strategy=sample draws another report for every changed pixel, and an audit would take that "
                "for the attack's doing; use greedy or beam."
            )
        if len({self.model, *self.versus}) <= len(self.versus):
            raise ConfigError("a model is named twice; name each model of --model and --versus once.")
        for name in (self.model, *self.versus):
            parse_smoothed(name)  # refuses a noise that is none before anything is loaded

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The radii, smallest first."""
        found = sorted((parse_eps(text, self.norm) for text in self.eps), key=lambda budget: budget.eps)
        if len({budget.eps for budget in found}) < len(found):
            raise ConfigError(f"eps names a radius twice ({', '.join(self.eps)}); name each once.")
        return tuple(found)

    @property
    def corrupted(self) -> tuple[str, ...]:
        """Corruptions by name."""
        return tuple(CORRUPTIONS.names()) if ALL in self.corruptions else self.corruptions

    def _check_names(self) -> None:
        for setting, given, known in (
            ("attacks", self.attacks, ATTACKS.names()),
            ("aims", self.aims, AIMS),
            ("corruptions", self.corruptions, (ALL, *CORRUPTIONS.names())),
            ("controls", self.controls, CONTROL_IMAGES),
            ("split", (self.split,), SPLITS),
            ("section", (self.section,), SECTIONS),
            ("only_labels", self.only_labels, self.only_labels),
            ("severities", tuple(map(str, self.severities)), tuple(map(str, SEVERITIES))),
        ):
            for name in given:
                if name not in known:
                    raise ConfigError(f"{setting} holds '{name}', which is unknown.{did_you_mean(name, known)} "
                                      f"There are: {', '.join(known)}.")  # fmt: skip
            if len(set(given)) < len(given):
                raise ConfigError(f"{setting} names something twice; name each once.")
        if not self.attacks and not self.corruptions:
            raise ConfigError(
                "there is neither an attack nor a corruption; name at least one with --attacks or --corruptions."
            )
        if self.attacks and not self.eps:
            raise ConfigError("attacks need a radius; give --eps, such as 1/255,2/255,4/255.")
        if not self.aims:
            raise ConfigError(f"aims is empty; name at least one of {', '.join(AIMS)}.")


# Settings that may differ when a run is continued: they change what is kept on the way, not the result.
HARDEN_OPERATIONAL = ("save_every", "cache", *connection_operational_fields("loading.connection"))


@dataclass(frozen=True)
class HardenConfig:
    """Adversarial fine-tuning of a vision encoder: attacked images should look to it as clean ones did.

    Args:
        model: A report model or contrastive encoder with weights: hf:FOLDER (an adapter is merged) or builtin:NAME.
        data: Corpus folder; images alone are learnt from, no report is read.
        split: Whose images are learnt from.
        n: Number of images, drawn with the seed; all when left out.
        eps: Largest change of a pixel of the image at the size that the vision encoder takes, such as 4/255.
        attack_steps: Gradient steps of the attack inside each step of learning.
        learning_rate: The highest one: it rises over the first twentieth of the steps and falls to 0 along a cosine.
            A vision encoder of hundreds of millions of weights wants less, about 1e-5.
        epochs: Passes over the images.
        steps: Steps of learning in place of epochs.
        batch_size: Images at once.
        clean_weight: What the features of clean images count beside those of attacked ones: how firmly they must stay.
        measure_n: Images of the val split on which the vision encoder is measured before and after; 0 measures nothing.
        measure_steps: Gradient steps of the attack that measures.
        log_every: Steps between lines of history.jsonl.
        save_every: Steps between checkpoints that a stopped run goes on from.
        seed: Decides images, their order and every start of the attack.
        cache: Folder for decoded images, may be shared between runs; RUN/cache when left out.
        loading: Where the encoder runs, and in dtype the precision of the written weights, float32 for auto; they are
            learnt in float32 whatever it says.
    """

    model: str
    data: Path
    split: Literal["train"] = "train"
    n: int | None = None
    eps: str = "4/255"
    attack_steps: int = 5
    learning_rate: float = 1e-4
    epochs: int = 10
    steps: int | None = None
    batch_size: int = 16
    clean_weight: float = 1.0
    measure_n: int = 64
    measure_steps: int = 20
    log_every: int = 10
    save_every: int = 50
    seed: int = 7
    cache: Path | None = None
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        counts = ("n", "attack_steps", "epochs", "steps", "batch_size", "measure_steps", "log_every", "save_every")
        least = {**dict.fromkeys(counts, 1), "measure_n": 0, "seed": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {lowest}.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"learning_rate={self.learning_rate} is not usable; give a number above 0.")
        if not (math.isfinite(self.clean_weight) and self.clean_weight >= 0):
            raise ConfigError(f"clean_weight={self.clean_weight} is not usable; give a number of at least 0.")
        if self.budget.eps == 0:
            raise ConfigError("eps=0 leaves nothing to harden against; give a radius such as 4/255.")

    @property
    def budget(self) -> Budget:
        """The ball around each image."""
        return parse_eps(self.eps)

"""Settings of a robustness audit: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.attacks.config import ATTACKS, AttackSettings, Budget, Norm, parse_eps
from cxrlab.attacks.corruptions import CORRUPTIONS, SEVERITIES
from cxrlab.attacks.regions import parse_region
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.evaluation.config import CONTROL_IMAGES
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.robustness.smoothing_config import SmoothingSettings, parse_smoothed
from cxrlab.robustness.wishes import AIMS, Wishes

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

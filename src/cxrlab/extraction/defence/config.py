"""Settings of defences: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SPLITS
from cxrlab.extraction.defence.severity import MINIMUM_QUERIES, MINIMUM_STUDIES
from cxrlab.extraction.defence.table import DEFENCES
from cxrlab.extraction.paper_decoding import PaperDecoding
from cxrlab.extraction.terms import Price
from cxrlab.models.load_settings import LoadSettings

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of a chest, with which a gate is probed in turn


def _check_split(name: str, split: str) -> None:
    if split not in SPLITS:
        raise ConfigError(f"{name}='{split}' is unknown.{did_you_mean(split, SPLITS)} There are: {', '.join(SPLITS)}.")


def _check_least(config: object, least: dict[str, int]) -> None:
    for name, low in least.items():
        value = getattr(config, name)
        if value is not None and value < low:
            raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")


@dataclass(frozen=True)
class DefenceSettings:
    """How strict defences are, and the benign images on which they are set and checked.

    Args:
        benign: Corpus folder of benign images with reports; no defence is used before it was checked on them.
        benign_split: Its split.
        benign_images: Images and reports of it that are used, at most.
        gate_bound: Share of benign images that the gate may refuse, at most, with 95 % confidence; it needs about
            4.5/bound images.
        quota: Answers that one account gets in a window.
        window: Queries of all accounts together after which quotas begin anew; never when left out.
        images_per_window: Images that benign accounts send in a window, one number an account, for the cost of a quota.
        key_file: File with the key of the watermark; the environment variable CXRLAB_WATERMARK_KEY when left out.
    """

    benign: Path | None = None
    benign_split: str = "train"
    benign_images: int = 1000
    gate_bound: float = 0.005
    quota: int = 100
    window: int | None = None
    images_per_window: tuple[float, ...] = (20.0, 60.0)
    key_file: Path | None = None

    def __post_init__(self) -> None:
        _check_split("benign_split", self.benign_split)
        least = {"benign_images": 1, "quota": 1, "window": 1}
        _check_least(self, least)
        if not 0 < self.gate_bound < 1:
            raise ConfigError(f"gate_bound={self.gate_bound} is not usable; give a share between 0 and 1.")
        if not self.images_per_window or min(self.images_per_window) <= 0:
            raise ConfigError(
                "images_per_window is empty or holds a number that is not above 0; give one for each benign account."
            )


@dataclass(frozen=True)
class DefendConfig:
    """What each defence costs benign users, what it takes from a copy, and what is left when the attacker knows it.

    For models that you own or may test.

    Args:
        victim: The model to be defended.
        data: Corpus folder: benign images for the cost of a defence, and what copies are measured on.
        surrogate: What the attacker trains; as the attack file says when left out.
        attack: YAML file of 'cxrlab extract' with the rest of the attack; its defaults when left out.
        defences: Any of gate (chest radiographs alone), quota, coarse (fixed sentences without degree and place), plain
            (fixed sentences with all details), watermark.
        method: Of the attack: knockoff, ada-steal or in-domain.
        pool: Pictures that are asked with.
        budget: Queries of one attack.
        adaptive: Attack each defence also with an attacker that knows it.
        accounts: Accounts of the attacker that knows of a quota.
        dress: Share of a chest in each picture that passes the gate; looked for by probes when left out.
        chest: A chest radiograph that the attacker who knows of the gate blends in; a drawing when left out.
        probes: Pictures with which it is looked for; with each share that is tried each of them is a query of the
            budget.
        split: Of the benign images.
        n: Benign images, drawn with the seed; all when left out. Copies are measured on the studies that n in the
            file of attack names, without it on the whole test split.
        section: Of the reference report.
        batch_size: Images answered at once; halved where they do not fit in memory.
        tolerated: Share of benign images that may be refused before that counts as harm.
        minimum_queries: Fewest queries of the attack without a defence from which a severity is stated.
        minimum_studies: Fewest studies on which its copy was measured from which a severity is stated.
        trials: Bootstrap resamples behind each interval.
        seed: Decides images, pool and resamples.
        i_am_authorised: Who may test this model and why; needed for a model that runs elsewhere, kept and shown.
        price: What the victim's owner charges.
        settings: How strict defences are.
        decoding: How the victim chooses its words; the paper's diverse beam search.
        loading: How the victim is loaded.
    """

    victim: str
    data: Path
    surrogate: str | None = None
    attack: Path | None = None
    defences: tuple[str, ...] = ("gate", "quota", "coarse", "plain", "watermark")
    method: str = "ada-steal"
    pool: str = "scenes"
    budget: int = 1500
    adaptive: bool = True
    accounts: int = 4
    dress: float | None = None
    chest: Path | None = None
    probes: int = 40
    split: str = "test"
    n: int | None = 200
    section: str = "findings"
    batch_size: int = 16
    tolerated: float = 0.01
    minimum_queries: int = MINIMUM_QUERIES
    minimum_studies: int = MINIMUM_STUDIES
    trials: int = 1000
    seed: int = 7
    i_am_authorised: str | None = None
    price: Price = Price()
    settings: DefenceSettings = DefenceSettings()
    decoding: PaperDecoding = PaperDecoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        _check_split("split", self.split)
        for name in self.defences:
            if name not in DEFENCES:
                raise ConfigError(f"defences holds '{name}', which is unknown.{did_you_mean(name, DEFENCES)} "
                                  f"There are: {', '.join(DEFENCES)}.")  # fmt: skip
        if not self.defences or len(set(self.defences)) < len(self.defences):
            raise ConfigError("defences is empty or names one twice; name each once.")
        _check_least(self, {"budget": 1, "accounts": 1, "probes": 1, "n": 1, "batch_size": 1, "trials": 1, "seed": 0,
                            "minimum_queries": 1, "minimum_studies": 1})  # fmt: skip
        for name in ("dress", "tolerated"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name}={value} is not usable; give a share from 0 to 1.")

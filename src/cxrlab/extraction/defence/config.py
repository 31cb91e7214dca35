"""Settings of defences: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.extraction.config import DefenceSettings, PaperDecoding, _check_least, _check_split
from cxrlab.extraction.defence.base import DEFENCES
from cxrlab.extraction.defence.security_summary import MINIMUM_QUERIES, MINIMUM_STUDIES
from cxrlab.extraction.records import Price
from cxrlab.models.load_settings import LoadSettings


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

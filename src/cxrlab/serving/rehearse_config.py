"""Settings of a rehearsal: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SPLITS
from cxrlab.models.loading import Loading
from cxrlab.serving.guard_config import GuardConfig


@dataclass(frozen=True)
class RehearseConfig:
    """A server tried out on this machine before anybody else meets it, for models that you own or may test.

    Args:
        model: The model to be served, by name.
        data: Corpus of benign images.
        split: Of the benign images; the guard must not have been set on it.
        n: Benign images, drawn with the seed; all of the split when left out.
        accounts: Honest accounts that take turns in sending them.
        clients: Requests under way at once.
        alone: Of the images as many are sent again one by one, to see what batches gain; 0 for none.
        pools: Pictures that somebody who copies the model would send, an account a pool; see `cxrlab extract`.
        queries: Pictures of each pool, sent one after the other; it ends where the account is stopped.
        size: Side of those pictures in pixels.
        guard: Put the guard before the model.
        guarding: What the guard looks for; the train and val splits of the data stand for honest traffic when no
            benign corpus is named.
        seed: Decides images and pictures.
        loading: How the model is opened.
    """

    model: str
    data: Path
    split: str = "test"
    n: int | None = 100
    accounts: int = 5
    clients: int = 16
    alone: int = 12
    pools: tuple[str, ...] = ("scenes",)
    queries: int = 30
    size: int = 128
    guard: bool = True
    guarding: GuardConfig = field(default_factory=GuardConfig)
    seed: int = 7
    loading: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(f"split='{self.split}' is unknown.{nearest(self.split, SPLITS)} Use {', '.join(SPLITS)}.")
        for name, low in {"n": 1, "accounts": 1, "clients": 1, "alone": 0, "queries": 1, "size": 8, "seed": 0}.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")
        if len(set(self.pools)) < len(self.pools):
            raise ConfigError("pools names one twice; name each once.")
        benign = self.guarding.benign
        if self.guard and (benign is None or benign == self.data) and self.split in self.guarding.calibrate:
            raise ConfigError(
                f"the split {self.split} cannot both set the guard's thresholds and try them; take it out of "
                "guarding.calibrate, or name another split."
            )

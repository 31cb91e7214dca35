"""Settings of decoding, and protocols of models that support them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cxrlab.core.config import check_at_least, check_choice
from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    import threading

    from cxrlab.core.model_interfaces import Contexts, Generated, Image, ImageToText

TRUNCATED = "truncated"  # marks an answer that was cut at max_new_tokens
STRATEGIES = ("greedy", "sample", "beam", "diverse")
USED_BY = {  # setting → the strategies that use it; others are used by all
    "temperature": ("sample",),
    "top_p": ("sample",),
    "seed": ("sample",),
    "beams": ("beam", "diverse"),
    "length_penalty": ("beam", "diverse"),
    "early_stopping": ("beam", "diverse"),
    "groups": ("diverse",),
    "diversity_penalty": ("diverse",),
}


@dataclass(frozen=True)
class Decoding:
    """Settings of generation; the default is LLaVA-Rad's.

    Args:
        strategy: greedy, sample, beam, or diverse (group beam search with a penalty for words of other groups).
        max_new_tokens: Longest answer, in tokens.
        temperature: For sample; 1 is the model's own distribution, above 0.
        top_p: For sample; smallest set of tokens that holds this share of the probability, above 0 up to 1.
        answers: Answers per image; sample draws them, beam and diverse keep the best.
        beams: For beam and diverse; sequences kept, over all groups.
        groups: For diverse; it divides `beams`.
        diversity_penalty: For diverse; subtracted from a token's log-probability for each earlier group that chose it.
        length_penalty: For beam and diverse; the sum of log-probabilities is divided by length to this power.
        early_stopping: For beam and diverse; stop as soon as every beam has ended, though a better one might come.
        seed: Seed of sampling.
    """

    strategy: str = "greedy"
    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    answers: int = 1
    beams: int = 4
    groups: int = 2
    diversity_penalty: float = 0.2
    length_penalty: float = 1.0
    early_stopping: bool = False
    seed: int = 7

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, STRATEGIES)
        for field in fields(self):
            users, value = USED_BY.get(field.name, STRATEGIES), getattr(self, field.name)
            if value != field.default and self.strategy not in users:
                raise ConfigError(
                    f"{field.name}={value} is not used by strategy={self.strategy}; give strategy="
                    f"{' or '.join(users)} with it."
                )
        check_at_least(self, max_new_tokens=1, answers=1, beams=1, groups=1, seed=0)
        if not self.temperature > 0.0:
            raise ConfigError(
                f"temperature={self.temperature} is not usable; give a number above 0, or strategy=greedy."
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p={self.top_p} is not usable; give a share above 0 up to 1.")
        if not self.diversity_penalty >= 0.0:
            raise ConfigError(f"diversity_penalty={self.diversity_penalty} is not usable; give a number of at least 0.")
        if self.strategy == "diverse" and self.beams % self.groups:
            raise ConfigError(
                f"groups={self.groups} does not divide beams={self.beams}; groups must have the same number of beams."
            )
        most = {"greedy": 1, "beam": self.beams, "diverse": self.beams}.get(self.strategy)
        if most is not None and self.answers > most:
            raise ConfigError(f"answers={self.answers} is more than strategy={self.strategy} allows; at most {most}.")


@runtime_checkable
class SupportsDecoding(Protocol):
    """A model with decoding settings and several answers per image."""

    def answers(
        self,
        images: Sequence[Image],
        indications: Contexts | None = None,
        decoding: Decoding | None = None,
    ) -> list[list[Generated]]:
        """`decoding.answers` answers for each image, best first; default: the model's own settings."""
        ...


@runtime_checkable
class SupportsSplitSampling(SupportsDecoding, Protocol):
    """A model whose sampled answers do not depend on the split into calls."""

    def answers_from(
        self, images: Sequence[Image], indications: Contexts | None, decoding: Decoding, first: int
    ) -> list[list[Generated]]:
        """`decoding.answers` sampled answers for each image, from index `first` on."""
        ...


@runtime_checkable
class SupportsSamplesAndGreedy(Protocol):
    """A model that reads a prompt once for its samples and its greedy report."""

    def samples_and_greedy(
        self, images: Sequence[Image], indications: Contexts | None, decoding: Decoding
    ) -> list[list[Generated]]:
        """`decoding.answers` samples for each image, then its greedy report."""
        ...


def decodes_here(model: ImageToText) -> bool:
    """Whether an audit may choose how a victim decodes; a model behind an address is left to its server."""
    return isinstance(model, SupportsDecoding) and not model.capabilities.black_box


@runtime_checkable
class SupportsConcurrentCalls(Protocol):
    """A model behind an address that several threads may call, one image each."""

    @property
    def concurrency(self) -> int:
        """Most calls at a time."""
        ...

    def until(self, stop: threading.Event) -> ImageToText:
        """The same model, which retries nothing once `stop` is set."""
        ...

"""Interfaces through which a package receives models without importing the package that builds them.

Images are float32 arrays [H, W] with values in [0, 1], white is 1; normalisation, resizing and casts belong to the
model's wrapper, so that a perturbation of ε means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[np.float32]

CAUTIONS = "cautions"  # key of `Generated.extra`: sentences that a server put beside its answer; also of a summary
REFUSED = "refused"  # key of `Generated.extra`: True where the answer is not a report but a refusal to write one


@dataclass(frozen=True)
class Capabilities:
    """What a model supports beyond generation, so that a caller can refuse before it starts."""

    gradients: bool = False  # The gradient of a loss with respect to the pixels
    log_probabilities: bool = False  # The log-probability of a given report
    attention: bool = False  # Attention from words to image patches
    batch: bool = False  # Several images are answered faster than one by one
    black_box: bool = False  # Runs elsewhere; each call may cost money and must be recorded before it is made
    several_images: bool = False  # Takes a `StudyContext`: several images per prompt, and a prior report


@dataclass(frozen=True)
class StudyContext:
    """What a model receives of a study beside its first image, where that is more than an indication.

    The first image stays apart, so that an attack perturbs it and nothing else.
    """

    indication: str | None = None
    image_names: tuple[str, ...] = ()  # Of all images, the first included, in their order: frontal, prior frontal, …
    prior_report: str | None = None  # Empty where it was wanted and there is none; None where it was not wanted
    further_images: Sequence[Image] = field(default=(), repr=False, compare=False)  # Images after the first


Contexts = Sequence[str | StudyContext | None]
"""Of several studies, each an indication, None or a whole context."""


@dataclass(frozen=True)
class Generated:
    """One answer of a model."""

    text: str
    mean_logprob: float | None = None  # Mean natural-log probability of its tokens, ≤ 0; None when unknown
    tokens: int | None = None  # Number of generated tokens; None when unknown
    # What else the model reports about this answer, as plain values; copied into the prediction
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether this is not a report but a refusal to write one."""
        return self.extra.get(REFUSED) is True


@runtime_checkable
class ImageToText(Protocol):
    """A model that generates a report for an image."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it (`stub:normal`, `hf:…`)."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def generate(self, images: Sequence[Image], indications: Contexts | None = None) -> list[Generated]:
        """One answer per image ([H, W] in [0, 1], of any size), in order.

        There are as many indications, None where there is none; a `StudyContext` only with `several_images`.
        """


@runtime_checkable
class HasTrainingCollections(Protocol):
    """A model that reports which image collections it was trained on, named as on the cards of corpora."""

    @property
    def collections(self) -> Sequence[str]:
        """Their names; empty for a model that was trained on none."""


@runtime_checkable
class HasParameterCount(Protocol):
    """A model that reports its size."""

    @property
    def parameter_count(self) -> int:
        """Number of weights, adapters included."""


@runtime_checkable
class TextModel(Protocol):
    """A language model from text to text: judge, oracle or structurer."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it."""

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer per prompt, in order; the same seed gives the same answer where the model allows it."""


@dataclass(frozen=True, eq=False)
class TextRequest:
    """One prompt for a language model; two requests are never equal, so that each has its own answer."""

    prompt: str
    max_tokens: int = 512
    seed: int = 0


@runtime_checkable
class StreamsAnswers(Protocol):
    """A text model that takes requests one by one, while others are under way."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it."""

    def answers(self, take: Callable[[], TextRequest | None]) -> Iterator[tuple[TextRequest, Generated]]:
        """Requests and their answers, as they arrive; ends when nothing is under way and `take` returns None.

        Args:
            take: Returns the next request, None while there is none; called again after each answer.
        """


@runtime_checkable
class Labeler(Protocol):
    """Assigns the fourteen CheXpert labels to reports."""

    @property
    def name(self) -> str:
        """Which labeler, with its version."""

    def label(self, reports: Sequence[str]) -> list[dict[str, int]]:
        """CheXpert name → 1, 0 or -1 per report; labels that a report does not mention are absent."""


@runtime_checkable
class TextEmbedder(Protocol):
    """Embeds texts."""

    @property
    def name(self) -> str:
        """Which encoder."""

    def embed_texts(self, texts: Sequence[str]) -> Image:
        """Vectors [N, D] float32 of length 1 for texts."""


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """The token embeddings of one text."""

    tokens: tuple[str, ...]  # The T tokens, including those that the tokenizer adds
    vectors: Image  # [T, D] float32
    special: NDArray[np.bool_]  # [T], True for tokens that stand for no part of the text ([CLS], [SEP])


@runtime_checkable
class TokenEncoder(Protocol):
    """Computes a contextual vector for each token of a text."""

    @property
    def name(self) -> str:
        """Which encoder and which layer of it."""

    def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Tokens and vectors of each text, in order; a text without words has special tokens only."""


@runtime_checkable
class Embedder(TextEmbedder, Protocol):
    """Embeds images and texts in one space."""

    def embed_images(self, images: Sequence[Image]) -> Image:
        """Vectors [N, D] float32 of length 1 for images [H, W] in [0, 1]."""

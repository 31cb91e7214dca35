"""What a room may ask of a thing that another room makes.

A lower room receives models through these and never imports the room that builds them. Images are
float32 arrays [H, W] with values in [0, 1], white is 1; normalisation, resizing and casts belong
to the model's wrapper, so that a perturbation of ε means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[np.float32]

CAUTIONS = "cautions"  # key of `Generated.extra`: sentences that a server put beside its answer; also of a summary
REFUSED = "refused"  # key of `Generated.extra`: True where the answer is no report but a refusal to write one


@dataclass(frozen=True)
class Capabilities:
    """What a model can do beyond answering, so that a caller can refuse before it starts.

    Args:
        gradients: Gives the gradient of a loss with respect to the pixels.
        log_probabilities: Gives the log-probability of a given report.
        attention: Gives attention from words to image patches.
        batch: Answers several images faster than one by one.
        black_box: Runs elsewhere; each call may cost money and must be booked first.
    """

    gradients: bool = False
    log_probabilities: bool = False
    attention: bool = False
    batch: bool = False
    black_box: bool = False


@dataclass(frozen=True)
class Generated:
    """One answer of a model.

    Args:
        text: The report.
        mean_logprob: Mean natural-log probability of its tokens, ≤ 0; None when the model does not tell.
        tokens: Number of tokens written; None when the model does not tell.
        extra: What else the model tells of this answer, plain values; they go into the prediction as they are.
    """

    text: str
    mean_logprob: float | None = None
    tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether this is no report but a refusal to write one."""
        return self.extra.get(REFUSED) is True


@runtime_checkable
class ImageToText(Protocol):
    """A model that writes a report for an image."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it (`stub:normal`, `hf:…`)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer an image, in order.

        Args:
            images: Images [H, W] in [0, 1]; sizes may differ.
            indications: Reason for each examination, of the same length; None when there is none.
        """
        ...


@runtime_checkable
class HasTrainingCollections(Protocol):
    """A model that tells which collections of images it has learnt from, as cards of corpora name them."""

    @property
    def collections(self) -> Sequence[str]:
        """Their names; empty for a model that has learnt from none."""
        ...


@runtime_checkable
class TextModel(Protocol):
    """A language model that answers text with text: the judge, the oracle, the structurer."""

    @property
    def name(self) -> str:
        """The name that a user gives to load it."""
        ...

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer a prompt, in order; the same seed gives the same answer where the model allows it."""
        ...


@runtime_checkable
class Labeler(Protocol):
    """Reads the fourteen CheXpert labels off a report."""

    @property
    def name(self) -> str:
        """Which labeler, with its version."""
        ...

    def label(self, reports: Sequence[str]) -> list[dict[str, int]]:
        """CheXpert name → 1, 0 or -1 for each report; what a report does not mention has no key."""
        ...


@runtime_checkable
class TextEmbedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Which encoder."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Image:
        """Vectors [N, D] float32 of length 1 for texts."""
        ...


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """One text as an encoder sees it.

    Args:
        tokens: The T tokens, those that the tokenizer adds included.
        vectors: One row a token, [T, D] float32.
        special: [T], True for tokens that stand for no part of the text ([CLS], [SEP]).
    """

    tokens: tuple[str, ...]
    vectors: Image
    special: NDArray[np.bool_]


@runtime_checkable
class TokenEncoder(Protocol):
    """Turns each token of a text into a vector that knows its context."""

    @property
    def name(self) -> str:
        """Which encoder and which layer of it."""
        ...

    def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Tokens and vectors of each text, in order; a text without a word has special tokens alone."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns images or texts into vectors of one space."""

    @property
    def name(self) -> str:
        """Which encoder."""
        ...

    def embed_images(self, images: Sequence[Image]) -> Image:
        """Vectors [N, D] float32 of length 1 for images [H, W] in [0, 1]."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Image:
        """Vectors [N, D] float32 of length 1 for texts."""
        ...

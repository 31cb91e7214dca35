"""Any image-text-to-text model behind one batched interface, differentiable to the pixels.

Images come as float32 in [0, 1]; resizing, channels, normalisation and precision are matters of this file and
below. Every method needs images: there is no way to ask a model that does not see one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.protocols import Capabilities, Generated
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint, open_checkpoint
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.inputs import Encoded, Encoder, as_images
from cxrlab.models.hf.prompting import end_tokens
from cxrlab.models.hf.scoring import (
    ReportLogProbs,
    YesNoTokens,
    report_log_probs,
    yes_margins,
    yes_no_log_probs,
    yes_no_tokens,
)
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.prompts import Prompts, load_prompts

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cxrlab.models.baselines import Library

_PROBE = (64, 64)  # height and width of an image, to see that there is a place for one
_HALF = re.compile("[\ud800-\udfff]")
_UNLIMITED = 1 << 30  # a model that does not tell how much it reads


class HfModel:
    """An open checkpoint that writes, scores and explains reports.

    Args:
        checkpoint: Model, processor and card; its weights are frozen here, so that gradients go to pixels alone.
        name: The name that leads back to it.
        prompts: What it is asked.
        decoding: How it chooses its words.
        attention: How its attention was loaded; `eager` can be looked into.
    """

    USAGES = MappingProxyType(
        {"hf:PATH_OR_ID": "any image-text-to-text checkpoint of the Hugging Face layout, adapter folders included"}
    )

    def __init__(
        self,
        checkpoint: Checkpoint,
        name: str,
        prompts: Prompts,
        decoding: Decoding | None = None,
        attention: str = "sdpa",
    ) -> None:
        from cxrlab.models.hf.pixels import pixel_path

        self.model, self.processor, self.tokenizer = checkpoint.model, checkpoint.processor, checkpoint.tokenizer
        self.card, self.folder = checkpoint.card, checkpoint.folder
        self._name, self.prompts, self.decoding = name, prompts, decoding or Decoding()
        self.model.requires_grad_(False)
        config = self.model.config
        self.device: torch.device = self.model.device
        self.path = pixel_path(config.model_type, self.processor)
        self.ends = end_tokens(self.processor, self.model)
        self.capabilities = Capabilities(
            gradients=self.path.differentiable,
            log_probabilities=True,
            attention=attention == "eager" and find_family(config.model_type).has_grid,
            batch=True,
        )
        context = getattr(config.get_text_config(), "max_position_embeddings", None) or _UNLIMITED
        self._encoder = Encoder(
            self.processor,
            self.path,
            _image_token(self.processor, config),
            context,
            self.device,
            self.model.dtype,
            self.model.get_input_embeddings().weight.shape[0],
        )
        self._encoder.expander.image_tokens(_PROBE)  # a processor that cannot place an image is told now
        self._verdicts: YesNoTokens | None = None

    @classmethod
    def load(
        cls,
        argument: str,
        library: Library | None = None,
        loading: LoadSettings | None = None,
        name: str | None = None,
    ) -> HfModel:
        """Open a folder or hub id; it needs no library.

        Args:
            argument: Folder or hub id.
            library: Not looked at.
            loading: Where and how.
            name: The name that leads back to it, where that is not `hf:ARGUMENT`.
        """
        settings = loading or LoadSettings()
        asked = load_prompts(settings.prompts) if settings.prompts else None  # a wrong name is told before the weights
        checkpoint = open_checkpoint(argument, settings)
        prompts = asked or load_prompts(checkpoint.card.prompts if checkpoint.card else None)
        model = cls(checkpoint, name or f"hf:{argument}", prompts, attention=settings.attention)
        if not model.path.differentiable:
            NoticeStream(sys.stderr).write(f"{model.path.reason}\n")
        return model

    @property
    def name(self) -> str:
        """`hf:PATH_OR_ID`."""
        return self._name

    @property
    def collections(self) -> tuple[str, ...]:
        """Collections that it has learnt from; absent (`AttributeError`) without a card, since nobody knows."""
        if self.card is None:
            raise AttributeError(f"{self.name} does not tell which collections it has learnt from")
        return self.card.collections

    @property
    def trained_on(self) -> str | None:
        """`synthetic` or `patients`; None without a card, since nobody knows."""
        return None if self.card is None else self.card.learnt_from

    @cached_property
    def input_side(self) -> int | None:
        """The shorter side of what the vision encoder takes; None where that follows the image's own size."""
        import torch

        sizes = set()
        for height, width in ((64, 64), (64, 96), (96, 64)):
            pixels = self.path.inputs([torch.zeros(1, height, width)]).get("pixel_values")
            if pixels is None or pixels.ndim != 4 or len(pixels) != 1:
                return None
            sizes.add(tuple(pixels.shape[-2:]))
        return int(min(sizes.pop())) if len(sizes) == 1 else None

    def generate(self, images: Any, indications: Sequence[str | None] | None = None) -> list[Generated]:
        """The best answer for each image.

        Args:
            images: See `images.as_images`; sizes may differ.
            indications: Reason of each examination; None asks without one.
        """
        return [answers[0] for answers in self.answers(images, indications)]

    def answers(
        self, images: Any, indications: Sequence[str | None] | None = None, decoding: Decoding | None = None
    ) -> list[list[Generated]]:
        """Several answers for each image, best first, each with the confidence of the tokens really written."""
        return self.answers_from(images, indications, decoding or self.decoding, 0)

    def answers_from(
        self, images: Any, indications: Sequence[str | None] | None, decoding: Decoding, first: int
    ) -> list[list[Generated]]:
        """As `answers`; drawn ones from number `first` on, as one call for all of them gives them."""
        import torch

        from cxrlab.models.hf.generation import generate, image_key

        radiographs = as_images(images, self.device)
        prompts = self._asked(len(radiographs), indications)
        if not radiographs:
            return []
        with torch.no_grad():  # not inference mode: what is remembered on the way must serve gradients later
            encoded = self._encoder.encode([image.detach() for image in radiographs], prompts, side="left")
            keys = [image_key(image, prompt) for image, prompt in zip(radiographs, prompts, strict=True)]
            inputs = encoded.inputs
            return generate(self.model, self.tokenizer, inputs, decoding, keys=keys, ends=self.ends, first=first)

    def log_probabilities(
        self, images: Any, reports: Sequence[str], indications: Sequence[str | None] | None = None
    ) -> ReportLogProbs:
        """Natural log-probability of every token of given reports, end token included; differentiable."""
        radiographs = as_images(images, self.device)
        encoded = self._encode(radiographs, self._asked(len(radiographs), indications), reports)
        return report_log_probs(self.model, encoded)

    def losses(self, images: Any, reports: Sequence[str], indications: Sequence[str | None] | None = None) -> Tensor:
        """[B], mean of −log p over the tokens of each report; differentiable."""
        return -self.log_probabilities(images, reports, indications).means

    def probability_of_yes(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        """[B] in [0, 1], how likely the answer to a closed question is yes and not no; differentiable.

        Args:
            images: The images.
            questions: One an image, or one for all of them.
        """
        import torch

        return torch.sigmoid(self.yes_margins(images, questions))

    def yes_margins(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        """[B], log p(yes) - log p(no): above 0 the answer is yes; differentiable also where the model is sure.

        Args:
            images: The images.
            questions: One an image, or one for all of them.
        """
        radiographs = as_images(images, self.device)
        asked = [questions] * len(radiographs) if isinstance(questions, str) else _texts(questions, "question")
        prompts = [self.prompts.question(question) for question in asked]
        if self._verdicts is None:
            self._verdicts = yes_no_tokens(self.processor)
        return yes_margins(
            yes_no_log_probs(self.model, self._encoder, radiographs, prompts, self._verdicts), self._verdicts
        )

    def encode(self, images: Any, prompts: Sequence[str], reports: Sequence[str] | None = None) -> Encoded:
        """Inputs of one forward pass, padded on the right; differentiable.

        Args:
            images: The images.
            prompts: What is asked of each, such as `model.prompts.ask(indication)`.
            reports: What was answered; none for the prompts alone.
        """
        return self._encode(as_images(images, self.device), prompts, reports)

    def _encode(self, images: list[Tensor], prompts: Sequence[str], reports: Sequence[str] | None) -> Encoded:
        answers = [self._encoder.report(text) for text in _texts(reports, "report")] if reports is not None else None
        return self._encoder.encode(images, prompts, answers)

    def _asked(self, count: int, indications: Sequence[str | None] | None) -> list[str]:
        reasons = _texts(indications, "indication", none=True) if indications is not None else [None] * count
        if len(reasons) != count:
            raise DataError(
                f"{count} images came with {len(reasons)} indications; give one an image, None where unknown."
            )
        return [self.prompts.ask(reason) for reason in reasons]


def _texts(texts: Sequence[Any], what: str, *, none: bool = False) -> list[Any]:
    """A list of texts; one single text would be taken apart letter by letter."""
    if isinstance(texts, str):
        raise DataError(f"a single {what} was given where one an image is needed; put it in a list.")
    for number, text in enumerate(texts):
        if not isinstance(text, str) and not (none and text is None):
            raise DataError(f"{what} {number} is a {type(text).__name__}, not text{' or None' if none else ''}.")
        if text is not None and _HALF.search(text):
            raise DataError(
                f"{what} {number} holds half a character (a lone surrogate); it was read in a wrong encoding."
            )
    return list(texts)


def _image_token(processor: Any, config: Any) -> int:
    """Id of the token at which the model puts a feature; Gemma 3's processor calls another one by that name."""
    for source in (config, processor):
        for name in ("image_token_id", "image_token_index"):
            if isinstance(found := getattr(source, name, None), int):
                return found
    raise ConfigError(
        f"a '{config.model_type}' does not tell which token stands for the image, so nobody can check that it sees one."
    )

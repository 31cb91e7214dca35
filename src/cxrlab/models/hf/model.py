"""Any image-text-to-text checkpoint of Hugging Face as a report model, differentiable to the pixels.

Images are float32 in [0, 1] of any size; every method requires them. `generate` goes through `inputs.py` (tokens and
pixels) and `generation.py` (decoding); what differs between model families is declared in `families/`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.model_interfaces import Capabilities, Contexts, Generated, StudyContext
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint, open_checkpoint
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.inputs import Encoded, as_images, make_encoder, sizes_of
from cxrlab.models.hf.prompting import end_tokens
from cxrlab.models.hf.scoring import (
    ReportLogProbs,
    YesNoTokens,
    report_log_probs,
    score_reports,
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
    from cxrlab.models.hf.static_cache import StaticDecoder

_PROMPT_TOKENS = (
    16_384  # of one forward pass: enough to keep a large GPU busy, few enough for the memory of its activations
)
_HALF = re.compile("[\ud800-\udfff]")


class HfModel:
    """An open checkpoint that generates and scores reports.

    Args:
        checkpoint: Its weights are frozen here, so that gradients go to the pixels only.
        name: Its name for `load_model`.
        attention: Attention implementation it was loaded with; only `eager` exposes attention weights.
        cache: As in `LoadSettings`.
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
        cache: str | None = None,
    ) -> None:
        self.model, self.processor, self.tokenizer = checkpoint.model, checkpoint.processor, checkpoint.tokenizer
        self.card, self.folder = checkpoint.card, checkpoint.folder
        self._name, self.prompts, self.decoding = name, prompts, decoding or Decoding()
        self.model.requires_grad_(False)
        config = self.model.config
        self.device: torch.device = self.model.device
        self._encoder = make_encoder(self.model, self.processor)
        self.path = self._encoder.path
        self.ends = end_tokens(self.processor, self.model)
        self.capabilities = Capabilities(
            gradients=self.path.differentiable,
            log_probabilities=True,
            attention=attention == "eager" and find_family(config.model_type).has_grid,
            batch=True,
            several_images=find_family(config.model_type).several_images,
        )
        self._static, self._growing_because = _static_decoder(self.model, cache)

    @classmethod
    def load(
        cls,
        argument: str,
        library: Library | None = None,
        loading: LoadSettings | None = None,
        name: str | None = None,
    ) -> HfModel:
        """Open a folder or hub id; `library` is not used, and `name` defaults to `hf:ARGUMENT`."""
        settings = loading or LoadSettings()
        chosen = load_prompts(settings.prompts) if settings.prompts else None  # checked before the weights are read
        checkpoint = open_checkpoint(argument, settings, merge=settings.adapter != "apart")
        prompts = chosen or load_prompts(checkpoint.card.prompts if checkpoint.card else None)
        if prompts.conversation:
            checkpoint.processor.chat_template = checkpoint.tokenizer.chat_template = prompts.conversation
        model = cls(checkpoint, name or f"hf:{argument}", prompts, attention=settings.attention, cache=settings.cache)
        if not model.path.differentiable:
            NoticeStream(sys.stderr).write(f"{model.path.reason}\n")
        return model

    @property
    def name(self) -> str:
        """`hf:PATH_OR_ID`."""
        return self._name

    @property
    def collections(self) -> tuple[str, ...]:
        """Image collections that it was trained on; `AttributeError` without a card, since they are unknown."""
        if self.card is None:
            raise AttributeError(f"{self.name} has no card with the collections that it was trained on")
        return self.card.collections

    @property
    def parameter_count(self) -> int:
        """Number of weights, those of an adapter that is kept apart included."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def trained_on(self) -> str | None:
        """`synthetic` or `patients`; None without a card."""
        return None if self.card is None else self.card.learnt_from

    @property
    def generation_cache(self) -> str:
        """Which key-value cache generation uses, and why it is not of fixed size."""
        if self._static is None:
            return f"growing: {self._growing_because}"
        if self.device.type != "cuda":
            return "static, without graphs on this device"
        return f"static, without graphs: {self._static.problem}" if self._static.problem else "static, with CUDA graphs"

    @cached_property
    def verdicts(self) -> YesNoTokens:
        """Tokens of yes and no; a `ConfigError` where they are the same."""
        return yes_no_tokens(self.processor)

    @cached_property
    def input_side(self) -> int | None:
        """The shorter side of the vision encoder's input; None if that depends on the image's size."""
        import torch

        sizes = set()
        for height, width in ((64, 64), (64, 96), (96, 64)):
            pixels = self.path.inputs([torch.zeros(1, height, width)]).get("pixel_values")
            if pixels is None or pixels.ndim != 4 or len(pixels) != 1:
                return None
            sizes.add(tuple(pixels.shape[-2:]))
        return int(min(sizes.pop())) if len(sizes) == 1 else None

    def generate(self, images: Any, indications: Contexts | None = None) -> list[Generated]:
        """The best report for each study.

        Args:
            images: The first image of each, see `inputs.as_images`; sizes may differ.
            indications: Indication of each examination, or None; or a `StudyContext` with further images.
        """
        return [answers[0] for answers in self.answers(images, indications)]

    def answers(
        self, images: Any, indications: Contexts | None = None, decoding: Decoding | None = None
    ) -> list[list[Generated]]:
        """Several answers for each image, best first, each with its confidence."""
        return self.answers_from(images, indications, decoding or self.decoding, 0)

    def answers_from(
        self, images: Any, indications: Contexts | None, decoding: Decoding, first: int
    ) -> list[list[Generated]]:
        """As `answers`; sampled ones from index `first` on, the same as in one call for all of them."""
        return self._answers(images, indications, decoding, first)

    def samples_and_greedy(
        self, images: Any, indications: Contexts | None, decoding: Decoding
    ) -> list[list[Generated]]:
        """`decoding.answers` samples for each image, then its greedy report."""
        return self._answers(images, indications, decoding, 0, greedy=True)

    def _answers(
        self, images: Any, indications: Contexts | None, decoding: Decoding, first: int, *, greedy: bool = False
    ) -> list[list[Generated]]:
        import torch

        from cxrlab.models.hf.generation import study_key

        studies, prompts = self._studies(images, indications)
        if not studies:
            return []
        with torch.no_grad():  # not inference mode: cached tensors must serve gradients later
            batch = [
                self._encoder.encode(
                    [[image.detach() for image in study] for study in studies[part]], prompts[part], side="left"
                ).inputs
                for part in self._parts(studies, prompts)
            ]
            keys = [study_key(study, prompt) for study, prompt in zip(studies, prompts, strict=True)]
            return self._generate(batch, decoding, keys, first, greedy)

    def _generate(
        self, batch: list[dict[str, Tensor]], decoding: Decoding, keys: list[str], first: int, greedy: bool
    ) -> list[list[Generated]]:
        from cxrlab.models.hf.generation import generate

        static = self._static
        with static.lock if static else nullcontext():
            try:
                return generate(
                    self.model,
                    self.tokenizer,
                    batch,
                    decoding,
                    keys=keys,
                    ends=self.ends,
                    first=first,
                    image_token=self._encoder.image_token,
                    static=static,
                    greedy=greedy,
                )
            except BaseException:
                if static:
                    static.release()  # a smaller batch may need its memory
                raise

    def _parts(self, studies: Sequence[Sequence[Tensor]], prompts: Sequence[str]) -> Iterator[slice]:
        """Slices of a batch, so that no forward pass over prompts has more than `_PROMPT_TOKENS` tokens."""
        start = longest = 0
        if find_family(self.model.config.model_type).static_cache:
            for end, (study, prompt) in enumerate(zip(studies, prompts, strict=True)):
                length = self._encoder.expander.length(prompt, sizes_of(study))
                longest = max(longest, length)
                if end > start and longest * (end - start + 1) > _PROMPT_TOKENS:
                    yield slice(start, end)
                    start, longest = end, length
        yield slice(start, len(prompts))

    def log_probabilities(
        self, images: Any, reports: Sequence[str], indications: Contexts | None = None
    ) -> ReportLogProbs:
        """Natural log-probability of every token of given reports, end token included; differentiable."""
        studies, prompts = self._studies(images, indications)
        encoded = self._encode(studies, prompts, reports)
        return report_log_probs(self.model, encoded)

    def losses(self, images: Any, reports: Sequence[str], indications: Contexts | None = None) -> Tensor:
        """[B], mean negative log-likelihood per token of each report; differentiable."""
        return self.losses_of_each(images, [reports], indications)[0]

    def losses_of_each(
        self, images: Any, reports: Sequence[Sequence[str]], indications: Contexts | None = None
    ) -> list[Tensor]:
        """As `losses` for several lists of reports about the same images, which are read once."""
        self.free_generation_cache()
        studies, prompts = self._studies(images, indications)
        answers = [[self._encoder.report(text) for text in _texts(one, "report")] for one in reports]
        texts = self._encoder.encode_each(studies, [(prompts, tokens) for tokens in answers])
        return [-found.means for found in score_reports(self.model, texts)]

    def probability_of_yes(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        """[B], p(yes) / (p(yes) + p(no)) for a closed question per image, or one for all; differentiable."""
        import torch

        return torch.sigmoid(self.yes_margins(images, questions))

    def yes_margins(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        """[B], log p(yes) - log p(no); has a gradient also where `probability_of_yes` saturates."""
        return self.yes_margins_of_each(images, [questions])[:, 0]

    def yes_margins_of_each(self, images: Any, questions: Sequence[Sequence[str] | str]) -> Tensor:
        """[B, questions], as `yes_margins` for several questions about each image, which is read once."""
        return yes_margins(self._yes_no_log_probs(images, questions), self.verdicts)

    def yes_margins_and_rest(self, images: Any, questions: Sequence[Sequence[str] | str]) -> tuple[Tensor, Tensor]:
        """The same, and the probability [B, questions] of every answer that is neither yes nor no."""
        scores = self._yes_no_log_probs(images, questions, total=True)
        spelled = scores[..., :-1]
        rest = 1 - (spelled.logsumexp(-1) - scores[..., -1]).exp()
        return yes_margins(spelled, self.verdicts), rest.clamp(0, 1)

    def _yes_no_log_probs(self, images: Any, questions: Sequence[Sequence[str] | str], total: bool = False) -> Tensor:
        self.free_generation_cache()
        radiographs = as_images(images, self.device)
        prompts = []
        for question in questions:
            texts = [question] * len(radiographs) if isinstance(question, str) else _texts(question, "question")
            prompts.append([self.prompts.question(text) for text in texts])
        return yes_no_log_probs(self.model, self._encoder, radiographs, prompts, self.verdicts, total=total)

    def prompt_length(self, indication: str | StudyContext | None, size: tuple[int, int]) -> int:
        """Tokens of the prompt after an image of this height and width, and after the further images of a context."""
        return self._encoder.expander.length(self.prompts.ask(indication), (size, *_further_sizes(indication)))

    def question_lengths(self, questions: Sequence[str], size: tuple[int, int]) -> list[int]:
        """Tokens of every text that `yes_margins_of_each` scores, image included: one or several per question."""
        prompts = [self._encoder.expander.length(self.prompts.question(one), (size,)) for one in questions]
        answers = [0] if self.verdicts.whole else [len(tokens) for tokens in self.verdicts.spellings]
        return [prompt + answer for prompt in prompts for answer in answers]

    def image_length(self, size: tuple[int, int]) -> int:
        """Tokens of an image of this height and width."""
        count: int = self._encoder.expander.image_tokens((size,))
        return count

    def report_length(self, report: str) -> int:
        """Tokens of a report, end token included."""
        return len(self._encoder.report(report))

    def encode(self, images: Any, prompts: Sequence[str], reports: Sequence[str] | None = None) -> Encoded:
        """Inputs of one forward pass, padded on the right; differentiable.

        Args:
            prompts: One per image, such as `model.prompts.ask(indication)`.
            reports: Reports after the prompts, if any.
        """
        return self._encode(as_images(images, self.device), prompts, reports)

    def _encode(
        self, images: Sequence[Tensor | Sequence[Tensor]], prompts: Sequence[str], reports: Sequence[str] | None
    ) -> Encoded:
        self.free_generation_cache()
        answers = [self._encoder.report(text) for text in _texts(reports, "report")] if reports is not None else None
        return self._encoder.encode(images, prompts, answers)

    def free_generation_cache(self) -> None:
        """Leave the memory of the static cache to gradients, where they are enabled."""
        import torch

        if torch.is_grad_enabled():
            self.release_generation_cache()

    def release_generation_cache(self) -> None:
        """Free the static cache and its captured steps."""
        if self._static:
            with self._static.lock:
                self._static.release()

    def _studies(self, images: Any, indications: Contexts | None) -> tuple[list[list[Tensor]], list[str]]:
        """The images of each study, and its prompt for a report."""
        studies = [[image] for image in as_images(images, self.device)]
        given = [None] * len(studies) if indications is None else _contexts(indications)
        if len(given) != len(studies):
            raise DataError(
                f"{len(studies)} images came with {len(given)} indications; give one per image, None if unknown."
            )
        for number, (study, context) in enumerate(zip(studies, given, strict=True)):
            if isinstance(context, StudyContext):
                if context.further_images and not self.capabilities.several_images:
                    raise ConfigError(f"'{self.name}' takes one image per prompt; study {number} has several.")
                study += as_images(context.further_images, self.device)
                if context.image_names and len(context.image_names) != len(study):
                    raise DataError(
                        f"study {number} has {len(study)} images, and {len(context.image_names)} are named: "
                        f"{', '.join(context.image_names)}."
                    )
        return studies, [self.prompts.ask(context) for context in given]


def _further_sizes(context: str | StudyContext | None) -> list[tuple[int, int]]:
    images = context.further_images if isinstance(context, StudyContext) else ()
    return [(int(image.shape[0]), int(image.shape[1])) for image in images]


def _contexts(indications: Contexts) -> Contexts:
    """The indications, after a check of their texts and those of contexts."""
    texts = [one.indication if isinstance(one, StudyContext) else one for one in indications]
    _texts(texts if not isinstance(indications, str) else indications, "indication", none=True)
    _texts([one.prior_report for one in indications if isinstance(one, StudyContext)], "prior report", none=True)
    return indications


def _static_decoder(model: Any, cache: str | None) -> tuple[StaticDecoder | None, str]:
    """The cache of fixed size if it is wanted and possible, and the reason why it is not used."""
    if cache == "growing":
        return None, "as --loading.cache says"
    if cache is None and model.device.type != "cuda":
        return None, "the default on this device"
    from cxrlab.models.hf.static_cache import StaticDecoder, why_unsupported

    why = why_unsupported(model)
    if why is not None and cache == "static":
        raise ConfigError(f"cache=static is not possible: {why}; give --loading.cache growing.")
    return (None, why) if why is not None else (StaticDecoder(model), "")


def _texts(texts: Sequence[Any], what: str, *, none: bool = False) -> list[Any]:
    """A list of texts; a single text would be read letter by letter."""
    if isinstance(texts, str):
        raise DataError(f"expected a list with one {what} per image, got a single text; put it in a list.")
    for number, text in enumerate(texts):
        if not isinstance(text, str) and not (none and text is None):
            raise DataError(f"{what} {number} is a {type(text).__name__}, not text{' or None' if none else ''}.")
        if text is not None and _HALF.search(text):
            raise DataError(f"{what} {number} contains a lone surrogate; the text was read in a wrong encoding.")
    return list(texts)

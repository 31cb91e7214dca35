"""Prompts into tokens, with as many image tokens as the image has features.

The text is expanded by the processor itself, on a blank image of the same size in place of the true
one, so that the costly half of a processor runs once a size and not once an image.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.models.hf.prompting import prompt_text
from cxrlab.models.local_files import first_line
from cxrlab.models.user_text import without_breaks

# Of a processor's output: one number a token, to be padded beside the ids.
_PER_TOKEN = ("token_type_ids", "mm_token_type_ids")
# What else is known: the ids themselves, and what is made anew for a batch.
_TEXT = ("input_ids", "attention_mask", "labels")
_PROMPTS = 512  # whose tokens are remembered: an attack asks the same one hundreds of times
_SIZES = 4096  # of images whose number of tokens is remembered
_BLANKS = 4  # blank images that are kept: one of a large image takes hundreds of megabytes in some families

Size = tuple[int, int]  # height and width of an image


@dataclass(frozen=True)
class PromptTokens:
    """A prompt with its image: ids, and what else the processor gives for each token."""

    ids: tuple[int, ...]
    kinds: Mapping[str, tuple[int, ...]]


class Expander:
    """Prompts into tokens, with as many image tokens as an image of its size has features.

    Attributes:
        prompt: (words, size of the image) → `PromptTokens`; a `DataError` where they came out without the image.
        image_tokens: Size of an image → its image tokens.

    Args:
        processor: Of the checkpoint.
        image_token: Id of the token at which the model puts a feature of the image.
    """

    def __init__(self, processor: Any, image_token: int) -> None:
        self.processor, self.image_token = processor, image_token
        # Kept by Python's own cache, which threads may share.
        self.prompt = lru_cache(_PROMPTS)(self._prompt)
        self.image_tokens = lru_cache(_SIZES)(self._image_tokens)
        self._blank = lru_cache(_BLANKS)(partial(_BlankImage, processor.image_processor))

    def _prompt(self, prompt: str, size: Size) -> PromptTokens:
        """Tokens of a prompt in front of which stands an image of this height and width."""
        found = self._expand(prompt, size)
        count = found.ids.count(self.image_token)
        if count == 0 or count != self.image_tokens(size):
            raise DataError(
                f"a prompt came out with {count} image tokens where an image of {size[0]} × {size[1]} pixels has "
                f"{self.image_tokens(size)}; the model would not see the image as it is. Take special tokens out of it."
            )
        return found

    def _image_tokens(self, size: Size) -> int:
        """Image tokens of an image of this height and width, when nothing is asked beside it."""
        return self._expand("Findings", size).ids.count(self.image_token)

    def _expand(self, prompt: str, size: Size) -> PromptTokens:
        text = prompt_text(self.processor, prompt)
        blank = self._blank(size)
        deputy = copy.copy(self.processor)
        deputy.image_processor = blank
        begin = self.processor.tokenizer.bos_token
        # A chat template writes the begin token itself; the tokenizer would write a second one.
        plain = {} if not begin or not text.startswith(begin) else {"add_special_tokens": False}
        try:
            deputy.tokenizer, text = without_breaks(self.processor.tokenizer, text)
            out = deputy(text=[text], images=[blank.image], **plain)
        except CxrlabError:
            raise
        except Exception as error:  # each family complains in its own way; what it says may hold a patient's words
            raise DataError(
                f"{type(self.processor).__name__} cannot put an image into a prompt ({type(error).__name__}); "
                "see that its settings belong to this checkpoint."
            ) from error
        unknown = sorted(set(out) - {*_PER_TOKEN, *_TEXT, *blank.gives})
        if unknown:
            raise ConfigError(
                f"{type(self.processor).__name__} gives {', '.join(unknown)} beside tokens and pixels, which is not "
                "handled here; name a checkpoint of another family."
            )
        ids = tuple(int(token) for token in out["input_ids"][0])
        kinds = {name: tuple(int(kind) for kind in out[name][0]) for name in _PER_TOKEN if name in out}
        return PromptTokens(ids, kinds)


class _BlankImage:
    """Stands in for an image processor: gives what the true one gave for a blank image of this size."""

    def __init__(self, image_processor: Any, size: Size) -> None:
        from PIL import Image

        self.true, self.image = image_processor, Image.new("RGB", (size[1], size[0]))
        self._given: dict[str, Any] | None = None

    def __call__(self, images: Any, **settings: Any) -> Any:
        from transformers import BatchFeature

        if self._given is None:
            try:
                self._given = dict(self.true(images, **settings))
            except ValueError as error:  # families have their own limits, such as how thin an image may be
                width, height = self.image.size
                raise DataError(
                    f"this model takes no image of {height} × {width} pixels ({first_line(error)}); crop it, "
                    "or mend the settings of its image processor."
                ) from error
        return BatchFeature(dict(self._given))  # a fresh one: some processors take keys out of it

    @property
    def gives(self) -> frozenset[str]:
        """Names of what the true one gave."""
        return frozenset(self._given or ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)

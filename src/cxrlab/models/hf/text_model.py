"""Any local causal language model of Hugging Face as a text model: batched, greedy, with its chat template."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.egress import Connection
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import sha256_of
from cxrlab.core.llm_requests import PROMPT_TOKENS, replace_lone_surrogates
from cxrlab.core.model_interfaces import Generated
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf import adapters
from cxrlab.models.hf.checkpoint import check_memory, device_of, load_weights, read_config
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import load_tokenizer, locate
from cxrlab.models.tokenization import escape, token_ids

BATCH = 8
_PROBE = "unremarkable"


class HfTextModel:
    """A causal checkpoint as a text model.

    Text of a prompt never becomes special tokens, so that nothing in a report can end the user's turn. Reasoning
    ("thinking") is disabled if the chat template supports that.
    """

    USAGES = MappingProxyType(
        {"hf:PATH_OR_ID": "any causal language model of the Hugging Face layout, adapter folders included"}
    )

    def __init__(self, causal: Causal, name: str) -> None:
        self.name = name
        self._causal = causal

    @classmethod
    def load(
        cls, argument: str, connection: Connection | None = None, loading: LoadSettings | None = None
    ) -> HfTextModel:
        """Open a folder or a hub id; `connection` is not used."""
        return cls(open_causal(argument, loading), f"hf:{argument}")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the names and contents of all files that decide an answer."""
        digest = hashlib.sha256()
        for number, folder in enumerate(self._causal.folders):
            for file in sorted(folder.iterdir()):
                if file.suffix in _DECIDING and file.is_file():
                    digest.update(f"{number} {file.name} {sha256_of(file)}\n".encode())
        return digest.hexdigest()

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One greedy answer per prompt, in order; the seed has no effect."""
        found = dict(self.completions(prompts, max_tokens=max_tokens, seed=seed))
        return [found[place] for place in range(len(prompts))]

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        """Index of a prompt and its answer, in batches of prompts of similar length, the longest first.

        Raises:
            ConfigError: Before any answer, if a prompt and its answer exceed the model's context.
        """
        ids = [self._ids(prompt) for prompt in prompts]
        prompt_tokens = max((len(row) for row in ids), default=0)
        config = self._causal.model.config.get_text_config(decoder=True)
        most = getattr(config, "max_position_embeddings", None)
        if isinstance(most, int) and prompt_tokens + max_tokens > most:
            raise ConfigError(
                f"a prompt of {prompt_tokens:,} tokens and an answer of up to {max_tokens:,} exceed the {most:,} that "
                f"'{self.name}' reads; shorten the prompt, or use a model with a longer context."
            )
        order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            answers = self._generate([ids[place] for place in places], max_tokens)
            for place, answer in zip(places, answers, strict=True):
                extra = {**answer.extra, PROMPT_TOKENS: len(ids[place])}
                yield place, replace(answer, extra=extra)

    def _ids(self, prompt: str) -> list[int]:
        """Tokens of a prompt as a user's turn, or as plain text without a chat template."""
        tokenizer = self._causal.tokenizer
        words = escape(tokenizer, replace_lone_surrogates(prompt))
        templated = bool(tokenizer.chat_template)
        text = self._render([{"role": "user", "content": words}]) if templated else words
        found = token_ids(tokenizer, [text], add_special_tokens=not templated)[0]
        return found or [int(tokenizer.eos_token_id)]  # a model needs at least one token

    def _render(self, turns: list[dict[str, str]], *, ask: bool = True) -> str:
        from cxrlab.models.hf.prompting import dated

        tokenizer = self._causal.tokenizer
        try:
            return str(
                tokenizer.apply_chat_template(
                    turns,
                    add_generation_prompt=ask,
                    tokenize=False,
                    enable_thinking=False,
                    **dated(tokenizer.chat_template),
                )
            )
        except Exception as error:  # a template is a program: it may raise anything
            raise ConfigError(
                f"the chat template of '{self.name}' fails on a prompt ({str(error).partition(chr(10))[0]}); fix "
                "chat_template.jinja of the checkpoint."
            ) from error

    def _generate(self, ids: Sequence[Sequence[int]], max_tokens: int) -> list[Generated]:
        import torch

        from cxrlab.models.hf.generation import generate

        model, tokenizer = self._causal.model, self._causal.tokenizer
        longest = max(map(len, ids))
        gaps = [longest - len(row) for row in ids]
        padded = [[tokenizer.pad_token_id] * gap + list(row) for gap, row in zip(gaps, ids, strict=True)]
        mask = [[0] * gap + [1] * (longest - gap) for gap in gaps]
        inputs = {
            "input_ids": torch.tensor(padded, device=model.device),
            "attention_mask": torch.tensor(mask, device=model.device),
        }
        settings = Decoding(max_new_tokens=max_tokens)
        with torch.inference_mode():
            found = generate(model, tokenizer, [inputs], settings, keys=[""] * len(ids), ends=self._ends)
        return [answers[0] for answers in found]

    @cached_property
    def _ends(self) -> list[int]:
        """Ids at which an answer ends: those of the tokenizer and the model, and the template's end of a turn."""
        model, tokenizer = self._causal.model, self._causal.tokenizer
        configured: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ends = [tokenizer.eos_token_id, *([configured] if isinstance(configured, int) else configured or ())]
        if tokenizer.chat_template:
            turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
            try:
                after = self._render(turns, ask=False).rpartition(_PROBE)[2].strip()
            except ConfigError:  # a template for user turns only
                after = ""
            ids = token_ids(tokenizer, [after], add_special_tokens=False)[0] if after else []
            special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
            ends += [ids[0]] if ids and ids[0] in special else []
        return list(dict.fromkeys(int(end) for end in ends))


# Files that decide an answer: weights, settings, tokenizer, chat template.
_DECIDING = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model")


@dataclass(frozen=True, eq=False)
class Causal:
    """A language model in evaluation mode with its tokenizer."""

    model: Any  # on its device; adapters are merged into it
    tokenizer: Any  # with an end token and a padding token
    folders: tuple[Path, ...]  # the folder itself, then its bases if it is an adapter


def open_causal(path_or_id: str | Path, loading: LoadSettings | None = None) -> Causal:
    """Open a causal language model, or a PEFT adapter of one, from a folder or hub id."""
    require("models")
    from transformers import AutoModelForCausalLM

    settings = loading or LoadSettings()
    *above, whole = adapters.lineage(locate(path_or_id, settings), settings)
    check_causal_model(whole, settings)
    device = device_of(settings)
    check_memory(whole, settings, device)
    with_words = next((each for each in above if (each / "tokenizer_config.json").is_file()), whole)
    tokenizer = load_tokenizer(with_words)
    model = load_weights(whole, settings, device, AutoModelForCausalLM)
    for adapter in reversed(above):
        model = adapters.merged(model, adapter).eval()
    if tokenizer.eos_token_id is None:
        raise DataError(f"the tokenizer in {with_words} has no end token, so an answer would never end; set eos_token.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is masked
    return Causal(model, tokenizer, (*above, whole))


def check_causal_model(folder: Path, loading: LoadSettings) -> None:
    """Raise unless the folder holds a causal language model."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
    )

    config = read_config(folder, loading)
    kind = type(config)
    what = None
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        what = "a model that reads images"
    elif getattr(config, "is_encoder_decoder", False):
        what = "an encoder-decoder"
    elif kind in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        what = "an encoder"
    elif kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        what = "another kind of model"
    if what is not None:
        raise DataError(
            f"{folder} holds {what} ('{config.model_type}'), not a causal language model; name one such as a Llama or a "
            "Qwen."
        )

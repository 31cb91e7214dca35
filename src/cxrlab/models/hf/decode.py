"""From prompts and images to answers: greedy, drawn, by beams, or by groups of beams that avoid each other's words.

The same seed draws the same answers for an image whatever stands beside it in the batch: each answer has its own
stream of random numbers, named by the image and its prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.core.protocols import Generated
from cxrlab.core.randomness import generator
from cxrlab.models.decoding import TRUNCATED
from cxrlab.models.hf.diverse_beams import DiverseBeams
from cxrlab.models.hf.steps import Answer, Steps, walk

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.decoding import Decoding

# Rows that have ended leave the batch together once they are this share of it: taking some out copies the memory of
# all the others, about as much work as a tenth of a step.
_WORTHWHILE = 1 / 8


def write(
    model: Any,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    decoding: Decoding,
    *,
    keys: Sequence[str],
    ends: Sequence[int],
    first: int = 0,
) -> list[list[Generated]]:
    """Answers for each image, best first; one unless `decoding` asks for more.

    Confidence is the mean natural-log probability of the tokens written under the model itself, whatever the
    strategy; the end token counts where it was written. An answer that was cut at `max_new_tokens` has
    `truncated: True` in `extra`.

    Args:
        model: A transformers model with `generate`, in evaluation mode.
        tokenizer: Its tokenizer.
        inputs: Prompts and images for `model.generate`, padded on the left.
        decoding: How words are chosen.
        keys: One an image, which names its random numbers; see `image_key`.
        ends: Ids of the tokens that end an answer, at least one.
        first: Number of the first drawn answer.
    """
    _check_room(model, inputs["input_ids"].shape[1], decoding.max_new_tokens)
    by_beams = decoding.strategy in ("beam", "diverse")
    found = walk(
        model,
        inputs,
        DiverseBeams(decoding) if by_beams else OneByOne(decoding, keys, first),
        rows=decoding.beams if by_beams else decoding.answers,
        ends=ends,
        banned=image_tokens(model),
        longest=decoding.max_new_tokens,
    )
    return [[_generated(answer, tokenizer) for answer in answers] for answers in found]


def image_key(image: Any, prompt: str) -> str:
    """A name for an image and its prompt: the same pixels and words give the same name on every machine.

    Args:
        image: Array or tensor of float32.
        prompt: What is asked of it.
    """
    pixels = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    digest = hashlib.sha256(np.ascontiguousarray(pixels, np.float32).tobytes())
    digest.update(f"\n{pixels.shape}\n{prompt}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def image_tokens(model: Any) -> list[int]:
    """Ids of the tokens that stand for an image in a prompt: no report holds one."""
    names = ("image_token_id", "image_token_index")
    found = {value for name in names if isinstance(value := getattr(model.config, name, None), int)}
    words = model.get_output_embeddings()
    most = words.weight.shape[0] if words is not None else model.config.get_text_config().vocab_size
    return sorted(token for token in found if 0 <= token < most)


class OneByOne:
    """Each row for itself: the likeliest token, or one drawn by its own stream of random numbers.

    Args:
        decoding: Strategy greedy or sample.
        keys: One an image; row `answers × image + answer` draws from the stream of that image and answer.
        first: Number of the first answer.
    """

    def __init__(self, decoding: Decoding, keys: Sequence[str], first: int = 0) -> None:
        self.decoding, self.keys, self.first = decoding, keys, first

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """Answers in the order in which they are drawn."""
        chance = self._chance(steps) if self.decoding.strategy == "sample" else None
        written = _Written.empty(steps)
        answer = torch.arange(steps.rows, device=steps.device)  # which one each row of the batch writes
        going = torch.ones(steps.rows, dtype=torch.bool, device=steps.device)
        for step in range(steps.longest):
            found = steps.log_probabilities()
            if chance is None:
                token = found.argmax(dim=-1)
            else:
                drawn = chance[answer.to(chance.device), step]
                token = draw(found, drawn, self.decoding.temperature, self.decoding.top_p)
            token = torch.where(going, token, steps.filler)
            written.write(step, answer, token, found.gather(1, token[:, None])[:, 0], going)
            going = going & ~steps.is_end(token)
            left = int(going.sum())
            if step + 1 == steps.longest or not left:
                break
            steps.go_on(token)
            if steps.rows_may_leave and left <= steps.rows * (1 - _WORTHWHILE):
                kept = going.nonzero()[:, 0]
                steps.keep(kept)
                answer, going = answer[kept], going[kept]
        answers = written.answers(answer[going].tolist())
        each = self.decoding.answers
        return [answers[start : start + each] for start in range(0, len(answers), each)]

    def _chance(self, steps: Steps) -> Tensor:
        """Uniform numbers in [0, 1) for every row and step, [R, T] float64."""
        each = self.decoding.answers
        drawn = [
            generator(self.decoding.seed, "sample", key, answer).random(steps.longest)
            for key in self.keys
            for answer in range(self.first, self.first + each)
        ]
        if len(drawn) != steps.rows:
            raise ValueError(f"{len(self.keys)} keys do not fit {steps.rows // each} images")
        return torch.from_numpy(np.stack(drawn))


def draw(log_probabilities: Tensor, chance: Tensor, temperature: float, top_p: float) -> Tensor:
    """One token a row, by where `chance` falls in the row's distribution, likeliest tokens first; [R] → ids.

    Args:
        log_probabilities: [R, V] natural logs; they need not sum to one.
        chance: [R] in [0, 1).
        temperature: Above 0; the logs are divided by it.
        top_p: Smallest set of the likeliest tokens that holds this share, above 0 up to 1.
    """
    # In float64, as sums over a large vocabulary need; one kind of accelerator has no such floats.
    place = torch.device("cpu") if log_probabilities.device.type == "mps" else log_probabilities.device
    shares = torch.softmax(log_probabilities.to(place).double() / temperature, dim=-1)
    shares, tokens = torch.sort(shares, dim=-1, descending=True, stable=True)
    below = shares.cumsum(dim=-1) - shares
    shares = shares.masked_fill(below >= top_p, 0.0)
    reached = shares.cumsum(dim=-1)
    wanted = chance.to(place)[:, None] * reached[:, -1:]
    # The first token whose share reaches beyond what was drawn.
    first = (reached <= wanted).sum(dim=-1, keepdim=True).clamp(max=shares.shape[1] - 1)
    return tokens.gather(1, first)[:, 0].to(log_probabilities.device)


@dataclass(frozen=True, eq=False)
class _Written:
    """What each answer holds so far.

    Args:
        tokens: [R, T].
        gains: Their natural-log probabilities, [R, T]; 0 where nothing was written.
        lengths: Tokens that count, [R].
    """

    tokens: Tensor
    gains: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, steps: Steps) -> _Written:
        shape, device = (steps.rows, steps.longest), steps.device
        lengths = torch.zeros(steps.rows, dtype=torch.long, device=device)
        return cls(torch.zeros(shape, dtype=torch.long, device=device), torch.zeros(shape, device=device), lengths)

    def write(self, step: int, answer: Tensor, token: Tensor, gain: Tensor, counts: Tensor) -> None:
        """One more token for each of these answers; those of answers that have ended do not count."""
        self.tokens[answer, step] = token
        self.gains[answer, step] = gain.masked_fill(~counts, 0.0)
        self.lengths[answer] += counts

    def answers(self, unended: list[int]) -> list[Answer]:
        """All of them; `unended` are those that were cut at their longest."""
        cut, sums = set(unended), self.gains.double().sum(dim=1).tolist()
        return [
            Answer(tuple(row[:length]), total, number not in cut)
            for number, (row, length, total) in enumerate(
                zip(self.tokens.tolist(), self.lengths.tolist(), sums, strict=True)
            )
        ]


def _generated(answer: Answer, tokenizer: Any) -> Generated:
    text = tokenizer.decode(list(answer.tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()
    count = len(answer.tokens)
    extra = {} if answer.ended else {TRUNCATED: True}
    return Generated(text, mean_logprob=answer.log_probability / count, tokens=count, extra=extra)


def _check_room(model: Any, prompt: int, longest: int) -> None:
    """Refuse an answer that could outgrow the positions that the model knows."""
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if isinstance(most, int) and not model.config.is_encoder_decoder and prompt + longest > most:
        raise ConfigError(
            f"a prompt of {prompt} tokens, those of the image included, and max_new_tokens={longest} do not fit the "
            f"{most} positions of this model; give max_new_tokens of at most {max(most - prompt, 0)}, or a shorter "
            "prompt."
        )

"""Generate reports: greedy, by sampling, by beam search, or by diverse beam search.

Sampling with the same seed gives the same answers for an image, whatever else is in the batch: each answer has its own
stream of random numbers, keyed by the image and its prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.randomness import generator
from cxrlab.models.decoding import TRUNCATED
from cxrlab.models.hf.beam_search import DiverseBeamSearch
from cxrlab.models.hf.decoding_steps import Answer, GrowingSteps, Limits, Prompts, Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from cxrlab.models.decoding import Decoding
    from cxrlab.models.hf.static_cache import StaticDecoder


def generate(
    model: Any,
    tokenizer: Any,
    batch: Sequence[Mapping[str, Any]],
    decoding: Decoding,
    *,
    keys: Sequence[str],
    ends: Sequence[int],
    first: int = 0,
    image_token: int | None = None,
    static: StaticDecoder | None = None,
    greedy: bool = False,
) -> list[list[Generated]]:
    """`decoding.answers` answers for each image, best first.

    Confidence is the mean natural-log probability of the generated tokens under the model itself, whatever the
    strategy; a generated end token counts. An answer that was cut at `max_new_tokens` has `truncated: True`.

    Args:
        model: A transformers model with `generate`, in evaluation mode.
        batch: Prompts and images in parts, each as for `model.generate` and padded on the left; see `decode`.
        keys: For each image, the key of its random numbers; see `image_key`.
        ends: Ids of the tokens that end an answer, at least one.
        first: Index of the first sampled answer.
        image_token: Id of the image placeholder, for a model whose config does not have it.
        static: Cache of fixed size for greedy decoding and sampling; beams use a growing one.
        greedy: Add the greedy answer to each image after its samples.
    """
    prompt, longest = max(part["input_ids"].shape[1] for part in batch), decoding.max_new_tokens
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if isinstance(most, int) and not model.config.is_encoder_decoder and prompt + longest > most:
        raise ConfigError(
            f"a prompt of {prompt} tokens, those of the image included, and max_new_tokens={longest} do not fit the "
            f"{most} positions of this model; give max_new_tokens of at most {max(most - prompt, 0)}, or a shorter "
            "prompt."
        )
    beams = decoding.strategy in ("beam", "diverse")
    strategy = DiverseBeamSearch(decoding) if beams else TokenByToken(decoding, keys, first, greedy=greedy)
    found = decode(
        model,
        batch,
        strategy,
        rows=strategy.rows,
        limits=Limits(ends, image_tokens(model, image_token), longest),
        static=None if beams else static,
    )

    def to_text(answer: Answer) -> Generated:
        text = tokenizer.decode(list(answer.tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        count = len(answer.tokens)
        extra = {} if answer.ended else {TRUNCATED: True}
        return Generated(text.strip(), mean_logprob=answer.log_probability / count, tokens=count, extra=extra)

    return [[to_text(answer) for answer in answers] for answers in found]


def image_key(image: Any, prompt: str) -> str:
    """A key of an image (array or tensor of float32) and its prompt, the same on every machine."""
    pixels = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    digest = hashlib.sha256(np.ascontiguousarray(pixels, np.float32).tobytes())
    digest.update(f"\n{pixels.shape}\n{prompt}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def study_key(images: Sequence[Any], prompt: str) -> str:
    """A key of the images of a prompt and of its text; that of `image_key` for one image."""
    return image_key(images[0], "".join([prompt, *(image_key(image, "") for image in images[1:])]))


def image_tokens(model: Any, known: int | None = None) -> list[int]:
    """Ids of the image placeholder tokens, which are never generated."""
    values = [known, *(getattr(model.config, name, None) for name in ("image_token_id", "image_token_index"))]
    found = {value for value in values if isinstance(value, int)}
    words = model.get_output_embeddings()
    most = (
        words.weight.shape[0] + getattr(words, "out_additional_features", 0)
        if words is not None
        else model.config.get_text_config().vocab_size
    )
    return sorted(token for token in found if 0 <= token < most)


Strategy = Callable[[Steps], list[list[Answer]]]  # gives the answers of each image, best first


@torch.no_grad()
def decode(
    model: Any,
    batch: Sequence[Mapping[str, Any]],
    strategy: Strategy,
    *,
    rows: int,
    limits: Limits,
    static: StaticDecoder | None = None,
) -> list[list[Answer]]:
    """Let the model read every prompt once, and `strategy` decode the answers.

    Args:
        model: A model with `generate`.
        batch: Parts of one batch, each as for `model.generate`, padded on the left; a part is one forward pass.
        rows: Rows per image: beams, or answers sampled in parallel.
        static: Decodes with a cache of fixed size; for strategies without beams.
    """
    prompts = (read_prompts(model, part, limits.longest) for part in batch)
    if static is not None:
        from cxrlab.models.hf.static_cache import StaticSteps

        columns = max(part["input_ids"].shape[1] for part in batch)
        images = sum(len(part["input_ids"]) for part in batch)
        return strategy(StaticSteps(static, prompts, images, rows, columns, limits))
    parts = list(prompts)
    if (rows > 1 or len(parts) > 1) and not all(part.have_independent_rows() for part in parts):
        if len(parts) > 1:
            raise ValueError(f"a batch of a {type(model).__name__} cannot be read in parts")
        # transformers repeats whatever else such a model keeps, and the model reads every prompt again for each row.
        parts = [read_prompts(model, batch[0], limits.longest, rows)]
        rows = 1
    return strategy(GrowingSteps(Prompts.joined(parts).repeated(rows), limits))


def read_prompts(model: Any, inputs: Mapping[str, Any], longest: int, rows: int = 1) -> Prompts:
    """Let transformers prepare a batch, each prompt so many times, and the model read it."""
    from transformers import GenerationConfig

    def run(
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **prepared: Any,
    ) -> Prompts:
        return Prompts.read(model, input_ids, prepared)

    # `num_beams` makes transformers repeat prompts, images and caches, each family in its own way.
    settings = GenerationConfig(
        max_new_tokens=longest, num_beams=rows, num_return_sequences=1, do_sample=False, use_cache=True
    )
    found: Prompts = model.generate(**inputs, generation_config=settings, custom_generate=run)
    return found


class TokenByToken:
    """Greedy decoding or sampling: each row on its own.

    Args:
        decoding: Strategy greedy or sample.
        keys: One per image; the rows of an image are adjacent, and each draws from the stream of its image and answer.
        first: Index of the first answer.
        greedy: Whether the last answer to each image is the greedy one, beside those that are sampled.
    """

    def __init__(self, decoding: Decoding, keys: Sequence[str], first: int = 0, *, greedy: bool = False) -> None:
        self.decoding, self.keys, self.first, self.greedy = decoding, keys, first, greedy
        self.rows = decoding.answers + greedy  # per image

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """Answers in the order in which they are drawn."""
        count, longest, device, each = steps.rows, steps.longest, steps.device, self.rows
        chance = self._random_numbers(steps) if self.decoding.strategy == "sample" else None
        tokens = torch.zeros((count, longest), dtype=torch.long, device=device)
        log_probs = torch.zeros((count, longest), device=device)
        lengths = torch.zeros(count, dtype=torch.long, device=device)
        answer = torch.arange(count, device=device)  # the answer that each row of the batch generates
        active = torch.ones(count, dtype=torch.bool, device=device)
        for step in range(longest):
            found = steps.log_probabilities()
            if chance is None:
                token = found.argmax(dim=-1)
            else:
                drawn = chance[answer.to(chance.device), step]
                token = draw(found, drawn, self.decoding.temperature, self.decoding.top_p)
            token = torch.where(active, token, steps.filler)
            tokens[answer, step] = token
            log_probs[answer, step] = found.gather(1, token[:, None])[:, 0].masked_fill(~active, 0.0)
            lengths[answer] += active
            active = active & ~steps.is_end(token)
            count = int(active.sum())
            if step + 1 == longest or not count:
                break
            steps.append(token)
            if (rows := steps.fewer_rows(count)) is not None:
                kept = torch.argsort((~active).int(), stable=True)[:rows]  # unfinished ones first, in order
                steps.keep_rows(kept)
                answer, active = answer[kept], active[kept]
        cut = set(answer[active].tolist())
        sums = log_probs.double().sum(dim=1).tolist()
        answers = [
            Answer(tuple(row[:length]), total, number not in cut)
            for number, (row, length, total) in enumerate(zip(tokens.tolist(), lengths.tolist(), sums, strict=True))
        ]
        return [answers[start : start + each] for start in range(0, len(answers), each)]

    def _random_numbers(self, steps: Steps) -> Tensor:
        """Uniform numbers in [0, 1) for every row and step, [R, T] float64."""
        numbers = range(self.first, self.first + self.decoding.answers)
        drawn: list[NDArray[np.float64]] = []
        for key in self.keys:
            drawn += [generator(self.decoding.seed, "sample", key, number).random(steps.longest) for number in numbers]
            drawn += [np.zeros(steps.longest)] * self.greedy  # at 0 the likeliest token is drawn
        if len(drawn) != steps.rows:
            raise ValueError(f"{len(self.keys)} keys do not fit {steps.rows // self.rows} images")
        return torch.from_numpy(np.stack(drawn))


def draw(log_probabilities: Tensor, chance: Tensor, temperature: float, top_p: float) -> Tensor:
    """Sample one token per row by inverting its distribution at `chance`, likeliest tokens first; [R] → ids.

    Args:
        log_probabilities: [R, V] natural logs; their probabilities need not sum to one.
        chance: [R] in [0, 1).
        temperature: Above 0; the logs are divided by it.
        top_p: Sample from the smallest set of likeliest tokens with this share, above 0 up to 1.
    """
    # In float64, as sums over a large vocabulary need; MPS has no such floats.
    place = torch.device("cpu") if log_probabilities.device.type == "mps" else log_probabilities.device
    logs = log_probabilities.to(place)
    shares = torch.softmax(logs.double() / temperature, dim=-1)
    tokens = torch.argsort(logs, dim=-1, descending=True, stable=True)  # shorter numbers, in the same order
    shares = shares.gather(1, tokens)
    below = shares.cumsum(dim=-1) - shares
    shares = shares.masked_fill(below >= top_p, 0.0)
    reached = shares.cumsum(dim=-1)
    wanted = chance.to(place)[:, None] * reached[:, -1:]
    # The first token whose cumulative share exceeds the drawn number.
    first = (reached <= wanted).sum(dim=-1, keepdim=True).clamp(max=shares.shape[1] - 1)
    return tokens.gather(1, first)[:, 0].to(log_probabilities.device)

"""Generate reports: greedy, by sampling, by beam search, or by diverse beam search.

Sampling with the same seed gives the same answers for an image, whatever else is in the batch: each answer has its own
stream of random numbers, keyed by the image and its prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.randomness import generator
from cxrlab.models.decoding import TRUNCATED
from cxrlab.models.hf.scoring import forward

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.decoding import Decoding

# Finished rows leave the batch together once they are this share of it: removing some copies the cache of all others,
# about as much work as a tenth of a step.
_WORTHWHILE = 1 / 8
CACHE = "past_key_values"
# Model inputs with one row per sequence beside the tokens, [..., R, L].
_OF_ROWS = ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids")
NEVER = -torch.inf


def generate(
    model: Any,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    decoding: Decoding,
    *,
    keys: Sequence[str],
    ends: Sequence[int],
    first: int = 0,
    image_token: int | None = None,
) -> list[list[Generated]]:
    """`decoding.answers` answers for each image, best first.

    Confidence is the mean natural-log probability of the generated tokens under the model itself, whatever the
    strategy; a generated end token counts. An answer that was cut at `max_new_tokens` has `truncated: True`.

    Args:
        model: A transformers model with `generate`, in evaluation mode.
        inputs: Prompts and images for `model.generate`, padded on the left.
        keys: For each image, the key of its random numbers; see `image_key`.
        ends: Ids of the tokens that end an answer, at least one.
        first: Index of the first sampled answer.
        image_token: Id of the image placeholder, for a model whose config does not have it.
    """
    prompt, longest = inputs["input_ids"].shape[1], decoding.max_new_tokens
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if isinstance(most, int) and not model.config.is_encoder_decoder and prompt + longest > most:
        raise ConfigError(
            f"a prompt of {prompt} tokens, those of the image included, and max_new_tokens={longest} do not fit the "
            f"{most} positions of this model; give max_new_tokens of at most {max(most - prompt, 0)}, or a shorter "
            "prompt."
        )
    beams = decoding.strategy in ("beam", "diverse")
    found = decode(
        model,
        inputs,
        DiverseBeamSearch(decoding) if beams else TokenByToken(decoding, keys, first),
        rows=decoding.beams if beams else decoding.answers,
        ends=ends,
        banned=image_tokens(model, image_token),
        longest=longest,
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


@dataclass(frozen=True)
class Answer:
    """A generated answer.

    Args:
        tokens: Generated ids, a generated end token included.
        log_probability: Sum of their natural-log probabilities under the model itself, ≤ 0.
        ended: Whether the model ended the answer; otherwise it was cut at the longest length.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


Strategy = Callable[["Steps"], list[list[Answer]]]  # gives the answers of each image, best first


def decode(
    model: Any, inputs: Mapping[str, Any], strategy: Strategy, *, rows: int, **limits: Any
) -> list[list[Answer]]:
    """Let transformers prepare a batch and `strategy` decode it.

    Args:
        model: A model with `generate`.
        inputs: Left-padded prompts and images, as for `model.generate`.
        rows: Rows per image: beams, or answers sampled in parallel.
        limits: `ends`, `banned` and `longest` of `Steps`.
    """
    from transformers import GenerationConfig

    def run(
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **prepared: Any,
    ) -> list[list[Answer]]:
        return strategy(Steps(model, input_ids, prepared, **limits))

    # `num_beams` makes transformers repeat prompts, images and caches, each family in its own way.
    settings = GenerationConfig(
        max_new_tokens=limits["longest"], num_beams=rows, num_return_sequences=1, do_sample=False, use_cache=True
    )
    found: list[list[Answer]] = model.generate(**inputs, generation_config=settings, custom_generate=run)
    return found


class Steps:
    """The forward passes of a batch, one token per row and step.

    Args:
        model: A transformers model with `generate`.
        prompts: Token ids [R, L]; the rows of one image are adjacent.
        inputs: The model's other inputs, and its cache.
        ends: Ids of tokens that end an answer, at least one.
        banned: Ids that are never generated.
        longest: Most tokens of an answer.
    """

    def __init__(
        self,
        model: Any,
        prompts: Tensor,
        inputs: Mapping[str, Any],
        *,
        ends: Sequence[int],
        banned: Sequence[int],
        longest: int,
    ) -> None:
        self.rows = len(prompts)
        self.device = prompts.device
        self.longest = longest
        self.ends = torch.tensor(list(ends), dtype=torch.long, device=prompts.device)
        self.filler = int(ends[0])  # token after the end of a finished row; never read
        self._model = model
        self._ids = prompts
        self._inputs = dict(inputs)
        self._banned = torch.tensor(list(banned), dtype=torch.long, device=prompts.device)
        self._count = 0
        self._rows_droppable: bool | None = None  # not known before the cache has been used

    def log_probabilities(self) -> Tensor:
        """Natural-log probability of every next token, [R, V] float32; -inf for banned tokens.

        Banned tokens keep their share: the others are not scaled up, so that a report has the same probability as
        where a given report is scored.
        """
        first = self._count == 0
        cached = self._inputs.get("use_cache") and not first
        given = self._model.prepare_inputs_for_generation(
            self._ids, next_sequence_length=1 if cached else None, is_first_iteration=first, **self._inputs
        )
        if cached and self._rows_droppable is None:
            self._rows_droppable = _has_independent_rows(self._model, given, self.rows)
        outputs = forward(self._model, **given, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(
            outputs, self._inputs, is_encoder_decoder=bool(self._model.config.is_encoder_decoder)
        )
        logits = outputs.logits[:, -1].to(device=self.device, dtype=torch.float32)
        found = torch.log_softmax(logits, dim=-1)
        if bool(torch.isnan(found).any()):
            raise DataError(
                f"the model's output for token {self._count + 1} is NaN; its weights are damaged, or too large for "
                "their number format: check the file, or give --loading.dtype float32."
            )
        found[:, self._banned] = -torch.inf
        return found

    def is_end(self, tokens: Tensor) -> Tensor:
        """Whether each token ends an answer; same shape."""
        return torch.isin(tokens, self.ends)

    def append(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """Append one token [R] to each row; `rows` [R] gives the row that each new one continues, if not itself."""
        if rows is not None:
            self._ids = self._ids[rows]
            cache: Any = self._inputs.get(CACHE)
            if hasattr(self._model, "_reorder_cache"):
                self._inputs[CACHE] = self._model._reorder_cache(cache, rows)
            elif hasattr(cache, "reorder_cache"):
                cache.reorder_cache(rows)
            elif cache is not None or self._inputs.get("use_cache"):
                raise ConfigError(
                    f"{type(self._model).__name__} has a cache that beams cannot share; use strategy=greedy or sample."
                )
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        self._count += 1

    @property
    def can_drop_rows(self) -> bool:
        """Whether `keep_rows` is possible: from the second step on, and only if the model has no other state of rows."""
        return bool(self._rows_droppable)

    def keep_rows(self, rows: Tensor) -> None:
        """Continue with these rows [R'] only, each at most once."""
        if not self.can_drop_rows:
            raise ValueError(f"the rows of a {type(self._model).__name__} cannot leave its batch")
        self.rows = len(rows)
        self._ids = self._ids[rows]
        self._inputs[CACHE].reorder_cache(rows)
        for name in _OF_ROWS:
            if (tensor := self._inputs.get(name)) is not None:
                self._inputs[name] = tensor.index_select(-2, rows.to(tensor.device))


def _has_independent_rows(model: Any, given: Mapping[str, Any], rows: int) -> bool:
    """Whether all state of a model is per row, so that a row can be removed without an effect on the others.

    That requires a class of transformers, its growing cache, and explicit positions. Any other input of the batch, such
    as features for cross-attention, rules it out.

    Args:
        given: The model's inputs for a token after the first.
        rows: R.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = given.get(CACHE)
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    if type(cache) is not DynamicCache or not all(type(layer) in plain for layer in cache.layers):
        return False
    if not type(model).__module__.startswith("transformers.") or hasattr(model, "_reorder_cache"):
        return False
    others = {name: value for name, value in given.items() if not isinstance(value, bool | int | str | None)}
    of_rows = {name: value for name, value in others.items() if name in ("input_ids", *_OF_ROWS)}
    return (
        others.keys() == {CACHE, *of_rows}
        and "position_ids" in of_rows
        and all(isinstance(value, torch.Tensor) and value.shape[-2] == rows for value in of_rows.values())
    )


class TokenByToken:
    """Greedy decoding or sampling: each row on its own.

    Args:
        decoding: Strategy greedy or sample.
        keys: One per image; row `answers × image + answer` draws from the stream of that image and answer.
        first: Index of the first answer.
    """

    def __init__(self, decoding: Decoding, keys: Sequence[str], first: int = 0) -> None:
        self.decoding, self.keys, self.first = decoding, keys, first

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """Answers in the order in which they are drawn."""
        rows, longest, device, each = steps.rows, steps.longest, steps.device, self.decoding.answers
        chance = self._random_numbers(steps) if self.decoding.strategy == "sample" else None
        tokens = torch.zeros((rows, longest), dtype=torch.long, device=device)
        log_probs = torch.zeros((rows, longest), device=device)
        lengths = torch.zeros(rows, dtype=torch.long, device=device)
        answer = torch.arange(rows, device=device)  # the answer that each row of the batch generates
        active = torch.ones(rows, dtype=torch.bool, device=device)
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
            if steps.can_drop_rows and count <= steps.rows * (1 - _WORTHWHILE):
                kept = active.nonzero()[:, 0]
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
    """Sample one token per row by inverting its distribution at `chance`, likeliest tokens first; [R] → ids.

    Args:
        log_probabilities: [R, V] natural logs; their probabilities need not sum to one.
        chance: [R] in [0, 1).
        temperature: Above 0; the logs are divided by it.
        top_p: Sample from the smallest set of likeliest tokens with this share, above 0 up to 1.
    """
    # In float64, as sums over a large vocabulary need; MPS has no such floats.
    place = torch.device("cpu") if log_probabilities.device.type == "mps" else log_probabilities.device
    shares = torch.softmax(log_probabilities.to(place).double() / temperature, dim=-1)
    shares, tokens = torch.sort(shares, dim=-1, descending=True, stable=True)
    below = shares.cumsum(dim=-1) - shares
    shares = shares.masked_fill(below >= top_p, 0.0)
    reached = shares.cumsum(dim=-1)
    wanted = chance.to(place)[:, None] * reached[:, -1:]
    # The first token whose cumulative share exceeds the drawn number.
    first = (reached <= wanted).sum(dim=-1, keepdim=True).clamp(max=shares.shape[1] - 1)
    return tokens.gather(1, first)[:, 0].to(log_probabilities.device)


@dataclass(frozen=True)
class Beams:
    """Sequences of one group: K for each of B images, best first; an empty place has the score -inf.

    Args:
        tokens: [B, K, T].
        lengths: [B, K].
        scores: Ranking, [B, K].
        log_probabilities: Sum under the model itself, [B, K].
        ended: Whether the last token is an end token, [B, K].
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    log_probabilities: Tensor
    ended: Tensor

    @classmethod
    def empty(cls, images: int, places: int, longest: int, device: torch.device) -> Beams:
        """No sequence yet."""
        shape = (images, places)
        return cls(
            torch.zeros((*shape, longest), dtype=torch.long, device=device),
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.full(shape, NEVER, device=device),
            torch.zeros(shape, device=device),
            torch.zeros(shape, dtype=torch.bool, device=device),
        )

    def best(self, places: int, scores: Tensor | None = None) -> tuple[Beams, Tensor]:
        """The `places` best by these scores (default: their own), and their previous places [B, places]."""
        ranked = self.scores if scores is None else scores
        # Stable, so that ties keep their order on every machine.
        top, where = torch.sort(ranked, dim=1, descending=True, stable=True)
        top, where = top[:, :places], where[:, :places]
        wide = where[..., None].expand(-1, -1, self.tokens.shape[2])
        kept = Beams(
            self.tokens.gather(1, wide),
            self.lengths.gather(1, where),
            top,
            self.log_probabilities.gather(1, where),
            self.ended.gather(1, where),
        )
        return kept, where

    def joined(self, other: Beams) -> Beams:
        """These and the other's sequences, [B, K + K', …]."""
        return Beams(
            torch.cat([self.tokens, other.tokens], 1),
            torch.cat([self.lengths, other.lengths], 1),
            torch.cat([self.scores, other.scores], 1),
            torch.cat([self.log_probabilities, other.log_probabilities], 1),
            torch.cat([self.ended, other.ended], 1),
        )


class BeamGroup:
    """One group of beams: the running sequences, and the best that have ended.

    Args:
        images: B.
        size: Beams of the group, K.
        steps: For the longest answer and the end tokens.
        decoding: Length penalty and when to stop.
    """

    def __init__(self, images: int, size: int, steps: Steps, decoding: Decoding) -> None:
        self.size, self.steps, self.decoding = size, steps, decoding
        self.running = Beams.empty(images, size, steps.longest, steps.device)
        # All beams start alike: only the first counts, or all would choose the same tokens.
        self.running.scores[:, 0] = 0.0
        self.ended = Beams.empty(images, size, steps.longest, steps.device)
        self.open = torch.ones(images, dtype=torch.bool, device=steps.device)  # images that may still improve
        # Enough candidates to continue with even if every end token is among the best.
        self.reach = size * max(2, 1 + len(steps.ends))

    def step(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Take one step; returns token and source beam of each running sequence, both [B, K].

        Args:
            log_probabilities: Of the next token of each running sequence, [B, K, V].
            cost: Subtracted from each token's log-probability, [B, V].
            length: Tokens of an answer after this step.
        """
        _, size, words = log_probabilities.shape
        # The best continuations, best first, and the beam that each continues.
        totals = self.running.scores[..., None] + log_probabilities - cost[:, None]
        scores, places = torch.topk(totals.flatten(1), min(self.reach, size * words), dim=1)
        source, token = places // words, places % words
        tokens = self.running.tokens.gather(1, source[..., None].expand(-1, -1, self.steps.longest)).clone()
        tokens[..., length - 1] = token
        sums = self.running.log_probabilities.gather(1, source) + log_probabilities.flatten(1).gather(1, places)
        candidates = Beams(tokens, torch.full_like(source, length), scores, sums, self.steps.is_end(token))
        # Keep what has just ended if it is among the best K and the image is still open.
        ends = torch.ones_like(candidates.ended) if length == self.steps.longest else candidates.ended
        among_best = torch.arange(ends.shape[1], device=ends.device) < self.size
        taken = ends & among_best & self.open[:, None]
        final = (scores / length**self.decoding.length_penalty).masked_fill(~taken, NEVER)
        self.ended, _ = self.ended.joined(replace(candidates, scores=final)).best(self.size)
        self.running, where = candidates.best(self.size, scores.masked_fill(candidates.ended, NEVER))
        # Close the images whose best running sequence is no better than the worst ended one.
        best_possible = self.running.scores[:, 0] / length**self.decoding.length_penalty
        better = best_possible > self.ended.scores.amin(dim=1)
        full = torch.isfinite(self.ended.scores).all(dim=1)
        self.open = self.open & better & ~(full & self.decoding.early_stopping)
        return token.gather(1, where), source.gather(1, where)


class DiverseBeamSearch:
    """Diverse group beam search.

    Args:
        decoding: Beams, groups, penalties and answers; `strategy=beam` is one group without a penalty.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        diverse = decoding.strategy == "diverse"
        self.groups = decoding.groups if diverse else 1
        self.penalty = decoding.diversity_penalty if diverse else 0.0

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """The best answers of each image."""
        beams = self.decoding.beams
        images, size = steps.rows // beams, beams // self.groups
        groups = [BeamGroup(images, size, steps, self.decoding) for _ in range(self.groups)]
        first = torch.arange(images, device=steps.device)[:, None] * beams
        for length in range(1, steps.longest + 1):
            found = steps.log_probabilities().view(images, self.groups, size, -1)
            used = torch.zeros_like(found[:, 0, 0])
            tokens, rows = [], []
            for number, group in enumerate(groups):
                was_open = group.open
                token, source = group.step(found[:, number], self.penalty * used, length)
                # Beams of a closed image do not count as choices.
                chosen = was_open[:, None] & torch.isfinite(group.running.scores)
                used.scatter_add_(1, token, chosen.to(used.dtype))
                tokens.append(token)
                rows.append(first + number * size + source)
            if length == steps.longest or not any(bool(group.open.any()) for group in groups):
                break
            steps.append(torch.cat(tokens, 1).flatten(), torch.cat(rows, 1).flatten())
        return _best_answers(groups, self.decoding.answers)


def _best_answers(groups: list[BeamGroup], count: int) -> list[list[Answer]]:
    """The best answers of all groups for each image; answers that another group also gave come last."""
    ended = groups[0].ended
    for group in groups[1:]:
        ended = ended.joined(group.ended)
    ranked, _ = ended.best(ended.scores.shape[1])
    found = []
    for image in range(len(ranked.scores)):
        answers: dict[tuple[int, ...], Answer] = {}
        repeated = []
        for place in torch.isfinite(ranked.scores[image]).nonzero().flatten().tolist():
            tokens = tuple(ranked.tokens[image, place, : int(ranked.lengths[image, place])].tolist())
            total = float(ranked.log_probabilities[image, place])
            answer = Answer(tokens, total, bool(ranked.ended[image, place]))
            if tokens in answers:
                repeated.append(answer)
            answers.setdefault(tokens, answer)
        found.append([*answers.values(), *repeated][:count])
    return found

"""From prompts and images to answers: greedy, drawn, by beams, or by groups of beams that avoid each other's words.

The same seed draws the same answers for an image whatever stands beside it in the batch: each answer has its own
stream of random numbers, named by the image and its prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.protocols import Generated
from cxrlab.core.randomness import generator
from cxrlab.models.decoding import TRUNCATED
from cxrlab.models.hf.scoring import forward

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
        DiverseBeamSearch(decoding) if by_beams else TokenByToken(decoding, keys, first),
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


class TokenByToken:
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


CACHE = "past_key_values"
# What a model is told of each row beside the tokens, [..., R, L].
_OF_ROWS = ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class Answer:
    """What was written for an image.

    Args:
        tokens: Ids of the tokens written, the end token included where it was written.
        log_probability: Sum of their natural-log probabilities under the model itself, ≤ 0.
        ended: Whether the model ended by itself; otherwise the answer was cut at its longest.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class Walk(Protocol):
    """A way of choosing words: from the first step to the answers of each image, best first."""

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """Walk to the end."""
        ...


class Steps:
    """The rows of a batch, each a prompt and what was written after it so far.

    Args:
        model: With the methods by which transformers generates.
        prompts: Token ids [R, L]; the rows of one image stand side by side.
        inputs: What else the model is given, and its cache.
        ends: Ids of tokens that end an answer, at least one.
        banned: Ids that are never written.
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
        # A row that has ended goes on with a token that nobody reads.
        self.filler = int(ends[0])
        self._model = model
        self._ids = prompts
        self._inputs = dict(inputs)
        self._banned = torch.tensor(list(banned), dtype=torch.long, device=prompts.device)
        self._written = 0
        self._rows_may_leave: bool | None = None  # not known before the memory has been used

    def log_probabilities(self) -> Tensor:
        """Natural-log probability of every token to come next, [R, V] float32; -inf for what is never written.

        What is never written keeps its share: the rest is not scaled up, so that a report's probability is
        the same here as where a given report is scored.
        """
        first = self._written == 0
        cached = self._inputs.get("use_cache") and not first
        given = self._model.prepare_inputs_for_generation(
            self._ids, next_sequence_length=1 if cached else None, is_first_iteration=first, **self._inputs
        )
        if cached and self._rows_may_leave is None:
            self._rows_may_leave = _is_told_row_by_row(self._model, given, self.rows)
        outputs = forward(self._model, **given, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(
            outputs, self._inputs, is_encoder_decoder=bool(self._model.config.is_encoder_decoder)
        )
        logits = outputs.logits[:, -1].to(device=self.device, dtype=torch.float32)
        found = torch.log_softmax(logits, dim=-1)
        if bool(torch.isnan(found).any()):
            raise DataError(
                f"the model's output for the next word is not a number, at word {self._written + 1}; its weights are "
                "damaged, or too large for its number format: check the file, or load it with dtype float32."
            )
        found[:, self._banned] = -torch.inf
        return found

    def is_end(self, tokens: Tensor) -> Tensor:
        """Whether each token ends an answer; same shape."""
        return torch.isin(tokens, self.ends)

    def go_on(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """Write one token [R] after each row; `rows` [R] says which row each new one continues, if not itself."""
        if rows is not None:
            self._ids = self._ids[rows]
            self._reorder(rows)
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        self._written += 1

    @property
    def rows_may_leave(self) -> bool:
        """Whether `keep` is possible: from the second step on, and not where a model remembers its rows by itself."""
        return bool(self._rows_may_leave)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows [R'] alone, each at most once; the others are computed no more."""
        if not self.rows_may_leave:
            raise ValueError(f"the rows of a {type(self._model).__name__} cannot leave its batch")
        self.rows = len(rows)
        self._ids = self._ids[rows]
        self._inputs[CACHE].reorder_cache(rows)
        for name in _OF_ROWS:
            if (told := self._inputs.get(name)) is not None:
                self._inputs[name] = told.index_select(-2, rows.to(told.device))

    def _reorder(self, rows: Tensor) -> None:
        cache: Any = self._inputs.get(CACHE)
        if hasattr(self._model, "_reorder_cache"):
            self._inputs[CACHE] = self._model._reorder_cache(cache, rows)
        elif hasattr(cache, "reorder_cache"):
            cache.reorder_cache(rows)
        elif cache is not None or self._inputs.get("use_cache"):
            raise ConfigError(
                f"{type(self._model).__name__} keeps a memory that beams cannot share; use strategy=greedy or sample."
            )


def _is_told_row_by_row(model: Any, given: Mapping[str, Any], rows: int) -> bool:
    """Whether all that a model goes by is told to it row by row, so that a row can be taken out without a trace.

    That needs a class of transformers itself, its growing memory, and positions that are told rather than counted by
    the model; anything else that is told of the batch, such as features for cross-attention, speaks against it.

    Args:
        model: The model.
        given: What it is given for one more token after the first.
        rows: R.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = given.get(CACHE)
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    if type(cache) is not DynamicCache or not all(type(layer) in plain for layer in cache.layers):
        return False
    if not type(model).__module__.startswith("transformers.") or hasattr(model, "_reorder_cache"):
        return False
    told = {name: value for name, value in given.items() if not isinstance(value, bool | int | str | None)}
    of_rows = {name: value for name, value in told.items() if name in ("input_ids", *_OF_ROWS)}
    return (
        told.keys() == {CACHE, *of_rows}
        and "position_ids" in of_rows
        and all(isinstance(value, torch.Tensor) and value.shape[-2] == rows for value in of_rows.values())
    )


def walk(model: Any, inputs: Mapping[str, Any], choose: Walk, *, rows: int, **limits: Any) -> list[list[Answer]]:
    """Prepare a batch as transformers does and let `choose` write its answers.

    Args:
        model: A model with `generate`.
        inputs: Left-padded prompts and images, as for `model.generate`.
        choose: Takes the steps.
        rows: Rows an image: beams, or answers that are drawn side by side.
        limits: `ends`, `banned` and `longest` of `Steps`.
    """
    from transformers import GenerationConfig

    def decode(
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **prepared: Any,
    ) -> list[list[Answer]]:
        return choose(Steps(model, input_ids, prepared, **limits))

    # `num_beams` makes transformers repeat prompts, images and caches, each family in its own way.
    settings = GenerationConfig(
        max_new_tokens=limits["longest"], num_beams=rows, num_return_sequences=1, do_sample=False, use_cache=True
    )
    found: list[list[Answer]] = model.generate(**inputs, generation_config=settings, custom_generate=decode)
    return found


NEVER = -torch.inf


@dataclass(frozen=True)
class Beams:
    """Sequences of one group: K of each of B images, best first; a place without one has the score -inf.

    Args:
        tokens: What was written, [B, K, T].
        lengths: Tokens that count, [B, K].
        scores: What they are ranked by, [B, K].
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
        """The `places` best by these scores (their own when None), and where each stood [B, places]."""
        ranked = self.scores if scores is None else scores
        # Stable, so that of equal ones the earlier stays in front on every machine.
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

    def beside(self, other: Beams) -> Beams:
        """These and the other's, [B, K + K', …]."""
        return Beams(
            torch.cat([self.tokens, other.tokens], 1),
            torch.cat([self.lengths, other.lengths], 1),
            torch.cat([self.scores, other.scores], 1),
            torch.cat([self.log_probabilities, other.log_probabilities], 1),
            torch.cat([self.ended, other.ended], 1),
        )


class Group:
    """One group: the sequences that go on, and the best that have ended.

    Args:
        images: B.
        size: Beams of the group, K.
        steps: For the longest answer and the end tokens.
        decoding: Length penalty and when to stop.
    """

    def __init__(self, images: int, size: int, steps: Steps, decoding: Decoding) -> None:
        self.size, self.steps, self.decoding = size, steps, decoding
        self.running = Beams.empty(images, size, steps.longest, steps.device)
        # All beams start alike: only the first counts, or all would choose the same words.
        self.running.scores[:, 0] = 0.0
        self.ended = Beams.empty(images, size, steps.longest, steps.device)
        self.open = torch.ones(images, dtype=torch.bool, device=steps.device)  # images that may still improve
        # Enough to go on with although every end token stands among the best.
        self.reach = size * max(2, 1 + len(steps.ends))

    def step(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Take one step; returns token and source beam of each sequence that goes on, both [B, K].

        Args:
            log_probabilities: Of the next token of each running sequence, [B, K, V].
            cost: Taken off each token's log-probability, [B, V].
            length: Tokens of an answer after this step.
        """
        candidates, source = self._candidates(log_probabilities, cost, length)
        last = candidates.tokens[..., length - 1]
        cut = length == self.steps.longest
        self._keep_ended(candidates, torch.ones_like(candidates.ended) if cut else candidates.ended, length)
        self.running, where = candidates.best(self.size, candidates.scores.masked_fill(candidates.ended, NEVER))
        self._close(length)
        return last.gather(1, where), source.gather(1, where)

    def _candidates(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Beams, Tensor]:
        """The best continuations, best first, and the beam that each continues."""
        images, size, words = log_probabilities.shape
        totals = self.running.scores[..., None] + log_probabilities - cost[:, None]
        scores, places = torch.topk(totals.flatten(1), min(self.reach, size * words), dim=1)
        source, token = places // words, places % words
        tokens = self.running.tokens.gather(1, source[..., None].expand(-1, -1, self.steps.longest)).clone()
        tokens[..., length - 1] = token
        gained = log_probabilities.flatten(1).gather(1, places)
        sums = self.running.log_probabilities.gather(1, source) + gained
        made = Beams(tokens, torch.full_like(source, length), scores, sums, self.steps.is_end(token))
        return made, source

    def _keep_ended(self, candidates: Beams, stops: Tensor, length: int) -> None:
        """Take in what has just ended, if it stands among the best K and the image is still open."""
        among_best = torch.arange(stops.shape[1], device=stops.device) < self.size
        taken = stops & among_best & self.open[:, None]
        scores = (candidates.scores / length**self.decoding.length_penalty).masked_fill(~taken, NEVER)
        self.ended, _ = self.ended.beside(replace(candidates, scores=scores)).best(self.size)

    def _close(self, length: int) -> None:
        """Close the images where the best that goes on is no better than the worst that has ended."""
        hope = self.running.scores[:, 0] / length**self.decoding.length_penalty
        better = hope > self.ended.scores.amin(dim=1)
        full = torch.isfinite(self.ended.scores).all(dim=1)
        self.open = self.open & better & ~(full & self.decoding.early_stopping)


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
        groups = [Group(images, size, steps, self.decoding) for _ in range(self.groups)]
        first = torch.arange(images, device=steps.device)[:, None] * beams
        for length in range(1, steps.longest + 1):
            found = steps.log_probabilities().view(images, self.groups, size, -1)
            used = torch.zeros_like(found[:, 0, 0])
            tokens, rows = [], []
            for number, group in enumerate(groups):
                was_open = group.open
                token, source = group.step(found[:, number], self.penalty * used, length)
                # An image that a group has done with chooses nothing, whatever the other images still do.
                chosen = was_open[:, None] & torch.isfinite(group.running.scores)
                used.scatter_add_(1, token, chosen.to(used.dtype))
                tokens.append(token)
                rows.append(first + number * size + source)
            if length == steps.longest or not any(bool(group.open.any()) for group in groups):
                break
            steps.go_on(torch.cat(tokens, 1).flatten(), torch.cat(rows, 1).flatten())
        return _answers(groups, self.decoding.answers)


def _answers(groups: list[Group], count: int) -> list[list[Answer]]:
    """The best of all groups for each image; what another group wrote too comes after what is new."""
    ended = groups[0].ended
    for group in groups[1:]:
        ended = ended.beside(group.ended)
    ranked, _ = ended.best(ended.scores.shape[1])
    found = []
    for image in range(len(ranked.scores)):
        answers: dict[tuple[int, ...], Answer] = {}
        repeated = []
        for place in torch.isfinite(ranked.scores[image]).nonzero().flatten().tolist():
            tokens = tuple(ranked.tokens[image, place, : int(ranked.lengths[image, place])].tolist())
            total, ended_so = float(ranked.log_probabilities[image, place]), bool(ranked.ended[image, place])
            answer = Answer(tokens, total, ended_so)
            if tokens in answers:
                repeated.append(answer)
            answers.setdefault(tokens, answer)
        found.append([*answers.values(), *repeated][:count])
    return found

"""A key-value cache of fixed size, with the decoding step captured as a CUDA graph.

A step of a large model launches more than a thousand small kernels, which takes Python longer than the GPU needs to run
them. With every tensor at a fixed address and of a fixed shape, the launches are recorded once and replayed. Finished
rows therefore stay in the batch until it can shrink to a power of two; each number of rows is captured once.

On a CPU the same steps run without a graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, StaticLayer

from cxrlab.core.errors import ConfigError
from cxrlab.core.out_of_memory import exhausted_memory
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.hf.decoding_steps import CACHE, Limits, Prompts, Steps
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.scoring import forward
from cxrlab.models.local_files import first_line

if TYPE_CHECKING:
    from torch import Tensor

_ROUND = 64  # the length is a multiple of this: fast kernels want aligned masks, and fewer lengths mean fewer captures
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_WARM_UP = 2  # runs before a capture, in which libraries allocate what they need


def why_unsupported(model: Any) -> str | None:
    """Why a model cannot decode with a cache of fixed size, as a clause; None if it can."""
    config = model.config
    text = config.get_text_config(decoder=True)
    if not find_family(config.model_type).static_cache:
        return f"the family '{config.model_type}' does not declare it"
    if not type(model).__module__.startswith("transformers."):
        return f"{type(model).__name__} is code of its own"
    others = sorted(set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES)
    return f"it has layers of the kind {', '.join(others)}" if others else None


class StaticDecoder:
    """Keys and values of one model at fixed addresses, and its decoding step for each number of rows.

    The memory is kept for later batches until `release`; a batch that is larger or longer replaces it.

    Attributes:
        lock: To be held while a batch is decoded.
        rows: Most rows of a batch, so far.
        column: Position in the cache of the token that a step reads; 0-dimensional.
        problem: Why steps are not captured although the model is on a GPU, as a clause; None if they are.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.lock = model, threading.Lock()
        self.column = torch.zeros((), dtype=torch.long, device=model.device)
        self.problem: str | None = None
        self.release()

    @property
    def on_gpu(self) -> bool:
        """Whether steps can be captured."""
        return self.column.is_cuda

    def release(self) -> None:
        """Free the memory."""
        self.rows = self.length = 0
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._steps: dict[int, DecodingStep] = {}
        self._pool: Any = None

    def reserve(self, rows: int, length: int) -> None:
        """Provide for a batch of so many rows, prompts and answers of so many tokens."""
        length = -(-length // _ROUND) * _ROUND
        if rows > self.rows or length > self.length:
            rows, length = max(rows, self.rows), max(length, self.length)
            self.release()
            self.rows, self.length = rows, length

    def batch_size(self, rows: int) -> int:
        """Rows of the smallest batch that holds so many: a power of two, or the most."""
        return min(self.rows, 1 << (rows - 1).bit_length())

    def load(self, prompts: Prompts, rows: Tensor, which: Tensor, columns: int) -> None:
        """Copy keys and values of prompts to these rows, right-aligned in so many columns.

        Args:
            rows: [N], rows of the batch.
            which: [N], the prompt of each.
        """
        layers = prompts.cache.layers
        if not self._layers:
            for layer in layers:
                shapes = [(self.rows, one.shape[1], self.length, one.shape[3]) for one in (layer.keys, layer.values)]
                # Zeros, not what was in the memory: a masked NaN would still reach the output.
                keys, values = (layer.keys.new_zeros(shape) for shape in shapes)
                self._layers.append((keys, values))
        for layer, buffers in zip(layers, self._layers, strict=True):
            for states, buffer in zip((layer.keys, layer.values), buffers, strict=True):
                # A layer with a sliding window has kept the last tokens only; the mask hides the others.
                buffer[rows, :, columns - states.shape[2] : columns] = states.index_select(0, which)

    def keep(self, rows: Tensor) -> None:
        """Move these rows to the front."""
        for buffers in self._layers:
            for buffer in buffers:
                buffer[: len(rows)] = buffer.index_select(0, rows)

    def step(self, rows: int) -> DecodingStep:
        """The decoding step of the first so many rows."""
        if rows not in self._steps:
            layers: list[Any] = [
                PreallocatedLayer(keys[:rows], values[:rows], self.column) for keys, values in self._layers
            ]
            self._steps[rows] = DecodingStep(self, Cache(layers=layers))
        return self._steps[rows]

    @property
    def pool(self) -> Any:
        """The memory pool that all graphs share: only one runs at a time, and its output is used at once."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool


class PreallocatedLayer(StaticLayer):
    """One layer of a cache whose tensors [R, H, T, D] others own; `column` [] is where the next token goes."""

    def __init__(self, keys: Tensor, values: Tensor, column: Tensor) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.buffers, self.column = (keys, values), column
        self.keys, self.values, self.is_initialized = keys, values, True
        self.dtype, self.device = keys.dtype, keys.device

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write one token; the column is advanced once for all layers, between the steps."""
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer.index_copy_(2, self.column.view(1), states)
        return self.buffers

    def get_seq_length(self) -> Any:
        """The column, on the device: reading its value would end a capture."""
        return self.column


class DecodingStep:
    """The forward pass of one token for each row, with inputs at fixed addresses.

    Args:
        cache: The rows of the decoder's cache.
    """

    def __init__(self, decoder: StaticDecoder, cache: Any) -> None:
        self.cache = cache
        self._decoder = decoder
        self._given: dict[str, Any] = {}
        self._graph: Any = None
        self._logits: Tensor | None = None
        text = decoder.model.config.get_text_config(decoder=True)
        self._window = getattr(text, "sliding_window", None)
        self._window_everywhere = bool(self._window) and not getattr(text, "layer_types", None)

    def start(self, given: Mapping[str, Any]) -> None:
        """Take over the inputs of a token after the first, as the model prepares them."""
        tensors, before = _tensors(given), _tensors(self._given)
        if {name: one.shape for name, one in tensors.items()} == {name: one.shape for name, one in before.items()}:
            for name, tensor in tensors.items():
                before[name].copy_(tensor)
            return
        self._given, self._graph = dict(given), None

    def advance(self, column: int) -> None:
        """Go on to the next token, at this column."""
        for (name, *kind), tensor in _tensors(self._given).items():
            if name == "position_ids":
                tensor += 1
            elif name == "attention_mask":
                is_open = tensor.dtype == torch.bool
                tensor[..., column] = is_open
                if self._window and column >= self._window and (self._window_everywhere or "sliding_attention" in kind):
                    tensor[..., column - self._window] = False if is_open else torch.finfo(tensor.dtype).min

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits [R, V] after tokens [R]; overwritten by the next call."""
        self._given["input_ids"].copy_(tokens[:, None])
        if not self._decoder.on_gpu:
            return self._run()
        with torch.cuda.device(tokens.device):  # streams and pools are those of the current device
            if self._graph is None and self._decoder.problem is None:
                self._capture()
            if self._graph is None:
                return self._run()
            self._graph.replay()
        assert self._logits is not None
        return self._logits

    def _run(self) -> Tensor:
        logits: Tensor = forward(self._decoder.model, **self._given, return_dict=True).logits[:, -1]
        return logits

    def _capture(self) -> None:
        """Record the launches of a step; every run writes the same token to the same column."""
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._run()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may use the GPU meanwhile, as a server's do.
            with torch.cuda.graph(graph, pool=self._decoder.pool, capture_error_mode="thread_local"):
                self._logits = self._run()
        except RuntimeError as error:  # an operation that needs the CPU in between
            if exhausted_memory(error):
                raise
            self._decoder.problem = f"a step of {type(self._decoder.model).__name__} cannot be captured"
            NoticeStream(sys.stderr).write(
                f"Generation is slower than it could be: {self._decoder.problem} as a CUDA graph ({first_line(error)}).\n"
            )
        else:
            self._graph = graph


def _tensors(given: Mapping[str, Any]) -> dict[tuple[str, ...], Tensor]:
    """The tensors among a model's inputs, those in mappings (a mask per kind of layer) included."""
    found: dict[tuple[str, ...], Tensor] = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            found[(name,)] = value
        elif isinstance(value, dict):
            found.update({(name, kind): one for kind, one in value.items() if isinstance(one, torch.Tensor)})
    return found


class StaticSteps(Steps):
    """Steps whose cache has a fixed size; for strategies that decode each row on its own.

    Args:
        decoder: Its lock is held by the caller.
        prompts: The batch in parts; each is read when the one before it is in the cache.
        images: Prompts in all parts.
        each: Rows per prompt.
        columns: Tokens of the longest prompt.
    """

    def __init__(
        self,
        decoder: StaticDecoder,
        prompts: Iterable[Prompts],
        images: int,
        each: int,
        columns: int,
        limits: Limits,
    ) -> None:
        super().__init__(images * each, decoder.model.device, limits)
        decoder.reserve(self.rows, columns + limits.longest)
        self._decoder, self._columns, self._size = decoder, columns, decoder.batch_size(self.rows)
        self._step: DecodingStep | None = None
        self._tokens = torch.full((self._size,), self.filler, device=self.device)
        # Rows beyond the batch repeat the first prompt: they must hold numbers, and their tokens are never read.
        prompt = torch.arange(self._size, device=self.device) // each
        prompt[self.rows :] = 0
        logits, masks, inputs = [], [], []
        first = 0
        for part in prompts:
            count, length = part.ids.shape
            rows = ((prompt >= first) & (prompt < first + count)).nonzero()[:, 0]
            decoder.load(part, rows, prompt[rows] - first, columns)
            logits.append(part.logits)
            masks.append(torch.nn.functional.pad(part.mask, (columns - length, 0)))
            inputs.append({name: one[..., -1:] for name, one in part.of_rows().items() if name != "attention_mask"})
            first += count
            self._flags = {name: one for name, one in part.inputs.items() if isinstance(one, bool | int | str)}
        self._first: Tensor | None = torch.cat(logits)[prompt[: self.rows]]
        self._mask = torch.cat(masks)[prompt]  # [size, columns + 1], of the prompts and the first token after them
        # Of the first token after the prompts, [..., size, 1].
        self._inputs = {
            name: torch.cat([one[name] for one in inputs], dim=-2).index_select(-2, prompt) for name in inputs[0]
        }

    def _next_logits(self) -> Tensor:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        column = self._columns + self._count - 1
        self._decoder.column.fill_(column)
        if self._step is None:
            self._step = self._decoder.step(self._size)
            self._step.start(self._prepared(self._step.cache))
        else:
            self._step.advance(column)
        return self._step(self._tokens)[: self.rows]

    def _prepared(self, cache: Any) -> dict[str, Any]:
        """The model's inputs for the token at the current column."""
        inputs = dict(self._inputs)
        if "position_ids" in inputs:
            inputs["position_ids"] = inputs["position_ids"] + (self._count - 1)
        mask = torch.nn.functional.pad(self._mask, (0, self._count - 1), value=1)
        given: dict[str, Any] = self._decoder.model.prepare_inputs_for_generation(
            self._tokens[:, None], next_sequence_length=1, attention_mask=mask, **inputs, **self._flags,
            **{CACHE: cache},
        )  # fmt: skip
        if not any(name == "attention_mask" for name, *_ in _tensors(given)):
            raise ConfigError(
                f"{type(self._decoder.model).__name__} gives no attention mask for a cache of fixed size; give "
                "--loading.cache growing."
            )
        return given

    def append(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """See `Steps`; every row continues itself."""
        if rows is not None:
            raise ValueError("beams need a growing cache")
        self._tokens[: self.rows] = tokens
        self._count += 1

    def fewer_rows(self, unfinished: int) -> int | None:
        """The next power of two, if it is smaller than the batch."""
        size = self._decoder.batch_size(unfinished)
        return size if size < self._size else None

    def keep_rows(self, rows: Tensor) -> None:
        """See `Steps`."""
        self._decoder.keep(rows)
        self.rows = self._size = len(rows)
        self._tokens, self._mask, self._step = self._tokens[rows], self._mask[rows], None
        self._inputs = {name: tensor.index_select(-2, rows) for name, tensor in self._inputs.items()}

"""A cache of fixed size gives the words of the growing one, for every family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from tiny_families import FAMILIES, save_tiny
from torch.utils._python_dispatch import TorchDispatchMode

from cxrlab.core.errors import ConfigError
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf import model as hf_model
from cxrlab.models.hf import static_cache
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.static_cache import DecodingStep, StaticDecoder
from cxrlab.models.load_settings import LoadSettings

REASONS = [None, "fall from a ladder two days ago", "cough"]
GREEDY = Decoding(max_new_tokens=7)
SAMPLED = Decoding(strategy="sample", answers=2, top_p=0.9, max_new_tokens=7)
WINDOW = 6  # tokens, fewer than any prompt has


DECLARED = [family for family in FAMILIES if find_family(family).static_cache]


@pytest.fixture(scope="module", params=[*DECLARED, "gemma3 with a short window"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = str(request.param).split()[0]
    made = save_tiny(family, tmp_path_factory.mktemp("family") / family)
    if family != request.param:
        config = made / "config.json"
        config.write_text(config.read_text().replace('"sliding_window": 512', f'"sliding_window": {WINDOW}'))
    return made


def images() -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.rand(size, generator=source) for size in ((48, 40), (30, 52), (40, 40))]


def words(model: HfModel, decoding: Decoding, which: slice = slice(None)) -> list[list[tuple[str, float | None]]]:
    found = model.answers(images()[which], REASONS[which], decoding)
    return [[(one.text, pytest.approx(one.mean_logprob, abs=1e-4)) for one in row] for row in found]


def test_words_are_those_of_the_growing_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and sampled, prompts read in one part or one by one, in batches that shrink, grow and come again."""
    growing = HfModel.load(str(folder), loading=LoadSettings(cache="growing"))
    static = HfModel.load(str(folder), loading=LoadSettings(cache="static"))
    # Some of the words that are written end an answer, so that rows leave the batch at different steps.
    growing.ends = static.ends = [*growing.ends, *range(0, growing.tokenizer.vocab_size, 6)]
    read: list[int] = []  # tokens of each pass
    static.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    expected = {decoding.strategy: words(growing, decoding) for decoding in (GREEDY, SAMPLED)}
    for decoding in (GREEDY, SAMPLED):
        assert words(static, decoding) == expected[decoding.strategy]
    prompts = [count for count in read if count > 3 * SAMPLED.answers]
    assert prompts == [prompts[0]] * 2, "every prompt is read once, however many answers it gets"
    both = static.samples_and_greedy(images(), REASONS, SAMPLED)
    pairs = zip(expected["sample"], expected["greedy"], strict=True)
    assert [[one.text for one in row] for row in both] == [[text for text, _ in (*a, *b)] for a, b in pairs]
    assert words(static, GREEDY, slice(1, 2)) == expected["greedy"][1:2]
    monkeypatch.setattr(hf_model, "_PROMPT_TOKENS", 1)
    for model in (static, growing):
        assert words(model, GREEDY) == expected["greedy"]
        assert words(model, SAMPLED) == expected["sample"]


class Operations(TorchDispatchMode):
    """Names of the operations that run inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(operation))
        return operation(*args, **(kwargs or {}))


def test_a_step_can_be_captured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never waits for a value, and finds its inputs at the same addresses; otherwise a graph could not replay it."""
    model = HfModel.load(str(folder), loading=LoadSettings(cache="static"))
    run, operations, addresses = DecodingStep._run, Operations(), []

    def recorded(step: DecodingStep) -> torch.Tensor:
        addresses.append({name: one.data_ptr() for name, one in static_cache._tensors(step._given).items()})
        with operations:
            return run(step)

    monkeypatch.setattr(DecodingStep, "_run", recorded)
    for _ in range(2):
        model.answers(images()[:1], REASONS[:1], Decoding(max_new_tokens=4))
    waits = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "_unique")
    assert "aten.index_copy_.default" in operations.names
    assert not [name for name in operations.names if any(one in name for one in waits)]
    assert addresses == [addresses[0]] * 6


class StandInGraph:
    """Stands in for a CUDA graph on a CPU: a replay runs the captured step again, into the same output."""

    made: ClassVar[list[StandInGraph]] = []
    running: ClassVar[DecodingStep | None] = None

    def __init__(self) -> None:
        self.step: DecodingStep | None = None
        self.replays = 0
        self.made.append(self)

    @contextmanager
    def capture(self, **_: Any) -> Iterator[None]:
        yield
        self.step = StandInGraph.running

    def replay(self) -> None:
        assert self.step is not None and self.step._logits is not None
        self.step._logits.copy_(self.step._run())
        self.replays += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StandInGraph]]:
    """What a GPU offers to `DecodingStep`, on a CPU; nothing is measured by it but the order of the calls."""
    run = DecodingStep._run

    def recorded(step: DecodingStep) -> torch.Tensor:
        StandInGraph.running = step
        return run(step)

    stream = SimpleNamespace(wait_stream=lambda _: None)
    monkeypatch.setattr(DecodingStep, "_run", recorded)
    monkeypatch.setattr(StaticDecoder, "on_gpu", True)
    for name, value in {
        "device": lambda _: nullcontext(),
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "graph_pool_handle": lambda: (0, 1),
        "CUDAGraph": StandInGraph,
        "graph": lambda graph, **settings: graph.capture(**settings),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    StandInGraph.made.clear()
    yield StandInGraph.made


def test_each_size_of_a_batch_is_captured_once(gpu: list[StandInGraph], tmp_path: Path) -> None:
    """And replayed for every later token and batch, with the words of the growing cache."""
    folder = str(save_tiny("llava", tmp_path))
    growing, static = (HfModel.load(folder, loading=LoadSettings(cache=kind)) for kind in ("growing", "static"))
    growing.ends = static.ends = [*growing.ends, *range(0, growing.tokenizer.vocab_size, 6)]
    for _ in range(3):
        assert words(static, SAMPLED) == words(growing, SAMPLED)
    assert static._static is not None and len(gpu) == len(static._static._steps) == 3  # rows: 6, 4, 2
    replays = sum(graph.replays for graph in gpu)
    assert words(static, SAMPLED) == words(growing, SAMPLED)
    assert len(gpu) == 3 and sum(graph.replays for graph in gpu) == replays * 4 // 3


def test_a_step_that_cannot_be_captured_runs_without_a_graph(
    gpu: list[StandInGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(graph: Any, **_: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    folder = str(save_tiny("llava", tmp_path))
    growing, static = (HfModel.load(folder, loading=LoadSettings(cache=kind)) for kind in ("growing", "static"))
    assert words(static, GREEDY) == words(growing, GREEDY)
    assert static._static is not None and "cannot be captured" in str(static._static.problem)
    assert len(gpu) == 1 and "not permitted" in capsys.readouterr().err


def test_bfloat16_differs_by_rounding_alone(tmp_path: Path) -> None:
    """Where the words are equal, mean log-probabilities are within 0.02 of each other."""
    folder = str(save_tiny("llava", tmp_path))
    found = [
        HfModel.load(folder, loading=LoadSettings(cache=kind, dtype="bfloat16")).answers(images(), REASONS, GREEDY)
        for kind in ("growing", "static")
    ]
    pairs = [(a, b) for (a,), (b,) in zip(*found, strict=True) if a.text == b.text]
    assert pairs and all(b.mean_logprob == pytest.approx(a.mean_logprob, abs=0.02) for a, b in pairs)


def test_a_family_that_does_not_declare_it(tmp_path: Path) -> None:
    """It is refused if it is asked for, and named in the summary if not."""
    folders = [str(save_tiny(family, tmp_path / family)) for family in ("llava", "idefics")]
    assert HfModel.load(folders[1]).generation_cache == "growing: the default on this device"
    static = HfModel.load(folders[0], loading=LoadSettings(cache="static"))
    assert static.generation_cache == "static, without graphs on this device"
    with pytest.raises(ConfigError, match="'idefics' does not declare it; give --loading.cache growing"):
        HfModel.load(folders[1], loading=LoadSettings(cache="static"))

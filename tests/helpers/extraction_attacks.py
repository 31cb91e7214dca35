"""Extraction attacks without large models: a victim that is a function, and linear surrogates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.data.corpus import load_corpus
from cxrlab.extraction.attack_rounds import Attack
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.query_ledger import Ledger
from cxrlab.extraction.query_pools import Pool, open_pool
from cxrlab.extraction.records import AuditScope, Query, QueryImage, fingerprint
from cxrlab.extraction.report_content import Category
from cxrlab.extraction.rule_oracles import Descriptions
from cxrlab.extraction.victim_client import VictimClient

ReportFunction = Callable[[Any], str]
LARGE, NORMAL = "There is cardiomegaly.", "The heart is normal in size."


def heart(pixels: Any) -> str:
    """Report cardiomegaly for images whose upper half is brighter."""
    half = len(pixels) // 2
    return LARGE if pixels[:half].mean() > pixels[half:].mean() else NORMAL


class FunctionClient:
    """The interface of an attack's client: `ask` and `left`. Queries go into a list outside it."""

    __slots__ = ("_budget", "_queries", "_say")

    def __init__(self, say: ReportFunction, budget: int, queries: list[QueryImage]) -> None:
        self._say, self._budget, self._queries = say, budget, queries

    @property
    def left(self) -> int:
        return self._budget - len(self._queries)

    def query(self, pictures: Sequence[QueryImage], round: int, first: int) -> list[str]:
        assert len(pictures) <= self.left, "more queries than the budget allows"
        assert first == len(self._queries), "query numbers must continue"
        self._queries += pictures
        return [self._say(one.pixels) for one in pictures]


class LinearSurrogate:
    """A surrogate whose loss is w · x + 3 for every report, so that its gradient is known."""

    def __init__(self, weights: Any, writes: str = NORMAL) -> None:
        self.weights = torch.as_tensor(np.asarray(weights), dtype=torch.float32)
        self.device = torch.device("cpu")
        self.writes = writes

    def losses(self, images: Any, reports: Sequence[str], indications: Sequence[str | None] | None = None) -> Any:
        if not isinstance(images, torch.Tensor):
            stacked = torch.from_numpy(np.stack(images))
            images = stacked[:, None] if stacked.ndim == 3 else stacked.permute(0, 3, 1, 2)
        assert len(images) == len(reports)
        return (images * self.weights).sum((1, 2, 3)) + 3.0

    def answers(self, images: Sequence[Any], indications: Any = None, decoding: Any = None) -> list[list[Generated]]:
        return [[Generated(self.writes)] for _ in images]


class LinearTrainer:
    """Returns a linear surrogate for every transcript and records the transcripts; `turns` changes its signs."""

    def __init__(self, size: int = 8, writes: str = NORMAL, *, turns: bool = False) -> None:
        self.line = LinearSurrogate(np.where(np.arange(size * size).reshape(size, size) % 2, 0.01, -0.01), writes)
        self.turns = turns
        self.learnt: list[list[str]] = []  # study ids of each transcript
        self.between: list[bool] = []

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> LinearSurrogate:
        self.learnt.append(list(load_corpus(transcript).ids()))
        self.between.append(between_rounds)
        if not self.turns:
            return self.line
        signs = np.random.default_rng(len(self.learnt[-1])).choice([-1, 1], self.line.weights.shape)
        return LinearSurrogate(self.line.weights.numpy() * signs, self.line.writes)


def settings(**changes: Any) -> ExtractConfig:
    """Noise images of 8 x 8 pixels; otherwise the attack of the paper."""
    base = {"victim": "stub:normal", "data": Path("corpus"), "pool": "noise", "size": 8, "seed": 3}
    return ExtractConfig(**{**base, **changes})


def attack_on(
    folder: Path, config: ExtractConfig, say: ReportFunction = heart, learner: Any = None, pool: Pool | None = None
) -> tuple[Attack, list[QueryImage]]:
    """An attack on a `FunctionClient`, and the list of its queries."""
    queries: list[QueryImage] = []
    client = FunctionClient(say, config.budget, queries)
    shown = pool or open_pool(config.pool, size=config.size, seed=config.seed)
    return Attack(client, shown, learner or LinearTrainer(config.size), config, folder), queries


def short_descriptions() -> Descriptions:
    """A few words, for attacks whose words do not matter."""
    abnormal = {one: tuple(f"Abnormal {one.value} of kind {k}." for k in range(9)) for one in Category}
    return Descriptions(abnormal, {one: (f"Normal {one.value}.",) for one in Category})


class FailingVictim:
    """A victim that fails after `breaks_after` images and records each image."""

    name = "stub:normal"
    capabilities = Capabilities()

    def __init__(self, say: ReportFunction, seen: list[str], breaks_after: int = 1 << 30) -> None:
        self.say, self.seen, self.left = say, seen, breaks_after

    def generate(self, images: Sequence[Any], indications: Any = None) -> list[Generated]:
        if len(images) > self.left:
            raise ConnectionRefusedError("the victim is gone")
        self.left -= len(images)
        pixels = [np.rint(image * 255).astype(np.uint8) for image in images]
        self.seen += [fingerprint(one) for one in pixels]
        return [Generated(self.say(one)) for one in pixels]


@contextmanager
def attack_with_ledger(
    folder: Path, config: ExtractConfig, victim: FailingVictim, learner: Any = None
) -> Iterator[Attack]:
    """An attack on a `VictimClient`, with its ledger in the folder."""
    with Ledger.open(folder / "ledger.sqlite", AuditScope(config.victim, config.budget)) as ledger:
        pool = open_pool(config.pool, size=config.size, seed=config.seed)
        client = VictimClient(victim, ledger, folder, batch_size=1)
        yield Attack(client, pool, learner or LinearTrainer(config.size), config, folder)


def plans(folder: Path) -> dict[str, bytes]:
    """Every plan of a run folder with its bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("plan.jsonl"))}


def query_rows(queries: Sequence[Query]) -> list[tuple[int, int, str, str, str]]:
    """What an attack knows of its queries."""
    return [(one.number, one.round, one.key, one.sha256, one.report) for one in queries]

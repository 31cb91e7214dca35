"""Attacks with nothing heavy behind them: a client that is a function, surrogates that are linear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cxrlab.core.protocols import Capabilities, Generated
from cxrlab.data.corpus import load_corpus
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.ledger import Ledger
from cxrlab.extraction.oracles import Descriptions
from cxrlab.extraction.pools import Pool, open_pool
from cxrlab.extraction.records import AuditScope, Query, QueryImage, fingerprint
from cxrlab.extraction.report_text import Category
from cxrlab.extraction.rounds import Attack
from cxrlab.extraction.victim_client import VictimClient

ReportFunction = Callable[[Any], str]
LARGE, NORMAL = "There is cardiomegaly.", "The heart is normal in size."


def heart(pixels: Any) -> str:
    """A large heart on pictures whose upper half is the brighter one."""
    half = len(pixels) // 2
    return LARGE if pixels[:half].mean() > pixels[half:].mean() else NORMAL


class FunctionClient:
    """All that an attack may have: `ask` and `left`. What was asked stays in a list outside it."""

    __slots__ = ("_asked", "_budget", "_say")

    def __init__(self, say: ReportFunction, budget: int, asked: list[QueryImage]) -> None:
        self._say, self._budget, self._asked = say, budget, asked

    @property
    def left(self) -> int:
        return self._budget - len(self._asked)

    def ask(self, pictures: Sequence[QueryImage], round: int, first: int) -> list[str]:
        assert len(pictures) <= self.left, "more was asked than the budget allows"
        assert first == len(self._asked), "numbers must go on where they were"
        self._asked += pictures
        return [self._say(one.pixels) for one in pictures]


class LinearSurrogate:
    """A surrogate whose loss of any report is w · x + 3, the same for all words, so that gradients are known."""

    def __init__(self, weights: Any, writes: str = NORMAL) -> None:
        self.weights = torch.as_tensor(np.asarray(weights), dtype=torch.float32)
        self.device = torch.device("cpu")
        self.writes = writes

    def losses(self, images: Any, reports: Sequence[str], indications: Sequence[str | None] | None = None) -> Any:
        radiographs = images if isinstance(images, torch.Tensor) else torch.from_numpy(np.stack(images))[:, None]
        assert len(radiographs) == len(reports)
        return (radiographs[:, 0] * self.weights).sum((1, 2)) + 3.0

    def answers(self, images: Sequence[Any], indications: Any = None, decoding: Any = None) -> list[list[Generated]]:
        return [[Generated(self.writes)] for _ in images]


class LinearTrainer:
    """Gives a line for every transcript, the same one unless it turns, and notes what each fit was shown."""

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
    """Pictures of 8 pixels of noise, the paper's attack otherwise."""
    base = {"victim": "stub:normal", "data": Path("corpus"), "pool": "noise", "size": 8, "seed": 3}
    return ExtractConfig(**{**base, **changes})


def attack_on(
    folder: Path, config: ExtractConfig, say: ReportFunction = heart, learner: Any = None, pool: Pool | None = None
) -> tuple[Attack, list[QueryImage]]:
    """An attack on a talking client, and the list that what it asks goes into."""
    asked: list[QueryImage] = []
    client = FunctionClient(say, config.budget, asked)
    shown = pool or open_pool(config.pool, size=config.size, seed=config.seed)
    return Attack(client, shown, learner or LinearTrainer(config.size), config, folder), asked


def short_descriptions() -> Descriptions:
    """A few words, for attacks whose words do not matter."""
    abnormal = {one: tuple(f"Abnormal {one.value} of kind {k}." for k in range(9)) for one in Category}
    return Descriptions(abnormal, {one: (f"Normal {one.value}.",) for one in Category})


class FailingVictim:
    """A victim that answers so many pictures and then breaks; each that reaches it is noted."""

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
    """An attack on a true client, with its ledger in the folder."""
    with Ledger.open(folder / "ledger.sqlite", AuditScope(config.victim, config.budget)) as ledger:
        pool = open_pool(config.pool, size=config.size, seed=config.seed)
        client = VictimClient(victim, ledger, folder, batch_size=1)
        yield Attack(client, pool, learner or LinearTrainer(config.size), config, folder)


def plans(folder: Path) -> dict[str, bytes]:
    """Every plan of a run folder with its bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("plan.jsonl"))}


def query_rows(queries: Sequence[Query]) -> list[tuple[int, int, str, str, str]]:
    """What an attack knows of its questions."""
    return [(one.number, one.round, one.key, one.sha256, one.report) for one in queries]

"""Report generation by workers: each has the model, and the first process plans batches and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cxrlab.core.workers import Workers

if TYPE_CHECKING:
    from cxrlab.core.records import Prediction
    from cxrlab.evaluation.generate import Images, MissingReport, ReportGenerator

# What a run needs to know of its model, beside its answers.
_FACTS = (
    "name", "capabilities", "prompts", "card", "collections", "trained_on", "input_side", "parameter_count",
    "generation_cache",
)  # fmt: skip


class ReportWorker:
    """The model of a run and the images of its corpus, in a worker."""

    def __init__(self, generator: ReportGenerator, images: Images) -> None:
        self._generator, self._images = generator, images
        self._small: list[dict[str, Any]] = []

    def facts(self) -> dict[str, Any]:
        """What a run needs to know of its model."""
        model = self._generator.model
        return {name: getattr(model, name) for name in _FACTS if hasattr(model, name)}

    def outcomes(
        self, controls: Any, input_side: int | None, keys: Sequence[str]
    ) -> tuple[list[tuple[str, Prediction | MissingReport]], list[dict[str, Any]], str | None]:
        """The outcome of each study of a batch; the images that are smaller than `input_side`; the cache of the model."""
        small: list[dict[str, Any]] = []
        self._images.log_small(small.append, input_side)
        images = self._images.with_controls(controls)
        [found] = self._generator.outcomes(images, [keys])
        return found, small, getattr(self._generator.model, "generation_cache", None)


class SharedGenerator:
    """Stands for a `ReportGenerator` whose model is loaded by workers; its `model` has what a run needs to know of it."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.model: Any = SimpleNamespace(**workers.call("facts"))

    def outcomes(
        self, images: Images, batches: Iterable[Sequence[str]]
    ) -> Iterator[list[tuple[str, Prediction | MissingReport]]]:
        """The prediction of each study, or why it has none, for each batch in order."""
        tasks = ((images.controls(keys), images.input_side, tuple(keys)) for keys in batches)
        for found, small, cache in self._workers.map("outcomes", tasks):
            for record in small:
                images.add_small(record)
            self.model.generation_cache = cache
            yield found
